"""The standby's own process, from its start: see `ringfence.cli.standby.starting`."""

import os
import resource
import sys

import ringfence.cli
from ringfence.cli.standby.files import opened, signs
from ringfence.cli.standby.forked import Loaded
from ringfence.cli.standby.interpreter import interpreter
from ringfence.cli.standby.life import die_with
from ringfence.cli.standby.loading import load
from ringfence.cli.standby.server import Fork, Standby
from ringfence.errors import InfrastructureFault

_TRIES = 3
READY = b"ready"


def main() -> None:
    """`DIRECTORY LOCK TELLING IDLE_S TRY`: load, listen, fork."""
    try:
        fork = _serve(*sys.argv[1:])
    except (InfrastructureFault, OSError) as exc:
        sys.stderr.write(f"{exc}\n")
        sys.exit(1)
    if fork is not None:
        fork.do()


def _serve(directory: str, lock: str, telling: str, idle_s: str, number: str) -> Fork | None:
    _see_that_forks_die()
    files = signs()
    entry = ringfence.cli.main
    read = load()
    ringfence.cli.main = entry  # the module of that name took its place
    if signs() != files:  # Python wrote down what it compiled, or somebody installs something just now
        if int(number) >= _TRIES:
            raise InfrastructureFault("the files of ringfence change while they are loaded; try again later")
        words = [*sys.orig_argv[:-1], str(int(number) + 1)]
        os.execv(sys.executable, words)  # noqa: S606 -- itself
    for held in (int(lock), int(telling)):
        os.set_inheritable(held, False)
    _have_room()
    loaded = Loaded(interpreter(list(sys.path)), dict(os.environb), read)
    standby = Standby(directory, int(lock), loaded, (files, opened()), idle_s=float(idle_s))
    standby.listen()
    os.write(int(telling), READY)
    os.close(int(telling))
    _be_silent()
    return standby.serve()


def _have_room() -> None:
    """For many callers at once. A fork takes over the limits of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _see_that_forks_die() -> None:
    """Refuse to be where they would not die with what they work for."""
    life, other = os.pipe2(os.O_CLOEXEC)
    try:
        die_with(life)
    finally:
        os.close(life)  # this one first: it is what kills
        os.close(other)


def _be_silent() -> None:
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in range(3):
        os.dup2(null, number, inheritable=True)
    os.close(null)

"""Whose a state directory's crew is: the one daemon that has it, and the file that it was last started with."""

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.config.paths import make_private_dir
from ringfence.errors import UsageError
from ringfence.filesystem import replace_file
from ringfence.flock import try_lock

_LOCK = "daemon.lock"


@contextmanager
def only_one(state: Path, file: Path) -> Iterator[None]:
    """Hold the state directory's crew.

    Args:
        state: The state directory.
        file: The fleet's, for advice: whose daemon the other one is decides what can be done.

    Raises:
        UsageError: Another process does.
    """
    with held(state) as other:
        if other is not None:
            raise UsageError(_taken(other, state, file))
        yield


def _taken(other: str, state: Path, file: Path) -> str:
    theirs = noted_file(state)
    if theirs is None or theirs == file.absolute():
        return (
            f"this fleet's daemon runs already (process {other}); `ringfence fleet reload` has it read its files again, "
            "`ringfence fleet down` ends it"
        )
    return (
        f"another daemon (process {other}) has this state directory, for the fleet of {str(theirs)!r}; give this one "
        f"a state directory of its own, such as RINGFENCE_STATE_DIR={shlex.quote(str(state))}-2, for every command"
    )


@contextmanager
def held(state: Path) -> Iterator[str | None]:
    """Hold the state directory's crew if nobody does; else the process that does.

    The file of the lock names the holder; who ends in good order leaves it empty.
    """
    path = make_private_dir(state / "fleet") / _LOCK
    with path.open("a+b") as file:
        if not try_lock(file.fileno(), fcntl.LOCK_EX, what=f"{str(path)!r}"):
            yield _holder(path)
            return
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        yield None
        file.truncate(0)


def has_died(state: Path, pid: int) -> bool:
    """Whether a process that held the state directory's crew, and is gone, did not end in good order."""
    return _holder(state / "fleet" / _LOCK) == str(pid)


def _holder(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(20).decode("ascii", "replace").strip()


def note_file(state: Path, file: Path) -> None:
    """Note the crew's file, for those who look when no daemon runs."""
    replace_file(make_private_dir(state / "fleet") / "file", os.fsencode(file.absolute()))


def noted_file(state: Path) -> Path | None:
    """The file that the crew was last started with; None: there never was one."""
    try:
        return Path(os.fsdecode((state / "fleet" / "file").read_bytes()))
    except FileNotFoundError:
        return None

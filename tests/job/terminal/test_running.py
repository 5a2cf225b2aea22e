"""A program in a sandbox on a person's terminal, which is theirs again whatever becomes of the program."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.job.terminal.person import Person

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
FULL_SCREEN = r"printf '\033[?1049h\033[?1000h\033[?2004h\033[?25l'; "
DRAWS = (
    FULL_SCREEN
    + r"""
draw() { printf '\033[2J\033[Hdrawn at %s' "$(stty size)"; }
trap draw WINCH
draw
while :; do sleep 0.05; done
"""
)


@pytest.fixture
def person() -> Iterator[Person]:
    """Somebody at a shell with job control."""
    one = Person()
    root = str(Path(__file__).parents[3])
    env = {**os.environ, "PS1": "at home> ", "PYTHONPATH": root, "TERM": "xterm"}
    one.start("bash", "--norc", "--noprofile", "-i", env=env)
    one.see("at home>")
    yield one
    one.close()


def _hold(person: Person, script: str) -> None:
    quoted = "'" + script.replace("'", "'\\''") + "'"
    person.type(f"clear; {sys.executable} -m tests.job.terminal.held {quoted}\r")


def _is_whole(person: Person) -> bool:
    return not person.is_behind and not person.has_mode(1000) and person.has_mode(25)


def _run_on(person: Person) -> None:
    """Have the shell do something, so that it is seen to be in order."""
    person.type("stty -a | grep -c ' -icanon'; echo w''ell\r")
    assert "0\nwell" in person.see("well", "at home>")


def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(person: Person):
    """The screen before is there in between; the program draws its own again, at its size."""
    _hold(person, DRAWS)
    person.see("drawn at 32 100")
    person.type("\x1a")
    person.see("suspended", "Stopped")
    assert not person.is_behind
    assert not person.has_mode(1000)
    _run_on(person)
    person.type("fg\r")
    person.see("drawn at 32 100")
    assert person.is_behind
    assert person.has_mode(1000)


def test_what_is_inside_stands_still_while_it_is_suspended(person: Person):
    """It would ask a gate that answers nobody."""
    # It starts no other program: a shell that waits for one to begin, which stands still, waits in the kernel.
    _hold(person, "trap 'exit 7' TERM; printf rea; printf dy; while :; do :; done")
    person.see("ready")
    person.type("\x1a")
    person.see("Stopped")
    inside, *_ = [pid for pid in person.below() if _command(pid).startswith(b"sh\0-c\0trap")]
    deadline = time.monotonic() + 30
    while _state(inside) != "T" and time.monotonic() < deadline:
        os.sched_yield()  # it may be in the kernel still, on its way to standing still
    assert _state(inside) == "T"


def test_a_new_size_while_it_was_suspended_is_told(person: Person):
    """Nobody could tell it then."""
    _hold(person, DRAWS)
    person.see("drawn at 32 100")
    person.type("\x1a")
    person.see("Stopped")
    person.resize(20, 70)
    person.type("fg\r")
    person.see("drawn at 20 70")


def test_a_program_that_is_killed_leaves_the_terminal_whole(person: Person):
    """It had no time to clean up itself."""
    _hold(person, FULL_SCREEN + "kill -9 $$")
    person.see("ENDED: the command was ended by signal")
    assert _is_whole(person)
    _run_on(person)


def test_a_sandbox_that_is_killed_leaves_the_terminal_whole(person: Person):
    """As if the program had ended."""
    _hold(person, DRAWS)
    person.see("drawn at 32 100")
    for pid in person.below():
        if b"\0--args\0" in _command(pid):  # bubblewrap
            os.kill(pid, signal.SIGKILL)
    person.see("SandboxDied", "at home>")
    assert _is_whole(person)
    _run_on(person)


QUESTIONS = {
    "what it is": (r"printf '\033[c'", "62;22c"),
    "its name": (r"printf '\033[>q'", "term(5)"),
    "its title, in the short form": (r"printf '\302\23321t'", "titled"),
    "what we ask ourselves, first": (r"printf '\033[5n\033[5n\033[>q\033[c'", "term(5)"),
    "with something begun": (r"printf '\033[c\033]0;never ended'", "62;22c"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_of_the_terminal_is_not_typed_into_the_shell(person: Person, name: str):
    """What asks the terminal at its very end is not there to read the answer."""
    script, answer = QUESTIONS[name]
    person.is_slow = True
    _hold(person, script)
    person.see("ENDED")
    person.type("echo w''ell\r")
    assert answer not in person.see("well", "at home>")


def test_an_answer_that_comes_while_it_is_suspended_is_kept_for_it(person: Person):
    """The shell does not get it; the program does, when it goes on."""
    person.is_slow = True
    _hold(person, r"stty raw -echo; printf 'rea''dy\033[>q'; head -c 13 | od -c; printf 'ov''er'; sleep 60")
    person.see("ready")
    person.type("\x1a")
    person.see("Stopped", "at home>")
    person.type("echo w''ell\r")
    assert "term(5)" not in person.see("well", "at home>")
    person.type("fg\r")
    person.see("t   e   r   m", "over")


def test_a_window_that_is_closed_ends_what_is_inside(person: Person):
    """It is told as every program on a terminal is."""
    _hold(person, "trap 'exit 0' HUP; printf he; printf re; while :; do sleep 0.05; done")
    person.see("here")
    held = [pid for pid in person.below() if _runs_held(pid)]
    assert held
    person.leave()
    for pid in held:
        _wait_gone(pid)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return b""


def _runs_held(pid: int) -> bool:
    return b"tests.job.terminal.held" in _command(pid)


def _wait_gone(pid: int) -> None:
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ready, _, _ = select.select([end], [], [], 60)
    os.close(end)
    assert ready

"""`ringfence shell` on a real terminal."""

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


class Terminal:
    """Our end of a terminal."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(30, 100)
        self.seen = b""

    def resize(self, rows: int, columns: int) -> None:
        """Change its size."""
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type."""
        os.write(self.ours, text.encode())

    def expect(self, text: bytes) -> bytes:
        """Read until something is shown that was not there when it was last waited for; what stands before it."""
        deadline = time.monotonic() + 40
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], deadline - time.monotonic())
            assert ready, self.seen
            self.seen += os.read(self.ours, 65536)
        before, _, self.seen = self.seen.partition(text)
        return before


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal."""
    made = Terminal()
    yield made
    os.close(made.ours)
    os.close(made.theirs)


@pytest.fixture
def shell(start: Cli, workspace: Path, terminal: Terminal) -> Any:
    """A shell that is ready, on the terminal."""

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(terminal.theirs, termios.TIOCSCTTY, 0)

    process = start(
        *("shell", "-C", workspace, "--program", "sh"),
        stdin=terminal.theirs,
        stdout=terminal.theirs,
        stderr=terminal.theirs,
        preexec_fn=own_terminal,
    )
    terminal.type("echo re''ady\n")
    terminal.expect(b"ready")
    return process


def test_what_is_typed_goes_inside_and_its_exit_code_comes_out(shell: Any, terminal: Terminal):
    """It is the shell that answers, in the workspace."""
    terminal.type("ls; tty; exit 5\n")
    terminal.expect(b"app.py")
    terminal.expect(b"/dev/pts/")
    terminal.expect(b"record: ")
    assert shell.wait(60) == 5


def test_ctrl_c_goes_inside(shell: Any, terminal: Terminal):
    """It interrupts the command, not the shell and not ringfence."""
    # Said by the program itself: by then it is in the foreground, where the interrupt goes.
    terminal.type("sh -c 'echo go\"\"ing; exec sleep 1000'\n")
    terminal.expect(b"going")
    terminal.type("\x03")
    terminal.expect(b"$ ")  # what is typed before the prompt is back, the interrupt may take along
    terminal.type("echo st''ill; exit\n")
    terminal.expect(b"still")
    assert shell.wait(60) in (0, 130)


def test_a_new_size_is_told(shell: Any, terminal: Terminal):
    """Programs inside are signalled, and see the terminal as it is now."""
    program = 'trap "echo size: \\$(stty size); exit" WINCH; echo wait""ing; while :; do sleep 0.05; done'
    terminal.type(f"exec sh -c '{program}'\n")
    terminal.expect(b"waiting")
    terminal.resize(41, 123)
    terminal.expect(b"\nsize: ")
    assert terminal.expect(b"\r\n") == b"41 123"


def test_the_terminal_is_given_back_as_it_was(shell: Any, terminal: Terminal):
    """Raw mode ends with the shell."""
    terminal.type("exit\n")
    shell.wait(60)
    assert termios.tcgetattr(terminal.theirs)[3] & termios.ECHO


def test_without_a_terminal_it_is_refused(ringfence: Cli, workspace: Path):
    """`exec` is named."""
    ended = ringfence("shell", "-C", workspace)
    assert (ended.code, "ringfence exec" in ended.err) == (2, True)

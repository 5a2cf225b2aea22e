"""What takes over a terminal: a shell, and a command in a standing sandbox."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.promises.product import Product, read_until

ROWS, COLUMNS = 33, 101


class Screen:
    """The user's end of a terminal."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        """Its descriptor."""
        return self.number

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self.number, text.encode())

    def resize(self, process: "subprocess.Popen[bytes]", rows: int, columns: int) -> None:
        """Give it another size, of which the process on it is told, as a window does."""
        fcntl.ioctl(self.number, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process.send_signal(signal.SIGWINCH)


@contextmanager
def on_terminal(
    product: Product, *words: str, **more: Any
) -> Iterator[tuple["subprocess.Popen[bytes]", Screen]]:
    """Start a command on a terminal of its own."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    try:
        with product.started(
            *words,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=product.variables(TERM="xterm"),
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            **more,
        ) as process:
            os.close(inner)
            inner = -1
            yield process, Screen(outer)
    finally:
        for number in (outer, inner):
            if number >= 0:
                os.close(number)


def test_shell(product: Product) -> None:
    """`shell` is a shell in the sandbox, in the workspace; its exit code is passed on, and what it made is there."""
    with on_terminal(product, "shell", "--program", "sh") as (process, screen):
        screen.type("stty -echo; echo at-$(pwd)-end; echo x > by-shell; exit 5\n")
        read_until(screen, f"at-{product.project}-end".encode())
        read_until(screen, b"record: ")
        assert process.wait(30) == 5
    assert (product.project / "by-shell").exists()
    assert product.record()[-1]["event"] == "journal.sealed"
    assert "by-shell" in product.does("diff", "last", "--stat").out


def test_size(product: Product) -> None:
    """A program inside sees the terminal's size, and is signalled when that changes."""
    program = (
        "trap 'echo changed $(stty size); exit' WINCH; echo at $(stty size); while :; do sleep 0.05; done"
    )
    with on_terminal(product, "shell", "--program", "sh") as (process, screen):
        screen.type(f'stty -echo; exec sh -c "{program.replace("$", chr(92) + "$")}"\n')
        read_until(screen, f"at {ROWS} {COLUMNS}".encode())
        screen.resize(process, ROWS + 8, COLUMNS + 22)
        read_until(screen, f"changed {ROWS + 8} {COLUMNS + 22}".encode())


def test_ctrl_c(product: Product) -> None:
    """Ctrl-C interrupts the command, neither the shell nor the product."""
    with on_terminal(product, "shell", "--program", "sh") as (process, screen):
        # The command itself says that it runs: between two commands a shell would take the signal for itself.
        screen.type("stty -echo; sh -c \"echo be''gun; exec sleep 600\"; echo inter''rupted\n")
        read_until(screen, b"begun")
        screen.type("\x03")
        screen.type("\necho still-''here; exit\n")
        read_until(screen, b"still-here")
        process.wait(30)


def test_the_terminal_is_as_before(product: Product) -> None:
    """After a program that changed the terminal's modes, they are as they were."""
    outer, inner = pty.openpty()
    try:
        before = termios.tcgetattr(inner)
        with product.started(
            *("shell", "--program", "sh"),
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=product.variables(TERM="xterm"),
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        ) as process:
            os.write(outer, b"stty raw -echo; exit\n")
            read_until(Screen(outer), b"exit")
            process.wait(30)
        assert termios.tcgetattr(inner) == before
    finally:
        os.close(outer)
        os.close(inner)


def test_shell_without_a_terminal(shared: Product) -> None:
    """Without a terminal `shell` is a usage error that names `exec`."""
    shared("shell").fails_as("usage", "exec")


def test_standing_sandbox(product: Product) -> None:
    """`sandbox exec -it` runs a command on the terminal: its size, resized too, what is typed, its exit code."""
    product.does("sandbox create", "box")
    try:
        with on_terminal(product, "sandbox exec", "-it", "box", "--", "sh") as (process, screen):
            screen.type("stty -echo; echo size $(stty size) of $(tty)\n")
            read_until(screen, f"size {ROWS} {COLUMNS} of /dev/".encode())
            screen.resize(process, ROWS + 8, COLUMNS + 22)
            screen.type(f"until stty size | grep '{ROWS + 8} 1''23'; do :; done; exit 6\n")
            read_until(screen, f"{ROWS + 8} {COLUMNS + 22}".encode())
            assert process.wait(30) == 6
    finally:
        product.does("sandbox rm", "box")

"""The user's terminal: taken for a program inside, and given back as it was, whatever becomes of the program."""

import errno
import fcntl
import os
import select
import signal
import struct
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread

from ringfence.job.terminal.modes import ScreenModes

_ASKED_LATELY_S = 2.0
_ANSWER_S = 1.0
_QUIET_S = 0.1
_ALL_ANSWERS_S = 10.0
_ASK, _ANSWER = b"\x1b[5n", b"\x1b[0n"
_BREAK_OFF = b"\x18\x1b\\"
"""Ends what the program has begun and not ended, which would swallow what is said next."""
_CHUNK = 64 * 1024
_RETRIES = 10
_PASSED_ON = ("COLORTERM", "COLORFGBG", "NO_COLOR", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")
_LONGEST_VARIABLE = 100


class TerminalClosed(OSError):
    """Nobody is at the other end any more."""


class Terminal:
    """A terminal, by its two ends.

    Args:
        keyboard: Descriptor to read from.
        screen: Descriptor to write to.
    """

    def __init__(self, keyboard: int, screen: int) -> None:
        self.keyboard = keyboard
        self._screen = screen
        self._modes = ScreenModes()
        self._before: list[Any] = []
        self._raw: list[Any] = []
        self._asked_at = float("-inf")

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        try:
            packed = fcntl.ioctl(self._screen, termios.TIOCGWINSZ, b"\0" * 8)
        except OSError:
            return 24, 80
        rows, columns, _, _ = struct.unpack("HHHH", packed)
        return rows or 24, columns or 80

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Have every key as it is; at the end all is as before, also what the program did to the screen."""
        self._before = termios.tcgetattr(self.keyboard)
        self.enter()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.leave)

    def enter(self) -> None:
        """Make the terminal the program's."""
        with suppress(termios.error):
            # What was typed ahead is kept: it is for the program.
            _patiently(lambda: tty.setraw(self.keyboard, termios.TCSADRAIN))
            self._raw = termios.tcgetattr(self.keyboard)
        self._send(self._modes.redo())

    def leave(self) -> bytes:
        """Make it what it was. Nobody else may be reading; what was on its way to the program is returned."""
        self._send(_BREAK_OFF)
        is_asked_lately = time.monotonic() - self._asked_at < _ASKED_LATELY_S
        answers = self._take_answers() if is_asked_lately else b""
        self._send(self._modes.undo())
        with suppress(termios.error):
            _patiently(lambda: termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._before))
        return answers

    def typed(self) -> bytes | None:
        """What is there to be read; None: nothing, somebody else had it. Empty: the terminal is gone."""
        try:
            ready, _, _ = select.select([self.keyboard], [], [], 0)
            return os.read(self.keyboard, _CHUNK) if ready else None
        except OSError:
            return b""

    def is_entered(self) -> bool:
        """Whether it is as `enter` made it: a shell changes that for itself while we are stopped."""
        try:
            return termios.tcgetattr(self.keyboard) == self._raw
        except termios.error:
            return True  # it is gone

    def show(self, output: bytes) -> None:
        """Pass on what the program says.

        Raises:
            TerminalClosed: Nobody reads it.
        """
        self._modes.see(output)
        if self._modes.is_asked:
            self._modes.is_asked = False
            self._asked_at = time.monotonic()
        try:
            _write_all(self._screen, output)
        except OSError as exc:
            raise TerminalClosed from exc

    def say(self, line: str) -> None:
        """A line of our own, where it is not the program's."""
        self._send(f"\r\n{line}\r\n".encode())

    def _take_answers(self) -> bytes:
        """Take what the terminal answers to the program: the shell would take it for typed.

        The program may have asked what we ask, so the first answer to that need not be the last of all.
        """
        self._send(_ASK)
        seen = b""
        until = time.monotonic() + _ALL_ANSWERS_S
        while (left := until - time.monotonic()) > 0:
            patience_s = _QUIET_S if _ANSWER in seen else _ANSWER_S
            ready, _, _ = select.select([self.keyboard], [], [], min(left, patience_s))
            if not ready:
                break
            try:
                read = os.read(self.keyboard, _CHUNK)
            except OSError:
                break
            if not read:
                break
            seen = (seen + read)[-_CHUNK:]
        before, _, after = seen.rpartition(_ANSWER)
        return before + after

    def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it is gone
            _write_all(self._screen, data)


def stop() -> None:
    """Stop this process and its group, as a terminal does, until somebody continues it; at once, if nobody could."""
    ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(0, signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, ours)


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """What tells a program inside which terminal it is on."""
    found = {
        name: environ[name]
        for name in _PASSED_ON
        if len(environ.get(name, "")) in range(1, _LONGEST_VARIABLE)
    }
    return {"TERM": environ.get("TERM", "xterm"), **found}


def _patiently(act: Callable[[], object]) -> None:
    """Do it; a signal, such as the one that lets us go on, may come in between."""
    for _ in range(_RETRIES):
        try:
            act()
        except termios.error as exc:
            if exc.args[0] != errno.EINTR:
                raise
        else:
            return


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

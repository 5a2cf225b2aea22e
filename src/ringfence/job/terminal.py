"""Gives the user's terminal to a command (raw mode, resizing, suspension), and restores it afterwards.

The terminal is restored however the command ends.
"""

import errno
import fcntl
import os
import re
import select
import signal
import struct
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ringfence.errors import SandboxFileError
from ringfence.job.command import command_ended, outcome_of_command, text_of
from ringfence.job.outcome import Outcome
from ringfence.job.screen_modes import ScreenModes
from ringfence.job.state import JobState
from ringfence.sandbox import Sandbox, SandboxProcess
from ringfence.sandbox.result import BoundedOutput

if TYPE_CHECKING:
    from ringfence.events import Emit

_KEPT_BYTES = 1024 * 1024
_PING_S = 5.0
_REDRAW_S = 0.2
_HANG_UP_S = 3.0
_SUSPENDED = "ringfence: suspended, with everything inside; `fg` resumes it"
_RECENTLY_ASKED_S = 2.0
_ANSWER_S = 1.0
_QUIET_S = 0.1
_ALL_ANSWERS_S = 10.0
_ASK, _ANSWER = b"\x1b[5n", b"\x1b[0n"
_CANCEL_SEQUENCE = b"\x18\x1b\\"
"""Ends an incomplete sequence of the program, which would otherwise swallow the next output."""
_CHUNK = 64 * 1024
_RETRIES = 10
_FORWARDED = ("COLORTERM", "COLORFGBG", "NO_COLOR", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")
_LONGEST_VARIABLE = 100
_SUSPEND = re.compile(rb"\x1a|\x1b\[122;5(?::1)?u|\x1b\[27;5;122~")
"""Ctrl-Z as terminals send it: the plain byte, by the protocol of kitty, and as xterm modifies keys."""
_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"


async def run_on_terminal(
    argv: tuple[str, ...],
    keyboard: int,
    screen: int,
    sandbox: Sandbox,
    emit: "Emit | None",
    *,
    env: Mapping[str, str] | None = None,
    suspends: bool = False,
    on_output: Callable[[], None] | None = None,
    name: str = "the command",
) -> Outcome:
    """Run a command on the terminal at `keyboard` and `screen`; Ctrl-C is sent to the command.

    Args:
        argv: Program and arguments.
        keyboard: Descriptor of the terminal, to read from.
        screen: The same, to write to.
        sandbox: The sandbox in which it runs.
        emit: Records its end; None: nothing is recorded.
        env: Variables for it.
        suspends: Whether Ctrl-Z suspends this process with it. Otherwise it is sent inside, where a shell handles it.
        on_output: Called when the command has printed something.
        name: Its name in the outcome's reason.
    """
    kept = BoundedOutput(_KEPT_BYTES)
    terminal = Terminal(keyboard, screen)
    environment = {**environment_of(os.environ), **(env or {})}
    async with sandbox.spawn(argv, tty=terminal.size, env=environment) as process:
        session = _TerminalSession(process, terminal, sandbox, suspends=suspends)
        try:
            async with terminal.entered(), anyio.create_task_group() as tasks:
                tasks.start_soon(session.type)
                tasks.start_soon(session.follow_signals)
                try:
                    async for chunk in process.stdout:
                        kept.add(chunk)
                        await session.show(chunk)
                        if on_output is not None:
                            on_output()
                except TerminalClosed:
                    await _hang_up(process)
                tasks.cancel_scope.cancel()
            end = await process.wait()
        except SandboxFileError as exc:
            return Outcome(JobState.FAILED, str(exc), 127)
    if emit is not None:
        await emit(command_ended(sandbox, argv, end, text_of(kept), ""))
    return outcome_of_command(end, name)


async def _hang_up(process: SandboxProcess) -> None:
    """Send a command SIGHUP because its terminal was closed, and kill it if it does not end."""
    with anyio.move_on_after(_HANG_UP_S):
        await process.signal(signal.SIGHUP)
        async for _chunk in process.stdout:
            pass
        return
    await process.kill()


class TerminalClosed(OSError):
    """The terminal was closed."""


class Terminal:
    """A terminal with its two ends.

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
    async def entered(self) -> AsyncIterator[None]:
        """Set raw mode; at the end restore the previous mode, and undo the program's changes to the screen."""
        self._before = termios.tcgetattr(self.keyboard)
        self.enter()
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.leave)

    def enter(self) -> None:
        """Set raw mode, and the modes that the program had set."""
        with suppress(termios.error):
            # Input that was typed ahead is kept for the program.
            _retry_interrupted(lambda: tty.setraw(self.keyboard, termios.TCSADRAIN))
            self._raw = termios.tcgetattr(self.keyboard)
        self._send(self._modes.redo())

    def leave(self) -> bytes:
        """Restore the terminal, and return input that was meant for the program. No other task may be reading."""
        self._send(_CANCEL_SEQUENCE)
        is_asked_lately = time.monotonic() - self._asked_at < _RECENTLY_ASKED_S
        answers = self._take_answers() if is_asked_lately else b""
        self._send(self._modes.undo())
        with suppress(termios.error):
            _retry_interrupted(lambda: termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._before))
        return answers

    def typed(self) -> bytes | None:
        """Read available input; None: another task has read it. Empty: the terminal is gone."""
        try:
            ready, _, _ = select.select([self.keyboard], [], [], 0)
            return os.read(self.keyboard, _CHUNK) if ready else None
        except OSError:
            return b""

    def is_entered(self) -> bool:
        """Whether the terminal is as `enter` left it, which a shell changes while this process is stopped."""
        try:
            return termios.tcgetattr(self.keyboard) == self._raw
        except termios.error:
            return True  # the terminal is gone

    def show(self, output: bytes) -> None:
        """Write the program's output.

        Raises:
            TerminalClosed: The terminal is gone.
        """
        self._modes.see(output)
        if self._modes.is_asked:
            self._modes.is_asked = False
            self._asked_at = time.monotonic()
        try:
            _write_all(self._screen, output)
        except OSError as exc:
            raise TerminalClosed from exc

    def write_line(self, line: str) -> None:
        """Write a line of ringfence itself while the terminal is restored."""
        self._send(f"\r\n{line}\r\n".encode())

    def _take_answers(self) -> bytes:
        """Read the terminal's answers to the program, which the shell would take for typed input.

        The program may have sent the same query as this function, so the first answer to it need not be the last of all.
        """
        self._send(_ASK)
        seen = b""
        until = time.monotonic() + _ALL_ANSWERS_S
        while (left := until - time.monotonic()) > 0:
            timeout_s = _QUIET_S if _ANSWER in seen else _ANSWER_S
            ready, _, _ = select.select([self.keyboard], [], [], min(left, timeout_s))
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


class _TerminalSession:
    """A command on the user's terminal."""

    def __init__(
        self, process: SandboxProcess, terminal: Terminal, sandbox: Sandbox, *, suspends: bool
    ) -> None:
        self._process = process
        self._terminal = terminal
        self._sandbox = sandbox
        self._typed = KeyboardInput() if suspends else None
        self._screen = anyio.Lock()
        self._reading = anyio.Lock()
        self._sending = anyio.Lock()

    async def show(self, chunk: bytes) -> None:
        """Show the command's output."""
        async with self._screen:
            await anyio.to_thread.run_sync(self._terminal.show, chunk)

    async def type(self) -> None:
        """Send typed input to the command until the terminal is gone."""
        while True:
            await anyio.wait_readable(self._terminal.keyboard)
            async with self._reading:
                typed = self._terminal.typed()
            if typed is None:
                continue
            if not typed:
                await self._process.signal(signal.SIGHUP)
                return
            first, *more = self._typed.split(typed) if self._typed is not None else [typed]
            await self._send(first)
            for piece in more:
                await self._suspend()
                await self._send(piece)

    async def _send(self, typed: bytes) -> None:
        async with self._sending:
            await self._process.stdin.send(typed)

    async def follow_signals(self) -> None:
        """Forward a new size; suspend and resume the command with this process."""
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT) as signals:
            async for number in signals:
                if number == signal.SIGWINCH:
                    await self._process.resize(*self._terminal.size)
                elif number == signal.SIGTSTP:
                    await self._suspend()
                elif not self._terminal.is_entered():  # stopped by SIGSTOP, which no process is notified of
                    await self._resume()

    async def _suspend(self) -> None:
        async with self._screen, self._reading:
            await self._process.signal(signal.SIGSTOP)
            with anyio.move_on_after(_PING_S):
                await self._sandbox.session.ping()
            answers = await anyio.to_thread.run_sync(self._terminal.leave)
            self._terminal.write_line(_SUSPENDED)
            stop()
        await self._resume()
        if answers:
            await self._send(answers)

    async def _resume(self) -> None:
        async with self._screen:
            await anyio.to_thread.run_sync(self._terminal.enter)
        await self._process.signal(signal.SIGCONT)
        # Every program redraws its screen for a new size.
        rows, columns = self._terminal.size
        await self._process.resize(max(1, rows - 1), columns)
        await anyio.sleep(_REDRAW_S)
        await self._process.resize(*self._terminal.size)


def stop() -> None:
    """Stop this process and its group, as a terminal does, until it is continued; not if no shell could continue it."""
    ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(0, signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, ours)


def environment_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that describe the terminal to a program inside."""
    found = {
        name: environ[name]
        for name in _FORWARDED
        if len(environ.get(name, "")) in range(1, _LONGEST_VARIABLE)
    }
    return {"TERM": environ.get("TERM", "xterm"), **found}


def _retry_interrupted(act: Callable[[], object]) -> None:
    """Call `act` again if a signal, such as SIGCONT, interrupts it."""
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


class KeyboardInput:
    """Splits input at each Ctrl-Z, except within pasted text."""

    def __init__(self) -> None:
        self._is_pasting = False

    def split(self, data: bytes) -> list[bytes]:
        """Return the input before, between and after each Ctrl-Z; one piece if there is none."""
        pieces = [b""]
        while data:
            mark = _PASTE_ENDS if self._is_pasting else _PASTE_BEGINS
            part, found, data = data.partition(mark)
            if self._is_pasting:
                pieces[-1] += part + found
            else:
                first, *more = _SUSPEND.split(part)
                pieces[-1] += first
                pieces += more
                pieces[-1] += found
            self._is_pasting = self._is_pasting != bool(found)
        return pieces

"""A command of the user's on the user's own terminal: raw mode, resize, everything typed goes inside."""

import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence.errors import SandboxFileError
from ringfence.job.command import command_ended, outcome_of_command, text_of
from ringfence.job.outcome import Outcome
from ringfence.job.state import JobState
from ringfence.job.terminal.device import Terminal, TerminalClosed, environment_of, stop
from ringfence.job.terminal.typed import Typed
from ringfence.sandbox import Sandbox, SandboxProcess
from ringfence.sandbox.result import BoundedOutput

if TYPE_CHECKING:
    from ringfence.job.request import Emit

_KEPT_BYTES = 1024 * 1024
_HEARD_S = 5.0
_REDRAW_S = 0.2
_HANG_UP_S = 3.0
_SUSPENDED = "ringfence: suspended, with everything inside; `fg` goes on"


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
) -> Outcome:
    """Run a command with the terminal behind `keyboard` and `screen` as its own; Ctrl-C goes inside.

    Args:
        argv: Program and arguments.
        keyboard: Descriptor of the terminal, to read from.
        screen: The same, to write to.
        sandbox: Where it runs.
        emit: Records its end; None: somebody else keeps a record.
        env: Variables for it.
        suspends: Whether Ctrl-Z suspends us with it. Otherwise it goes inside, where a shell acts on it.
        on_output: Called when the command has said something.
    """
    kept = BoundedOutput(_KEPT_BYTES)
    terminal = Terminal(keyboard, screen)
    environment = {**environment_of(os.environ), **(env or {})}
    async with sandbox.spawn(argv, tty=terminal.size, env=environment) as process:
        held = _Held(process, terminal, sandbox, suspends=suspends)
        try:
            async with terminal.taken(), anyio.create_task_group() as tasks:
                tasks.start_soon(held.type)
                tasks.start_soon(held.follow_signals)
                try:
                    async for chunk in process.stdout:
                        kept.add(chunk)
                        await held.show(chunk)
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
    return outcome_of_command(end)


async def _hang_up(process: SandboxProcess) -> None:
    """Tell a command that its terminal was closed; one that goes on is killed."""
    with anyio.move_on_after(_HANG_UP_S):
        await process.signal(signal.SIGHUP)
        async for _chunk in process.stdout:
            pass
        return
    await process.kill()


class _Held:
    """A command on the user's terminal."""

    def __init__(
        self, process: SandboxProcess, terminal: Terminal, sandbox: Sandbox, *, suspends: bool
    ) -> None:
        self._process = process
        self._terminal = terminal
        self._sandbox = sandbox
        self._typed = Typed() if suspends else None
        self._screen = anyio.Lock()
        self._reading = anyio.Lock()
        self._sending = anyio.Lock()

    async def show(self, chunk: bytes) -> None:
        """What it says."""
        async with self._screen:
            await anyio.to_thread.run_sync(self._terminal.show, chunk)

    async def type(self) -> None:
        """What is typed, until the terminal is gone."""
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
        """A new size; being stopped, and going on."""
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT) as signals:
            async for number in signals:
                if number == signal.SIGWINCH:
                    await self._process.resize(*self._terminal.size)
                elif number == signal.SIGTSTP:
                    await self._suspend()
                elif not self._terminal.is_entered():  # stopped by SIGSTOP, which nobody is told of
                    await self._go_on()

    async def _suspend(self) -> None:
        async with self._screen, self._reading:
            await self._process.signal(signal.SIGSTOP)
            with anyio.move_on_after(_HEARD_S):
                await self._sandbox.session.ping()
            answers = await anyio.to_thread.run_sync(self._terminal.leave)
            self._terminal.say(_SUSPENDED)
            stop()
        await self._go_on()
        if answers:
            await self._send(answers)

    async def _go_on(self) -> None:
        async with self._screen:
            await anyio.to_thread.run_sync(self._terminal.enter)
        await self._process.signal(signal.SIGCONT)
        # A new size is what every program draws all anew for.
        rows, columns = self._terminal.size
        await self._process.resize(max(1, rows - 1), columns)
        await anyio.sleep(_REDRAW_S)
        await self._process.resize(*self._terminal.size)

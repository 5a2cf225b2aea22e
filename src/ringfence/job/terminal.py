"""A command of the user's on the user's own terminal: raw mode, resize, everything typed goes inside."""

import fcntl
import os
import signal
import struct
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence.errors import SandboxFileError
from ringfence.job.command import command_ended, outcome_of_command
from ringfence.job.outcome import Outcome
from ringfence.job.state import JobState
from ringfence.sandbox import Sandbox, SandboxProcess
from ringfence.sandbox.result import BoundedOutput

if TYPE_CHECKING:
    from ringfence.job.request import Emit

_KEPT_BYTES = 1024 * 1024
_CHUNK = 64 * 1024


async def run_on_terminal(
    argv: tuple[str, ...], keyboard: int, screen: int, sandbox: Sandbox, emit: "Emit | None"
) -> Outcome:
    """Run a command with the terminal behind `keyboard` and `screen` as its own; Ctrl-C goes inside."""
    kept = BoundedOutput(_KEPT_BYTES)
    environment = {"TERM": os.environ.get("TERM", "xterm")}
    async with sandbox.spawn(argv, tty=_size(screen), env=environment) as process:
        with _raw(keyboard):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_type, process, keyboard)
                tasks.start_soon(_follow_size, process, screen)
                async for chunk in process.stdout:
                    kept.add(chunk)
                    await anyio.to_thread.run_sync(_write_all, screen, chunk)
                tasks.cancel_scope.cancel()
        try:
            end = await process.wait()
        except SandboxFileError as exc:
            return Outcome(JobState.FAILED, str(exc), 127)
    if emit is not None:
        await emit(command_ended(sandbox, argv, end, kept, BoundedOutput(0)))
    return outcome_of_command(end)


async def _type(process: SandboxProcess, keyboard: int) -> None:
    while True:
        await anyio.wait_readable(keyboard)
        try:
            typed = os.read(keyboard, _CHUNK)
        except OSError:  # the terminal is gone
            typed = b""
        if not typed:
            return
        await process.stdin.send(typed)


async def _follow_size(process: SandboxProcess, screen: int) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        async for _number in changes:
            await process.resize(*_size(screen))


def _size(screen: int) -> tuple[int, int]:
    rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(screen, termios.TIOCGWINSZ, b"\0" * 8))
    return rows or 24, columns or 80


@contextmanager
def _raw(keyboard: int) -> Iterator[None]:
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSADRAIN)  # what was typed ahead is for the shell
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]

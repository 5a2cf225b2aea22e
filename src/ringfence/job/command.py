"""Runs the user's own command as a run's work: passes its streams through and records its end."""

import os
import select
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import anyio
import anyio.to_thread

from ringfence.errors import SandboxFileError
from ringfence.events import CommandEnded
from ringfence.frozen import frozen
from ringfence.job.outcome import Outcome
from ringfence.job.state import JobState
from ringfence.sandbox import ExecResult, ProcessEnd, Sandbox, SandboxProcess
from ringfence.sandbox.protocol.command import OutputStream
from ringfence.sandbox.result import BoundedOutput

if TYPE_CHECKING:
    from ringfence.events import Emit

_KEPT_BYTES = 256 * 1024
_CHUNK = 64 * 1024
_BROKEN_PIPE = 128 + signal.SIGPIPE
_NOT_STARTED = ProcessEnd(127, None, "exit", 0.0)


@frozen
class Stdio:
    """The user's own streams. If `stdin` is None, the command gets an empty one."""

    stdin: BinaryIO | None
    stdout: BinaryIO
    stderr: BinaryIO


def open_null() -> BinaryIO:
    """Open a replacement for a standard stream that ringfence was started without."""
    return open(os.devnull, "wb")  # noqa: PTH123 - the caller closes it


async def run_command(argv: tuple[str, ...], stdio: Stdio, sandbox: Sandbox, emit: "Emit | None") -> Outcome:
    """Run a command with its streams passed through; record the head and tail of its output.

    Without `emit`, nothing is recorded.
    """
    kept_out, kept_err = BoundedOutput(_KEPT_BYTES), BoundedOutput(_KEPT_BYTES)
    end = _NOT_STARTED
    out = _Copy(stdio.stdout, kept_out)
    err = _Copy(stdio.stderr, kept_err)
    async with sandbox.spawn(argv) as process, anyio.create_task_group() as feeding:
        feeding.start_soon(_feed, process, stdio.stdin)
        async with anyio.create_task_group() as copying:
            copying.start_soon(out.follow, process, process.stdout)
            copying.start_soon(err.follow, process, process.stderr)
        try:
            end = await process.wait()
        except SandboxFileError as exc:
            end = ProcessEnd(127 if exc.errno_name == "ENOENT" else 126, None, "exit", 0.0)
            await err.write(f"ringfence: {exc}\n".encode())
        feeding.cancel_scope.cancel()
    if emit is not None:
        await emit(command_ended(sandbox, argv, end, text_of(kept_out), text_of(kept_err)))
    if out.is_lost or err.is_lost:
        return Outcome(JobState.FAILED, "nobody reads its output any more", _BROKEN_PIPE)
    return outcome_of_command(end)


def command_ended(
    sandbox: Sandbox, argv: Sequence[str], end: ProcessEnd | ExecResult, stdout: str, stderr: str
) -> CommandEnded:
    """The event that records a command's end."""
    return CommandEnded(
        sandbox_id=sandbox.id,
        argv=list(argv),
        exit_code=end.exit_code,
        ended_by=end.ended_by,
        duration_ms=round(end.duration_s * 1000, 3),
        stdout=stdout,
        stderr=stderr,
    )


def text_of(kept: BoundedOutput) -> str:
    """The parts of a command's output that were kept."""
    return kept.value().decode("utf-8", "replace")


class _Copy:
    """Copies one of the command's streams to the user's. Kills a command whose reader has left."""

    def __init__(self, target: BinaryIO, kept: BoundedOutput) -> None:
        self.is_lost = False
        self._target = target
        self._kept = kept

    async def follow(self, process: SandboxProcess, source: OutputStream) -> None:
        async for chunk in source:
            self._kept.add(chunk)
            if not self.is_lost:
                await self.write(chunk)
                if self.is_lost:
                    await process.signal(signal.SIGKILL)

    async def write(self, data: bytes) -> None:
        def write() -> None:
            self._target.write(data)
            self._target.flush()

        try:
            await anyio.to_thread.run_sync(write)
        except OSError:  # a pipe without a reader, a full disk
            self.is_lost = True


async def _feed(process: SandboxProcess, source: BinaryIO | None) -> None:
    """Send the user's stdin to the command until its end."""
    if source is not None:
        descriptor = source.fileno()
        # Regular files and /dev/null are always ready, and epoll does not accept them.
        is_pollable = _is_pollable(descriptor)
        while True:
            if is_pollable:
                await anyio.wait_readable(descriptor)
            chunk = await anyio.to_thread.run_sync(os.read, descriptor, _CHUNK)
            if not chunk:
                break
            await process.stdin.send(chunk)
    await process.stdin.aclose()


def _is_pollable(descriptor: int) -> bool:
    with select.epoll() as probe:
        try:
            probe.register(descriptor, select.EPOLLIN)
        except PermissionError:
            return False
    return True


def outcome_of_command(end: ProcessEnd, name: str = "the command") -> Outcome:
    """The outcome of the user's own command.

    Args:
        end: How it ended.
        name: Its name in the reason.
    """
    if end.ended_by == "exit":
        state = JobState.SUCCEEDED if end.exit_code == 0 else JobState.FAILED
        return Outcome(state, f"{name} exited with code {end.exit_code}", end.exit_code)
    if end.ended_by in ("memory", "pids", "disk", "output"):
        advice = "" if end.ended_by == "output" else f"; raise it with --{end.ended_by}"
        reason = f"{name} was ended by the limit on {end.ended_by}{advice}"
        return Outcome(JobState.LIMIT, reason, end.exit_code)
    return Outcome(JobState.FAILED, f"{name} was ended by {end.ended_by}", end.exit_code)

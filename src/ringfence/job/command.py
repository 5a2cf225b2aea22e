"""A run whose inside is one command of the user's: `exec`, or a shell on a terminal."""

import os
import stat
from dataclasses import dataclass
from typing import BinaryIO

import anyio
import anyio.to_thread

from ringfence.errors import SandboxFileError
from ringfence.events import CommandEnded
from ringfence.job.outcome import Outcome
from ringfence.job.request import Emit
from ringfence.job.state import JobState
from ringfence.sandbox import ProcessEnd, Sandbox, SandboxProcess
from ringfence.sandbox.process import OutputStream
from ringfence.sandbox.result import BoundedOutput

_KEPT_BYTES = 256 * 1024
_CHUNK = 64 * 1024
_NOT_STARTED = ProcessEnd(127, None, "exit", 0.0)


@dataclass(frozen=True)
class Stdio:
    """The user's own streams. `stdin` None gives the command an empty one."""

    stdin: BinaryIO | None
    stdout: BinaryIO
    stderr: BinaryIO


async def run_command(argv: tuple[str, ...], stdio: Stdio, sandbox: Sandbox, emit: Emit) -> Outcome:
    """Run a command with its streams passed through; keep the head and tail of its output in the record."""
    kept_out, kept_err = BoundedOutput(_KEPT_BYTES), BoundedOutput(_KEPT_BYTES)
    end = _NOT_STARTED
    async with sandbox.spawn(argv) as process, anyio.create_task_group() as feeding:
        feeding.start_soon(_feed, process, stdio.stdin)
        async with anyio.create_task_group() as copying:
            copying.start_soon(_copy, process.stdout, stdio.stdout, kept_out)
            copying.start_soon(_copy, process.stderr, stdio.stderr, kept_err)
        try:
            end = await process.wait()
        except SandboxFileError as exc:
            end = ProcessEnd(127 if exc.errno_name == "ENOENT" else 126, None, "exit", 0.0)
            await _write(stdio.stderr, f"ringfence: {exc}\n".encode())
        feeding.cancel_scope.cancel()
    await emit(
        CommandEnded(
            sandbox_id=sandbox.id,
            argv=list(argv),
            exit_code=end.exit_code,
            ended_by=end.ended_by,
            duration_ms=round(end.duration_s * 1000, 3),
            stdout=kept_out.value().decode("utf-8", "replace"),
            stderr=kept_err.value().decode("utf-8", "replace"),
        )
    )
    return outcome_of_command(end)


async def _copy(source: OutputStream, target: BinaryIO, kept: BoundedOutput) -> None:
    async for chunk in source:
        kept.add(chunk)
        await _write(target, chunk)


async def _write(target: BinaryIO, data: bytes) -> None:
    def write() -> None:
        target.write(data)
        target.flush()

    await anyio.to_thread.run_sync(write)


async def _feed(process: SandboxProcess, source: BinaryIO | None) -> None:
    """Send what the user's stdin holds, until its end."""
    if source is not None:
        descriptor = source.fileno()
        # A regular file is always ready, and epoll refuses it.
        is_pollable = not stat.S_ISREG(os.fstat(descriptor).st_mode)
        while True:
            if is_pollable:
                await anyio.wait_readable(descriptor)
            chunk = await anyio.to_thread.run_sync(os.read, descriptor, _CHUNK)
            if not chunk:
                break
            await process.stdin.send(chunk)
    await process.stdin.aclose()


def outcome_of_command(end: ProcessEnd) -> Outcome:
    """What the end of the user's own command means."""
    if end.ended_by == "exit":
        state = JobState.SUCCEEDED if end.exit_code == 0 else JobState.FAILED
        return Outcome(state, f"the command exited with code {end.exit_code}", end.exit_code)
    if end.ended_by in ("memory", "pids", "disk", "output"):
        return Outcome(JobState.LIMIT, f"the command was ended by the limit on {end.ended_by}", end.exit_code)
    return Outcome(JobState.FAILED, f"the command was ended by {end.ended_by}", end.exit_code)

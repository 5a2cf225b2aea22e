"""A fence that is a host process whose pipes lead to the guest."""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import anyio
from anyio.abc import ByteStream, Process

from ringfence.process import kill_group, start_process
from ringfence.sandbox.base import EndReason, Facts, Fence
from ringfence.sandbox.protocol.stream import pipe_stream

_STDERR_BYTES = 4096


@dataclass(eq=False)
class ProcessFence(Fence):
    """A running process whose stdin and stdout lead to the guest; made by `start`."""

    facts: Facts
    stream: ByteStream
    process: Process
    stderr_fd: int
    called: str
    leave_s: float
    stderr: str = ""
    """The end of the stderr that was read from the process or the guest's interpreter."""
    _is_killed: bool = False
    _killing: anyio.Lock = field(default_factory=anyio.Lock)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        facts: Facts,
        *,
        called: str,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        leave_s: float = 0.0,
    ) -> Self:
        """Start the process.

        Args:
            argv: Its command.
            facts: Facts of the fence.
            called: Name of the process in messages.
            env: Its whole environment; None inherits ours.
            pass_fds: Descriptors it inherits, besides those of the stream.
            leave_s: How long it may take to exit once its stdin has ended, before it is killed.

        Raises:
            InfrastructureFault: It cannot be started.
        """
        stream, stdin, stdout = pipe_stream()
        stderr_fd, stderr = os.pipe()
        os.set_blocking(stderr_fd, False)
        try:
            process = await start_process(
                argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, pass_fds=pass_fds
            )
        except BaseException:
            os.close(stderr_fd)
            await stream.aclose()
            raise
        finally:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
        return cls(facts, stream, process, stderr_fd, called, leave_s)

    async def wait(self) -> EndReason:
        """Wait until the process ends."""
        await self.process.wait()
        if self._is_killed:
            return EndReason("killed", "it was closed", self.stderr)
        self._read_stderr()
        code = self.process.returncode or 0
        if code < 0:
            return EndReason("killed", f"killed from outside by {_signal_name(-code)}", self.stderr)
        return EndReason("exited", f"{self.called} ended with code {code}", self.stderr)

    def _read_stderr(self) -> None:
        with suppress(BlockingIOError):
            text = self.stderr + os.read(self.stderr_fd, _STDERR_BYTES).decode("utf-8", "replace")
            self.stderr = text.strip()[-_STDERR_BYTES:]

    async def kill(self) -> str | None:
        """Close stdin, so that the guest kills what it started and exits; kill a process that does not end in time."""
        is_first, self._is_killed = not self._is_killed, True
        async with self._killing:  # a second caller waits until it is done
            if is_first:
                with anyio.CancelScope(shield=True):  # else a second caller returns with something alive
                    await self._kill()
        return None

    async def _kill(self) -> None:
        """Kill the process, and free the resources of the fence; called once."""
        self._read_stderr()
        await self.stream.send_eof()
        with anyio.move_on_after(self.leave_s):
            await self.process.wait()
        await kill_group(self.process, grace_s=0.0)
        os.close(self.stderr_fd)
        await self.stream.aclose()


def _signal_name(number: int) -> str:
    with suppress(ValueError):  # most of the real-time signals have none
        return signal.Signals(number).name
    return f"signal {number}"

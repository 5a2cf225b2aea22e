"""No fence at all: the guest runs on the host as the caller. Chosen only by name."""

import os
import sys
from pathlib import Path

import anyio
from anyio.abc import ByteStream, Process

from ringfence.process import start_process
from ringfence.sandbox.base import Backend, EndReason, Facts, Fence, Launch, Traits
from ringfence.sandbox.protocol.stream import pipe_stream
from ringfence.sandbox.spec import SandboxSpec

_LEAVE_S = 8.0
"""The guest itself takes up to 5 s to kill what it started."""


class HostBackend(Backend):
    """Runs commands on the bare host, with the caller's rights, network and environment."""

    name = "host"
    traits = Traits(
        is_fence=False,
        unenforced=dict.fromkeys(("memory", "cpus", "pids"), "the host backend has no fence"),
    )

    async def unavailable(self, spec: SandboxSpec | None = None) -> str | None:  # noqa: ARG002 -- for all alike
        """The host is always there."""
        return None

    async def start(self, launch: Launch) -> "HostFence":
        """Start the guest as an ordinary process in a session of its own."""
        stream, guest_stdin, guest_stdout = pipe_stream()
        try:
            process = await start_process(
                [sys.executable, *launch.argv], stdin=guest_stdin, stdout=guest_stdout, stderr=None
            )
        except BaseException:
            await stream.aclose()
            raise
        finally:
            os.close(guest_stdin)
            os.close(guest_stdout)
        facts = Facts(
            backend="host",
            enforced={"memory": "soft", "pids": "soft", "cpus": "none", "disk": "soft"},
            is_fence=False,
            home=str(Path.home()),
            environment=dict(os.environ),
            watched_paths=(str(launch.placement.workspace),) if launch.placement.workspace else (),
            notes=("NO FENCE: commands run on this machine with your rights",),
        )
        return HostFence(process, stream, facts)


class HostFence(Fence):
    """A guest on the bare host."""

    def __init__(self, process: Process, stream: ByteStream, facts: Facts) -> None:
        self.facts = facts
        self.stream = stream
        self._process = process
        self._is_killed = False

    async def wait(self) -> EndReason:
        """Wait until the guest is gone."""
        await self._process.wait()
        if self._is_killed:
            return EndReason("killed", "it was closed")
        return EndReason("exited", f"the guest ended with code {self._process.returncode}")

    async def kill(self) -> str | None:
        """Close the stream: the guest then kills everything it started and ends. One that does not is killed."""
        if self._is_killed:
            return None
        self._is_killed = True
        await self.stream.send_eof()
        with anyio.move_on_after(_LEAVE_S):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self.stream.aclose()
        return None

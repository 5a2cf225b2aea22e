"""No fence at all: the guest runs on the host as the caller. Chosen only by name."""

import os
import sys
from pathlib import Path

import anyio
from anyio.abc import Process

from ringfence.process import start_process
from ringfence.sandbox.base import Backend, EndReason, Facts, Fence, Launch, Traits
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
        guest_stdin, write_fd = os.pipe()
        read_fd, guest_stdout = os.pipe()
        for descriptor in (read_fd, write_fd):
            os.set_blocking(descriptor, False)
        try:
            process = await start_process(
                [sys.executable, *launch.argv], stdin=guest_stdin, stdout=guest_stdout, stderr=None
            )
        except BaseException:
            os.close(read_fd)
            os.close(write_fd)
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
        return HostFence(process, read_fd, write_fd, facts)


class HostFence(Fence):
    """A guest on the bare host."""

    def __init__(self, process: Process, read_fd: int, write_fd: int, facts: Facts) -> None:
        self.facts = facts
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._process = process
        self._is_killed = False

    async def wait(self) -> EndReason:
        """Wait until the guest is gone."""
        await self._process.wait()
        if self._is_killed:
            return EndReason("killed", "it was closed")
        return EndReason("exited", f"the guest ended with code {self._process.returncode}")

    async def kill(self) -> None:
        """Close the stream: the guest then kills everything it started and ends. One that does not is killed."""
        if self._is_killed:
            return
        self._is_killed = True
        os.close(self.write_fd)
        with anyio.move_on_after(_LEAVE_S):
            await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        os.close(self.read_fd)

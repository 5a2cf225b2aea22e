"""Runs the guest on the bare host as the caller, without a fence. Chosen only by name."""

import os
import sys
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.sandbox.base import Backend, Facts, Fence, Launch, Traits
from ringfence.sandbox.process_fence import ProcessFence
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

    async def unavailable(self, spec: SandboxSpec | None = None) -> RingfenceError | None:  # noqa: ARG002 -- for all alike
        """Return None, as the host is always available."""
        return None

    async def start(self, launch: Launch) -> Fence:
        """Start the guest as an ordinary process in a new session."""
        facts = Facts(
            backend="host",
            enforced={"memory": "soft", "pids": "soft", "cpus": "none", "disk": "soft"},
            is_fence=False,
            home=str(Path.home()),
            environment=dict(os.environ),
            watched_paths=(str(launch.placement.workspace),) if launch.placement.workspace else (),
            notes=("NO FENCE: commands run on this machine with your rights",),
        )
        return await ProcessFence.start(
            [sys.executable, *launch.argv], facts, called="the guest", leave_s=_LEAVE_S
        )

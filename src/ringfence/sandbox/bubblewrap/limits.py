"""Puts a fence under its limits: a cgroup of ours, the user's systemd, or softly the guest's watchdog."""

import os
import platform

import anyio

from ringfence.errors import InfrastructureFault, SandboxStartFailed
from ringfence.frozen import frozen
from ringfence.process import run_process
from ringfence.sandbox.base import Enforcement, Launch
from ringfence.sandbox.cgroup import (
    Cgroup,
    CgroupPlan,
    adopt,
    create,
    launch_environment,
    launch_prefix,
    plan,
)
from ringfence.sandbox.enforcement import Lacking, enforcement

_SCOPE_S = 5.0


@frozen
class Limits:
    """How the limits of one launch will be enforced."""

    enforced: dict[str, Enforcement]
    """`memory`, `cpus`, `pids`, `disk`: each `kernel`, `soft` or `none`."""
    process_limit: int | None
    """RLIMIT_NPROC of every command, where that enforces `pids`."""
    _plan: CgroupPlan
    _sandbox_id: str
    _memory: int | None
    _cpus: float | None
    _pids: int | None

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before the fence's command."""
        if self._plan.kind != "systemd":
            return ()
        return launch_prefix(self._sandbox_id, memory_bytes=self._memory, cpus=self._cpus, pids=self._pids)

    @property
    def environment(self) -> dict[str, str]:
        """What the prefix needs in its environment."""
        return launch_environment(os.environ) if self.prefix else {}

    def make(self) -> Cgroup | None:
        """The cgroup to put the fence's first process in, before it forks."""
        if self._plan.kind not in ("v1", "v2"):
            return None
        return create(
            self._sandbox_id, memory_bytes=self._memory, cpus=self._cpus, pids=self._pids, where=self._plan
        )

    async def find(self, pid: int) -> Cgroup | None:
        """The cgroup that systemd made around a started process; its limits are read back.

        Raises:
            SandboxStartFailed: It did not appear, or its limits are not as asked.
        """
        if self._plan.kind != "systemd":
            return None
        with anyio.move_on_after(_SCOPE_S):
            while True:
                try:
                    return adopt(
                        self._sandbox_id, pid, memory_bytes=self._memory, cpus=self._cpus, pids=self._pids
                    )
                except SandboxStartFailed:
                    await anyio.sleep(0.01)
        return adopt(self._sandbox_id, pid, memory_bytes=self._memory, cpus=self._cpus, pids=self._pids)


def _counts_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts the processes of one user namespace: since Linux 5.14, before that all of a user's."""
    numbers = platform.release().split(".")
    return tuple(int(number) for number in numbers[:2] if number.isdigit()) >= (5, 14)


async def find_plan() -> CgroupPlan:
    """The best way of this machine; the user's systemd only if it makes a scope when asked."""
    found = plan(scopes=True)
    if found.kind == "systemd" and not await _makes_scopes():
        return plan(scopes=False)
    return found


_scopes: list[bool] = []


async def _makes_scopes() -> bool:
    """Asked once: a systemd that is installed may not run for this user (ssh without linger, containers)."""
    if not _scopes:
        try:
            done = await run_process(
                [*launch_prefix("probe", memory_bytes=None, cpus=None, pids=None), "true"], timeout_s=5.0
            )
            _scopes.append(done.ok)
        except InfrastructureFault:
            _scopes.append(False)
    return _scopes[0]


def lacking_limits(found: CgroupPlan) -> Lacking:
    """What the kernel does not enforce by a plan, and why."""
    names = [name for name, can in found.can.items() if not can]
    if _enforces_by_rlimit(found):
        names.remove("pids")
    return dict.fromkeys(names, found.reason)


def _enforces_by_rlimit(found: CgroupPlan) -> bool:
    return not found.can["pids"] and _counts_by_namespace()


async def plan_limits(launch: Launch, found: CgroupPlan | None = None) -> Limits:
    """Decide how each limit of a launch is enforced.

    Args:
        launch: What is started.
        found: What the machine can do; None looks.

    Raises:
        PolicyRefused: As `enforcement`.
    """
    spec, found = launch.spec, found or await find_plan()
    enforced = enforcement(spec, lacking_limits(found))
    by_rlimit = _enforces_by_rlimit(found)
    return Limits(
        enforced,
        spec.pids if by_rlimit else None,
        found,
        launch.sandbox_id,
        spec.memory if found.can["memory"] else None,
        spec.cpus if found.can["cpus"] else None,
        spec.pids if found.can["pids"] else None,
    )

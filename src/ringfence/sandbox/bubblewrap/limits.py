"""Applies a fence's limits through its own control group, the user's systemd, or (softly) the guest's watchdog."""

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
    GroupLimits,
    adopt,
    create,
    launch_environment,
    launch_prefix,
    plan,
)
from ringfence.sandbox.enforcement import Unenforced, enforcement

_SCOPE_S = 5.0


@frozen
class Limits:
    """How the limits of one launch are enforced."""

    enforced: dict[str, Enforcement]
    """`memory`, `cpus`, `pids`, `disk`: each `kernel`, `soft` or `none`."""
    process_limit: int | None
    """RLIMIT_NPROC of every command, where that enforces `pids`."""
    _plan: CgroupPlan
    _sandbox_id: str
    _group: GroupLimits

    @property
    def prefix(self) -> tuple[str, ...]:
        """Arguments before the fence's command that make systemd start it in a scope."""
        return launch_prefix(self._sandbox_id, self._group) if self._plan.kind == "systemd" else ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that the prefix needs."""
        return launch_environment(os.environ) if self.prefix else {}

    def make(self) -> Cgroup | None:
        """The control group for the fence's first process, before it forks; None if none, or systemd makes it."""
        return create(self._sandbox_id, self._group, self._plan.places) if self._plan.places else None

    async def find(self, pid: int) -> Cgroup | None:
        """The control group that systemd made around a started process, after its limits are read back.

        Raises:
            SandboxStartFailed: It did not appear, or its limits differ from those requested.
        """
        if self._plan.kind != "systemd":
            return None
        deadline = anyio.current_time() + _SCOPE_S
        while True:
            try:
                return adopt(self._sandbox_id, pid, self._group)
            except SandboxStartFailed:
                if anyio.current_time() > deadline:
                    raise
                await anyio.sleep(0.01)


_scopes: list[bool] = []


async def find_plan() -> CgroupPlan:
    """The best way to enforce limits on this machine; the user's systemd only if it can make a scope.

    This is tested once: an installed systemd may not run for this user (ssh without linger, containers).
    """
    found = plan(scopes=os.getuid() != 0)  # root has the control groups themselves
    if found.kind != "systemd":
        return found
    if not _scopes:
        probe = launch_prefix("probe", GroupLimits())
        try:
            _scopes.append((await run_process([*probe, "true"], timeout_s=5.0)).ok)
        except InfrastructureFault:
            _scopes.append(False)
    return found if _scopes[0] else plan(scopes=False)


def lacking_limits(found: CgroupPlan) -> Unenforced:
    """The limits that the kernel does not enforce with this plan, and why."""
    return {
        name: found.reason
        for name, can in found.can.items()
        if not can and not (name == "pids" and _enforces_by_rlimit(found))
    }


def _enforces_by_rlimit(found: CgroupPlan) -> bool:
    """Whether RLIMIT_NPROC limits `pids`: since Linux 5.14 it counts the processes of one user namespace only."""
    numbers = platform.release().split(".")[:2]
    return not found.can["pids"] and tuple(int(number) for number in numbers if number.isdigit()) >= (5, 14)


async def plan_limits(launch: Launch, found: CgroupPlan | None = None) -> Limits:
    """Decide how each limit of a launch is enforced.

    Args:
        launch: The start of the sandbox.
        found: The plan for this machine; None makes one.

    Raises:
        PolicyRefused: As `enforcement`.
    """
    spec, found = launch.spec, found or await find_plan()
    group = GroupLimits(
        spec.memory if found.can["memory"] else None,
        spec.cpus if found.can["cpus"] else None,
        spec.pids if found.can["pids"] else None,
    )
    process_limit = spec.pids if _enforces_by_rlimit(found) else None
    return Limits(enforcement(spec, lacking_limits(found)), process_limit, found, launch.sandbox_id, group)

"""Which limits an engine keeps for a container, and what happens to the others."""

from ringfence.errors import PolicyRefused
from ringfence.frozen import frozen
from ringfence.sandbox.base import Enforcement
from ringfence.sandbox.docker.facts import EngineFacts
from ringfence.sandbox.spec import SandboxSpec

_SOFT: dict[str, Enforcement] = {"memory": "soft", "pids": "soft", "cpus": "none"}
SENTRY_TASKS = 2000
"""gVisor's kernel is itself a process of the container and counts its threads against `pids`; short of them it
crashes (measured: at 100 under 32 commands at once). So the engine's limit is that much wider there."""


@frozen
class ContainerLimits:
    """How the limits of one container are enforced."""

    enforced: dict[str, Enforcement]
    memory: int | None
    """Given to the engine; None where it cannot keep it. So are the next ones."""
    cpus: float | None
    pids: int | None
    cpuset: str | None
    process_limit: int | None
    """RLIMIT_NPROC of every command, where that enforces `pids`."""


def plan_limits(spec: SandboxSpec, facts: EngineFacts, *, is_gvisor: bool, key: int) -> ContainerLimits:
    """Decide how each limit is enforced.

    Args:
        spec: What is asked for.
        facts: What the engine can do.
        is_gvisor: Whether the container's kernel is gVisor.
        key: Any number; spreads containers over the processors.

    Raises:
        PolicyRefused: One that was asked for can only be soft, and `soft_limits` was not allowed.
    """
    # A rootless engine on version 1 says it can and silently does nothing (Podman 4.3: inspect shows 0).
    kept = frozenset[str]() if facts.is_rootless and facts.cgroup_version == 1 else facts.limits
    enforced: dict[str, Enforcement] = {"disk": "soft"}
    for name, weaker in _SOFT.items():
        is_kept = name in kept and not (is_gvisor and name == "pids")
        enforced[name] = "kernel" if is_kept else weaker
        if not is_kept and name in spec.asked_limits() and not spec.soft_limits:
            raise PolicyRefused(_refusal(spec, facts, name, is_gvisor=is_gvisor), rule="limits-enforced")
    pids = spec.pids + (SENTRY_TASKS if is_gvisor else 0)
    return ContainerLimits(
        enforced,
        memory=spec.memory if "memory" in kept else None,
        cpus=spec.cpus if "cpus" in kept else None,
        pids=pids if "pids" in kept else None,
        cpuset=_processors(spec.cpus, facts, key) if "cpus" in kept and facts.has_cpuset else None,
        process_limit=None,
    )


def _refusal(spec: SandboxSpec, facts: EngineFacts, name: str, *, is_gvisor: bool) -> str:
    if is_gvisor and name == "pids":
        why = "gVisor's own threads count against it"
    elif facts.is_rootless and facts.cgroup_version == 1:
        why = "a rootless engine cannot set limits on control groups of version 1"
    else:
        why = "the engine says it cannot"
    return (
        f"the limit {name}={getattr(spec, name)!r} cannot be enforced by {facts.product}: {why}; "
        "leave it out, or allow the weaker way (--soft-limits, or soft_limits=True)"
    )


def _processors(cpus: float, facts: EngineFacts, key: int) -> str | None:
    """As many processors as `cpus` fill, so that `nproc` inside tells the truth; None for all of them."""
    count = -int(-cpus // 1)
    if not 0 < count < facts.processors:
        return None
    first = key % facts.processors
    return ",".join(str(one) for one in sorted((first + step) % facts.processors for step in range(count)))

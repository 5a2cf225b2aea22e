"""Which limits an engine keeps for a container, and what happens to the others."""

from ringfence.frozen import frozen
from ringfence.sandbox.base import Enforcement
from ringfence.sandbox.docker.facts import EngineFacts
from ringfence.sandbox.enforcement import Unenforced, enforcement
from ringfence.sandbox.spec import SandboxSpec

_LIMITS = frozenset({"memory", "cpus", "pids"})
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
        PolicyRefused: As `enforcement`.
    """
    enforced = enforcement(spec, lacking_limits(facts, is_gvisor=is_gvisor))
    kept = _LIMITS - _unset_by_engine(facts).keys()
    pids = spec.pids + (SENTRY_TASKS if is_gvisor else 0)
    return ContainerLimits(
        enforced,
        memory=spec.memory if "memory" in kept else None,
        cpus=spec.cpus if "cpus" in kept else None,
        pids=pids if "pids" in kept else None,
        cpuset=_processors(spec.cpus, facts, key) if "cpus" in kept and facts.has_cpuset else None,
        process_limit=None,
    )


def lacking_limits(facts: EngineFacts, *, is_gvisor: bool) -> Unenforced:
    """What an engine cannot enforce, and why."""
    lacking = _unset_by_engine(facts)
    return {"pids": "gVisor's own threads count against it", **lacking} if is_gvisor else lacking


def _unset_by_engine(facts: EngineFacts) -> dict[str, str]:
    if facts.is_rootless and facts.cgroup_version == 1:
        # It says that it can, and silently does nothing (Podman 4.3: inspect shows 0).
        return dict.fromkeys(_LIMITS, "a rootless engine cannot set limits on control groups of version 1")
    return dict.fromkeys(_LIMITS - facts.limits, f"{facts.product} says it cannot")


def _processors(cpus: float, facts: EngineFacts, key: int) -> str | None:
    """As many processors as `cpus` fill, so that `nproc` inside tells the truth; None for all of them."""
    count = -int(-cpus // 1)
    if not 0 < count < facts.processors:
        return None
    first = key % facts.processors
    return ",".join(str(one) for one in sorted((first + step) % facts.processors for step in range(count)))

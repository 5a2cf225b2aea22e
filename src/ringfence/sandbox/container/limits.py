"""How the limits of a container are enforced, by what its engine can keep and its runtime counts."""

from collections.abc import Mapping

from ringfence.frozen import frozen
from ringfence.sandbox.base import Enforcement
from ringfence.sandbox.enforcement import Unenforced, enforcement
from ringfence.sandbox.spec import SandboxSpec

LIMITS = frozenset({"memory", "cpus", "pids"})
_SENTRY_TASKS = 2000
"""gVisor's kernel is itself a process of the container and counts its threads against `pids`; short of them it
crashes (measured: at 100 under 32 commands at once). So the engine's limit is that much wider there."""


@frozen
class ContainerLimits:
    """How the limits of one container are enforced."""

    enforced: dict[str, Enforcement]
    memory: int | None
    """Given to the engine, swap included; None where it cannot keep it. So are the next ones."""
    cpus: float | None
    pids: int | None
    cpuset: str | None
    process_limit: int | None = None
    """RLIMIT_NPROC of every command, where that enforces `pids`."""


def plan_limits(
    spec: SandboxSpec, unset: Mapping[str, str], *, is_gvisor: bool, processors: int, key: int
) -> ContainerLimits:
    """Decide how each limit is enforced.

    Args:
        spec: What is asked for.
        unset: Limits that the engine cannot set, and why.
        is_gvisor: Whether the container's kernel is gVisor.
        processors: How many the engine can choose from for a container; 0: it cannot choose.
        key: Any number; spreads containers over the processors.

    Raises:
        PolicyRefused: As `enforcement`.
    """
    enforced = enforcement(spec, unenforced_limits(unset, is_gvisor=is_gvisor))
    kept = LIMITS - unset.keys()
    pids = spec.pids + (_SENTRY_TASKS if is_gvisor else 0)
    return ContainerLimits(
        enforced,
        memory=spec.memory if "memory" in kept else None,
        cpus=spec.cpus if "cpus" in kept else None,
        pids=pids if "pids" in kept else None,
        cpuset=_processors(spec.cpus, processors, key) if "cpus" in kept else None,
    )


def unenforced_limits(unset: Mapping[str, str], *, is_gvisor: bool) -> Unenforced:
    """What is not enforced by the kernel, and why."""
    return {"pids": "gVisor's own threads count against it", **unset} if is_gvisor else unset


def _processors(cpus: float, processors: int, key: int) -> str | None:
    """As many processors as `cpus` fill, so that `nproc` inside tells the truth; None for all of them."""
    count = -int(-cpus // 1)
    if not 0 < count < processors:
        return None
    first = key % processors
    return ",".join(str(one) for one in sorted((first + step) % processors for step in range(count)))

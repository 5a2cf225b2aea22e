"""Decides how each limit of a sandbox is enforced, and whether one that the kernel cannot enforce refuses it."""

from collections.abc import Mapping

from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Enforcement
from ringfence.sandbox.spec import SandboxSpec

_WEAKER: Mapping[str, Enforcement] = {"memory": "soft", "pids": "soft", "cpus": "none"}
"""Enforcement without the kernel: the guest watches memory and processes; processor time is not limited."""

_ACCEPTING_LINE = "the line `sandbox: {soft_limits: true}` in ~/.config/ringfence/ringfence.yaml"
_ACCEPTING_OPTION = "--soft-limits (in Python: soft_limits=True), or for all your runs with "
"""How a user says that a watchdog is enough. A project's file cannot say it for him."""

Lacking = Mapping[str, str]
"""Names of limits that the kernel does not enforce here (`memory`, `cpus`, `pids`), and why."""


def unenforceable(spec: SandboxSpec, lacking: Lacking) -> list[str]:
    """Names of explicitly set limits that the kernel cannot enforce, unless `soft_limits` allows weaker ones."""
    return (
        []
        if spec.soft_limits
        else [name for name in _WEAKER if name in lacking and name in spec.asked_limits()]
    )


def refusal(spec: SandboxSpec, lacking: Lacking, *, has_option: bool = True) -> str | None:
    """Why a sandbox with these limits is refused, and what would allow it; None if it is not.

    Args:
        spec: The limits.
        lacking: What the kernel does not enforce.
        has_option: Whether the command that is refused has an option that would allow it.
    """
    names = unenforceable(spec, lacking)
    if not names:
        return None
    limits = " and ".join(f"{name}={_shown(name, getattr(spec, name))}" for name in names)
    why = "; ".join(dict.fromkeys(lacking[name] for name in names))
    option = _ACCEPTING_OPTION if has_option else ""
    return (
        f"{'limit' if len(names) == 1 else 'limits'} {limits} cannot be enforced here; remove the setting, or accept "
        f"weaker limits with {option}{_ACCEPTING_LINE}; `ringfence doctor` shows what enforces limits here; the "
        f"reason: {why}"
    )


def enforcement(spec: SandboxSpec, lacking: Lacking) -> dict[str, Enforcement]:
    """How each limit is enforced: `memory`, `cpus`, `pids`, `disk`.

    Raises:
        PolicyRefused: The kernel cannot enforce a limit of memory, processors or processes that was set explicitly, and
            `soft_limits` is not set. The limit of the disk is always the guest's.
    """
    refused = refusal(spec, lacking)
    if refused is not None:
        raise PolicyRefused(refused, rule="limits-enforced")
    return {
        "disk": "soft",
        **{name: weaker if name in lacking else "kernel" for name, weaker in _WEAKER.items()},
    }


def _shown(name: str, value: float) -> str:
    if name != "memory":
        return f"{value:g}"
    size, unit = (value / 1024**2, "MiB") if value >= 1024**2 else (value, "bytes")
    return f"{size:.10g} {unit}"

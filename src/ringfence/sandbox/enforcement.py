"""Decides how each limit of a sandbox is enforced, and refuses an explicit limit that cannot be enforced."""

from collections.abc import Mapping

from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Enforcement
from ringfence.sandbox.spec import SandboxSpec

_WEAKER: Mapping[str, Enforcement] = {"memory": "soft", "pids": "soft", "cpus": "none"}
"""Enforcement without the kernel: the guest watches memory and processes; processor time is not limited."""

_SETTING = "the line `sandbox: {soft_limits: true}` in ~/.config/ringfence/ringfence.yaml"
_OPTION = "--soft-limits (in Python: soft_limits=True)"
"""How users can accept a watchdog instead. A project's file cannot accept it for them."""

Unenforced = Mapping[str, str]
"""Limits that the kernel does not enforce here (`memory`, `cpus`, `pids`), each with the reason."""


def unenforceable(spec: SandboxSpec, unenforced: Unenforced) -> list[str]:
    """Names of explicitly set limits that the kernel cannot enforce, unless `soft_limits` allows weaker ones."""
    if spec.soft_limits:
        return []
    return [name for name in _WEAKER if name in unenforced and name in spec.explicit_limits()]


def refusal(spec: SandboxSpec, unenforced: Unenforced, *, has_option: bool = True) -> str | None:
    """Why a sandbox with these limits is refused, and what would allow it; None if it is not refused.

    Args:
        spec: The limits.
        unenforced: The limits that the kernel does not enforce.
        has_option: Whether the command that is refused has an option that would allow it.
    """
    names = unenforceable(spec, unenforced)
    if not names:
        return None
    limits = " and ".join(f"{name}={_format(name, getattr(spec, name))}" for name in names)
    why = "; ".join(dict.fromkeys(unenforced[name].partition(";")[0] for name in names))
    noun, pronoun = ("limit", "it") if len(names) == 1 else ("limits", "them")
    return (
        f"{noun} {limits} cannot be enforced here: {why}. Remove {pronoun}, or accept a watchdog with "
        f"{_OPTION if has_option else _SETTING}; `ringfence help budgets-and-limits` shows how to enforce {pronoun}"
    )


def enforcement(spec: SandboxSpec, unenforced: Unenforced) -> dict[str, Enforcement]:
    """How each limit is enforced: `memory`, `cpus`, `pids`, `disk`.

    Raises:
        PolicyRefused: The kernel cannot enforce a limit of memory, processors or processes that was set explicitly, and
            `soft_limits` is not set. The disk limit is always enforced by the guest.
    """
    refused = refusal(spec, unenforced)
    if refused is not None:
        raise PolicyRefused(refused, rule="limits-enforced")
    return {
        "disk": "soft",
        **{name: weaker if name in unenforced else "kernel" for name, weaker in _WEAKER.items()},
    }


def _format(name: str, value: float) -> str:
    if name != "memory":
        return f"{value:g}"
    size, unit = (value / 1024**2, "MiB") if value >= 1024**2 else (value, "bytes")
    return f"{size:.10g} {unit}"

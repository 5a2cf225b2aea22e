"""Limits by a transient scope of the user's own systemd, for ordinary users on machines that run it."""

import math
from collections.abc import Mapping

from ringfence.sandbox.cgroup.limits import GroupLimits


def launch_prefix(sandbox_id: str, limits: GroupLimits) -> tuple[str, ...]:
    """Arguments to put before a command so that it starts in a scope with these limits.

    The command stays our child and keeps its descriptors (`--scope`). Call `adopt` afterwards, which reads the limits
    back from the kernel. Option names: systemd.resource-control(5).
    """
    properties = ["Delegate=yes"]
    if limits.memory_bytes is not None:
        properties += [f"MemoryMax={limits.memory_bytes}", "MemorySwapMax=0"]
    if limits.cpus is not None:
        properties.append(f"CPUQuota={max(math.floor(limits.cpus * 100), 1)}%")
    if limits.pids is not None:
        properties.append(f"TasksMax={limits.pids}")
    options = (argument for one in properties for argument in ("-p", one))
    unit = f"--unit=ringfence-{sandbox_id}"
    return ("systemd-run", "--user", "--scope", "--quiet", "--collect", unit, *options, "--")


def launch_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a user's environment by which `systemd-run` finds the user's systemd, and no others."""
    names = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
    return {name: environment[name] for name in names if name in environment}

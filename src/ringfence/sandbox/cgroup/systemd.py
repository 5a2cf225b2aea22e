"""Limits by a transient scope of the user's own systemd, for ordinary users on machines that run it."""

import math
from collections.abc import Mapping


def launch_prefix(
    sandbox_id: str, *, memory_bytes: int | None, cpus: float | None, pids: int | None
) -> tuple[str, ...]:
    """What to put before a command so that it starts in a scope with these limits.

    The command stays our child and keeps its descriptors (`--scope`). Follow it by `adopt`, which reads the
    limits back from the kernel. Option names: systemd.resource-control(5).
    """
    properties = ["Delegate=yes"]
    if memory_bytes is not None:
        properties += [f"MemoryMax={memory_bytes}", "MemorySwapMax=0"]
    if cpus is not None:
        properties.append(f"CPUQuota={max(math.floor(cpus * 100), 1)}%")
    if pids is not None:
        properties.append(f"TasksMax={pids}")
    options = (word for one in properties for word in ("-p", one))
    return (
        *("systemd-run", "--user", "--scope", "--quiet", "--collect", f"--unit=ringfence-{sandbox_id}"),
        *options,
        "--",
    )


def launch_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a user's environment, what `systemd-run` needs to find his systemd; nothing else goes along."""
    names = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
    return {name: environment[name] for name in names if name in environment}

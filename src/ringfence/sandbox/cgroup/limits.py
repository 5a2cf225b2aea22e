"""Writes and reads back the limits of a control group, as kernel files or as properties of a systemd scope."""

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ringfence.errors import SandboxStartFailed
from ringfence.frozen import frozen

_PERIOD_US = 100_000
_MIN_QUOTA_US = 1000  # the kernel refuses less


@frozen
class GroupLimits:
    """Limits on the total usage of everything in a group; None means no limit."""

    memory_bytes: int | None = None
    """Memory and swap together; rounded down to whole pages."""
    cpus: float | None = None
    """Processor seconds per second, at least 0.01."""
    pids: int | None = None
    """Processes and threads."""


@frozen
class Setting:
    """One file of a group and the value to write."""

    controller: str
    file: str
    value: str
    optional: bool = False
    """Skipped where the kernel has no such file (built without swap accounting)."""


_SETTINGS: Mapping[int, tuple[Setting, ...]] = {
    2: (
        Setting("memory", "memory.max", "{memory}"),
        Setting("memory", "memory.swap.max", "0", optional=True),
        Setting("cpu", "cpu.max", f"{{cpu}} {_PERIOD_US}"),
        Setting("pids", "pids.max", "{pids}"),
    ),
    # The order matters: version 1 refuses a limit for memory and swap below the one for memory alone. Without swap
    # accounting, swappiness 0 keeps the group out of swap.
    1: (
        Setting("memory", "memory.limit_in_bytes", "{memory}"),
        Setting("memory", "memory.memsw.limit_in_bytes", "{memory}", optional=True),
        Setting("memory", "memory.swappiness", "0", optional=True),
        Setting("cpu", "cpu.cfs_period_us", str(_PERIOD_US)),
        Setting("cpu", "cpu.cfs_quota_us", "{cpu}"),
        Setting("pids", "pids.max", "{pids}"),
    ),
}
"""Per version, with a controller's limit as `{controller}`."""


def settings_for(version: int, limits: GroupLimits) -> list[Setting]:
    """What to write for these limits, in this order."""
    values = {}
    if limits.memory_bytes is not None:
        page = os.sysconf("SC_PAGE_SIZE")
        values["memory"] = max(limits.memory_bytes // page, 1) * page
    if limits.cpus is not None:
        values["cpu"] = max(int(limits.cpus * _PERIOD_US), _MIN_QUOTA_US)
    if limits.pids is not None:
        values["pids"] = limits.pids
    settings = (setting for setting in _SETTINGS[version] if setting.controller in values)
    return [replace(setting, value=setting.value.format(**values)) for setting in settings]


def apply(directory: Path, setting: Setting) -> None:
    """Write a limit and read it back.

    Raises:
        SandboxStartFailed: The kernel refuses it, or takes another value.
    """
    if not setting.optional or (directory / setting.file).exists():
        write(directory / setting.file, setting.value)
        check(directory, setting)


def check(directory: Path, setting: Setting) -> None:
    """Read a limit back.

    Raises:
        SandboxStartFailed: It cannot be read or has another value.
    """
    file = directory / setting.file
    if setting.optional and not file.exists():
        return
    try:
        found = " ".join(file.read_text().split())
    except OSError as exc:
        raise SandboxStartFailed(f"could not read limit {file} back: {exc.strerror}") from exc
    if found != setting.value:
        raise SandboxStartFailed(
            f"limit {file} is {found!r} where {setting.value!r} was asked; ask for what its parents allow"
        )


def write(file: Path, value: str) -> None:
    """Write to a group's file.

    Raises:
        SandboxStartFailed: The kernel refuses.
    """
    try:
        file.write_text(value)
    except OSError as exc:
        raise SandboxStartFailed(f"could not write {value!r} to {file}: {exc.strerror}") from exc


def launch_prefix(sandbox_id: str, limits: GroupLimits) -> tuple[str, ...]:
    """Arguments to put before a command so that the user's systemd starts it in a transient scope with these limits.

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

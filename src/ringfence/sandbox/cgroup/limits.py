"""The limits as the kernel is told them, version by version; each is read back."""

import os
from pathlib import Path

from ringfence.errors import SandboxStartFailed
from ringfence.frozen import frozen

_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000  # the kernel refuses less


@frozen
class Setting:
    """One limit as the kernel is told it."""

    controller: str
    file: str
    value: str
    optional: bool = False
    """Skipped where the kernel has no such file (built without swap accounting)."""


def settings_for(version: int, memory: int | None, cpus: float | None, pids: int | None) -> list[Setting]:
    """What to write for these limits (bytes, processors, tasks; None: not limited), in this order."""
    settings = []
    if memory is not None:
        page = os.sysconf("SC_PAGE_SIZE")
        size = str(max(memory // page, 1) * page)
        settings += _memory(version, size)
    if cpus is not None:
        quota = max(int(cpus * _PERIOD_US), _LEAST_QUOTA_US)
        settings += _cpu(version, quota)
    if pids is not None:
        settings.append(Setting("pids", "pids.max", str(pids)))
    return settings


def _memory(version: int, size: str) -> list[Setting]:
    if version == 2:
        return [
            Setting("memory", "memory.max", size),
            Setting("memory", "memory.swap.max", "0", optional=True),
        ]
    # The order matters: version 1 refuses a total below the limit of memory alone. Without swap accounting,
    # swappiness 0 keeps the group out of swap.
    return [
        Setting("memory", "memory.limit_in_bytes", size),
        Setting("memory", "memory.memsw.limit_in_bytes", size, optional=True),
        Setting("memory", "memory.swappiness", "0", optional=True),
    ]


def _cpu(version: int, quota_us: int) -> list[Setting]:
    if version == 2:
        return [Setting("cpu", "cpu.max", f"{quota_us} {_PERIOD_US}")]
    return [
        Setting("cpu", "cpu.cfs_period_us", str(_PERIOD_US)),
        Setting("cpu", "cpu.cfs_quota_us", str(quota_us)),
    ]


def apply(directory: Path, setting: Setting) -> None:
    """Write a limit and read it back.

    Raises:
        SandboxStartFailed: The kernel refuses it, or takes another than was asked.
    """
    if setting.optional and not (directory / setting.file).exists():
        return
    write(directory / setting.file, setting.value)
    check(directory, setting)


def check(directory: Path, setting: Setting) -> None:
    """Read a limit back.

    Raises:
        SandboxStartFailed: It cannot be read or is another than was asked.
    """
    file = directory / setting.file
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
        write_raw(file, value)
    except OSError as exc:
        raise SandboxStartFailed(f"could not write {value!r} to {file}: {exc.strerror}") from exc


def write_raw(file: Path, value: str) -> None:
    """Write to a group's file in one call; a refusal is an `OSError`."""
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)

"""From which containers the engine's own machine is in reach: no command is passed on to these. Pure.

What is not known to be harmless counts as power: capabilities, options of security, places of the machine.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

_HARMLESS = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "LEASE", "MKNOD", "NET_ADMIN",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_NICE",
    "SYS_RESOURCE",
})  # fmt: skip
"""Capabilities (capabilities(7)) that reach no further than the container: the engines' default ones, and a few."""
_MODES = ("PidMode", "IpcMode", "UsernsMode", "NetworkMode", "UTSMode")
_NEVER = ("/proc", "/dev", "/run", "/var/run")
"""Nothing of them may be mounted, in any way: devices, sockets of services, whoever's processes."""
_NOT_WHOLE = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/sys", "/root", "/var/spool", "/var/lib/docker",
    "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/systemd",
)  # fmt: skip
"""Single files and directories of them may be mounted, but only read-only."""
_HOMES = "/home"


def volume_names(container: Mapping[str, Any]) -> tuple[str, ...]:
    """The volumes of an inspected container; what they are is said elsewhere (`GET /volumes/{name}`)."""
    mounts = container.get("Mounts") or []
    return tuple(str(mount.get("Name") or "") for mount in mounts if mount.get("Type") == "volume")


def too_powerful(
    container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]] | None = None
) -> str | None:
    """Why a command in this container would be as good as one on the engine's machine; None if it would not.

    Args:
        container: As inspected.
        volumes: Its volumes by name, as inspected.
    """
    return next(_powers(container, volumes or {}), None)


def _powers(container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    host = container.get("HostConfig") or {}
    if host.get("Privileged"):
        yield "it is privileged"
    for mode in _MODES:
        if str(host.get(mode) or "") == "host":
            yield f"its {mode} is the host's"
    added = {str(name).upper().removeprefix("CAP_") for name in host.get("CapAdd") or []}
    if added - _HARMLESS:
        yield f"it has the capability {min(added - _HARMLESS)}"
    for devices in ("Devices", "DeviceRequests", "DeviceCgroupRules"):
        if host.get(devices):
            yield "it has devices of the host"
    for paths in ("MaskedPaths", "ReadonlyPaths"):
        if host.get(paths) == []:
            yield "the machine's kernel settings are not kept from it"
    yield from _mounts(container.get("Mounts") or [], volumes)


def _mounts(mounts: list[Any], volumes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for mount in mounts:
        source, is_writable = str(mount.get("Source") or ""), bool(mount.get("RW", True))
        if mount.get("Type") == "volume":
            # A volume of the local driver can be any directory of the machine under another name.
            volume = volumes.get(str(mount.get("Name") or ""), {})
            options = volume.get("Options") or {}
            source = str(options.get("device") or "")
            if source and not source.startswith("/"):
                continue  # a file server's
        if source and _is_power(PurePosixPath(source), is_writable=is_writable):
            yield f"it has {source!r} of the host mounted"


def _is_power(source: PurePosixPath, *, is_writable: bool) -> bool:
    if source.suffix == ".sock" or source == PurePosixPath(_HOMES) or str(source.parent) == _HOMES:
        return True
    for place in map(PurePosixPath, (*_NEVER, *_NOT_WHOLE)):
        is_whole = source == place or place.is_relative_to(source)
        is_within = source.is_relative_to(place) and (is_writable or str(place) in _NEVER)
        if is_whole or is_within:
            return True
    return False

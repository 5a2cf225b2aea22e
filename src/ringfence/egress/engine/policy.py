"""Decides which calls of the engine are forwarded, to which container and with which body.

A decision depends on the granted access and on what the engine reports about the container.

No command is forwarded to a container that has power over the engine's machine. Capabilities, security options and
mounts that are not known to be harmless count as such power.
"""

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.client import get_json
from ringfence.egress.engine.messages import exec_body, is_visible, narrow_filters, start_body
from ringfence.egress.engine.routes import Call, Rejected
from ringfence.egress.http.rules import Request
from ringfence.frozen import frozen

_MAX_COMMANDS = 1000
_OK = 200

_HARMLESS_CAPABILITIES = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "IPC_LOCK", "KILL", "LEASE", "MKNOD", "NET_ADMIN",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_NICE",
    "SYS_RESOURCE",
})  # fmt: skip
"""Capabilities (capabilities(7)) with no effect outside of the container: the engines' defaults and a few more."""
_NAMESPACE_MODES = ("PidMode", "IpcMode", "UsernsMode", "NetworkMode", "UTSMode")
_SHARED_MODES = ("container:", "ns:")
"""The prefixes of modes that join the namespace of another container or of a path, which may be the host's."""
_FORBIDDEN = ("/proc", "/dev", "/run", "/var/run")
"""Neither they nor anything below them may be mounted: devices, sockets of services, processes of others."""
_SYSTEM_DIRECTORIES = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/sys", "/root", "/var/spool", "/var/lib/docker",
    "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/systemd",
)  # fmt: skip
"""They may not be mounted themselves; files and directories below them may be, but only read-only."""
_HOMES = "/home"
_CREDENTIAL_DIRECTORIES = frozenset({".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"})
"""The names of directories that hold credentials: nothing in them may be mounted."""
_CREDENTIAL_FILES = frozenset(
    PurePosixPath(path)
    for path in ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl/private")
)
_SHOWN_CHARS = 80


@frozen
class Forwarded:
    """A call that is forwarded."""

    call: Call
    target: str
    body: bytes = b""
    container: str | None = None
    is_detached: bool = False
    """Whether the command is started without a connection to its streams."""


class CallPolicy:
    """Decides on the calls of one sandbox.

    Args:
        access: The granted access.
        socket: The engine's socket.
        writable: Directories of the host in which processes inside can replace files.
    """

    def __init__(self, access: EngineAccess, socket: Path, writable: Sequence[Path] = ()) -> None:
        self._access = access
        self._socket = socket
        self._writable = frozenset(spelling for path in writable for spelling in _spellings(str(path)))
        self._commands: OrderedDict[str, str] = OrderedDict()
        """The commands that were created from inside, with their containers. No other can be started or inspected."""

    def remember_command(self, command: str, container: str) -> None:
        """Remember that a command was created in a container; beyond a limit, forget the oldest."""
        self._commands[command] = container
        while len(self._commands) > _MAX_COMMANDS:
            self._commands.popitem(last=False)

    async def decide(self, call: Call, request: Request) -> Forwarded:
        """Decide what is sent to the engine.

        Raises:
            Rejected, EngineError: The call is not forwarded.
        """
        action, needs = call.route.action, call.route.needs
        allowed = self._access.allow
        if needs is not None and needs not in allowed and not (needs == "exec" and "exec_user" in allowed):
            raise Rejected(403, f"{action} is not granted; grant it with engine.allow: [{needs}]")
        if action in ("list", "images"):
            filters = narrow_filters(call.query.get("filters", ""), self._access)
            return Forwarded(call, call.target("", {"filters": filters}))
        if action.startswith("exec_"):
            return self._decide_command(call, request)
        if not call.reference:
            return Forwarded(call, call.target(""))
        container = await self._container(call)
        identity = str(container["Id"])
        if action not in ("exec", "start", "restart"):
            return Forwarded(call, call.target(identity), container=identity)
        volumes = await self._volumes(container)
        replaceable = replaceable_mount(container, volumes, self._writable)
        if replaceable is not None:
            raise Rejected(403, f"{action} of {call.reference!r} is never forwarded: {replaceable}")
        if action != "exec":
            return Forwarded(call, call.target(identity), container=identity)
        power = host_power(container, volumes)
        if power is not None:
            raise Rejected(403, f"a command in {call.reference!r} is never forwarded: {power}")
        body = exec_body(request.body, may_choose_user="exec_user" in allowed)
        return Forwarded(call, call.target(identity), body, identity)

    def _decide_command(self, call: Call, request: Request) -> Forwarded:
        container = self._commands.get(call.reference)
        if container is None:
            raise Rejected(404, f"no command {call.reference[:80]!r} was created from inside")
        target = call.target(call.reference)
        if call.route.action != "exec_start":
            return Forwarded(call, target, container=container)
        body, is_detached = start_body(request.body)
        if not is_detached and request.header("upgrade").lower() != "tcp":
            raise Rejected(400, "a command that is not detached needs `Upgrade: tcp`")
        return Forwarded(call, target, body, container, is_detached)

    async def _volumes(self, container: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the volumes of a container by name; reject a container with a volume that cannot be inspected."""
        found: dict[str, dict[str, Any]] = {}
        for name in volume_names(container):
            status, volume = await get_json(self._socket, f"/volumes/{quote(name, safe='')}")
            if status != _OK or not isinstance(volume, dict):
                raise Rejected(403, f"a command is not forwarded: the volume {name!r} cannot be inspected")
            found[name] = volume
        return found

    async def _container(self, call: Call) -> dict[str, Any]:
        """Inspect the container of a call; the forwarded call names it by its full id.

        Raises:
            Rejected: The container does not exist or is not visible; the response is the same.
        """
        status, container = await get_json(self._socket, f"/containers/{call.reference}/json")
        exists = status == _OK and isinstance(container, dict) and isinstance(container.get("Id"), str)
        if not exists or not is_visible(container, self._access):
            raise Rejected(
                404,
                f"no such container: {call.reference} (those with the label {self._access.label!r} are shown)",
            )
        return container  # type: ignore[no-any-return]  # a dict, as was checked


def volume_names(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of an inspected container's volumes."""
    mounts = container.get("Mounts") or []
    return tuple(str(mount.get("Name") or "") for mount in mounts if mount.get("Type") == "volume")


def host_power(
    container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]] | None = None
) -> str | None:
    """Return why a command in this container has power over the engine's machine; None if it has none.

    Args:
        container: The inspected container.
        volumes: Its inspected volumes by name.
    """
    return next(_powers(container, volumes or {}), None)


def replaceable_mount(
    container: Mapping[str, Any],
    volumes: Mapping[str, Mapping[str, Any]],
    writable: Iterable[PurePosixPath],
) -> str | None:
    """Return why a process inside could redirect a mount of this container; None if it could not.

    If a mounted directory lies in one that processes inside can write to, they can replace it with a link, which the
    engine follows as root the next time the container starts.

    Args:
        container: The inspected container.
        volumes: Its inspected volumes by name.
        writable: Directories of the host in which processes inside can replace files.
    """
    for source, _is_writable in _mount_sources(container.get("Mounts") or [], volumes):
        paths = _spellings(source)
        if any(path != root and path.is_relative_to(root) for root in writable for path in paths):
            return (
                f"it has {source!r} mounted, which processes inside could replace with a link to any other directory; "
                "mount the workspace itself"
            )
    return None


def _powers(container: Mapping[str, Any], volumes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    host = container.get("HostConfig") or {}
    if host.get("Privileged"):
        yield "it is privileged"
    for mode in _NAMESPACE_MODES:
        value = str(host.get(mode) or "")
        if value == "host" or value.startswith(_SHARED_MODES):
            yield f"its {mode} is {value!r}, shared with the host or another container"
    added = {str(name).upper().removeprefix("CAP_") for name in host.get("CapAdd") or []}
    if added - _HARMLESS_CAPABILITIES:
        yield f"it has the capability {min(added - _HARMLESS_CAPABILITIES)}"
    for devices in ("Devices", "DeviceRequests", "DeviceCgroupRules"):
        if host.get(devices):
            yield "it has devices of the host"
    for paths in ("MaskedPaths", "ReadonlyPaths"):
        if host.get(paths) == []:
            yield "the machine's kernel settings are not protected from it"
    yield from _changed_confinement(host.get("SecurityOpt") or [])
    yield from _mount_powers(container.get("Mounts") or [], volumes)


def _changed_confinement(options: list[Any]) -> Iterator[str]:
    for option in map(str, options):
        if not option.startswith("no-new-privileges"):
            yield f"it has the security option {option[:_SHOWN_CHARS]!r}"


def _mount_powers(mounts: list[Any], volumes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, volume in volumes.items():
        options = volume.get("Options") or {}
        if str(volume.get("Driver") or "local") != "local" or "dir=" in str(options.get("o") or ""):
            yield f"its volume {name!r} may show any directory of the host"
    for source, is_writable in _mount_sources(mounts, volumes):
        if _gives_host_power(_normalized(source), is_writable=is_writable):
            yield f"it has {source!r} of the host mounted"


def _mount_sources(mounts: list[Any], volumes: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield the paths of the host that are mounted, and whether each is writable."""
    for mount in mounts:
        source, is_writable = str(mount.get("Source") or ""), bool(mount.get("RW", True))
        if mount.get("Type") == "volume":
            # A volume of the local driver can be any directory of the machine under another name.
            volume = volumes.get(str(mount.get("Name") or ""), {})
            source = str((volume.get("Options") or {}).get("device") or "")
            if not source.startswith("/"):
                continue  # on a file server, or managed by the engine
        if source:
            yield source, is_writable


def _spellings(path: str) -> frozenset[PurePosixPath]:
    """Return the path as it is written and the path that it resolves to."""
    return frozenset((_normalized(path), PurePosixPath(os.path.realpath(path))))


def _normalized(source: str) -> PurePosixPath:
    """Return the path without `..` and repeated slashes; pathlib keeps two leading ones, as POSIX allows."""
    return PurePosixPath("/" + os.path.normpath(source).lstrip("/"))


def _gives_host_power(source: PurePosixPath, *, is_writable: bool) -> bool:
    if source.suffix == ".sock" or source == PurePosixPath(_HOMES) or str(source.parent) == _HOMES:
        return True
    if _CREDENTIAL_DIRECTORIES & set(source.parts) or source in _CREDENTIAL_FILES:
        return True
    for directory in map(PurePosixPath, (*_FORBIDDEN, *_SYSTEM_DIRECTORIES)):
        is_root = source == directory or directory.is_relative_to(source)
        is_within = source.is_relative_to(directory) and (is_writable or str(directory) in _FORBIDDEN)
        if is_root or is_within:
            return True
    return False

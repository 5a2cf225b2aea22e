"""Translates a hardened container into the engine's configuration, and checks the container that the engine made."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence.config.paths import replace_state_file, state_dir
from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Launch
from ringfence.sandbox.container.hardened_container import (
    ContainerMount,
    HardenedContainer,
    ImageFacts,
    MemoryMount,
    stands_in_closed,
)
from ringfence.sandbox.container.labels import IMAGE_NAMES, IMAGE_TARGET
from ringfence.sandbox.docker.client import Engine, EngineFacts

_IDS_IN_A_NAMESPACE = 65_536
"""The number of ids that shadow's `/etc/subuid` gives a user, and the engine a container, by default."""
_ID_INSIDE = 1000
_READABLE = 0o444
_APPARMOR = "apparmor=docker-default"
_PODMAN_PROCESSES = 16_384
"""RLIMIT_NPROC of one user. Unset, Podman raises it to its own ceiling, which fails without CAP_SYS_RESOURCE."""


def parse_image(reference: str, found: Mapping[str, Any]) -> ImageFacts:
    """Read an engine's description of an image."""
    configuration = found.get("Config") or {}
    has_own_name = any(str(name).startswith(IMAGE_NAMES) for name in found.get("RepoTags") or ())
    pairs = (str(one).partition("=") for one in configuration.get("Env") or ())
    return ImageFacts(
        id=str(found["Id"]),
        reference=reference,
        environment={name: value for name, _, value in pairs},
        volumes=tuple(map(str, configuration.get("Volumes") or {})),
        # An image that a user builds on one of ours inherits its labels, but not its name.
        is_own=has_own_name and IMAGE_TARGET in (configuration.get("Labels") or {}),
    )


def check_files(engine: Engine, launch: Launch, image: ImageFacts, *, is_gvisor: bool) -> None:
    """Refuse to show a host directory through an engine that cannot show it, or to an image that must not see it.

    Raises:
        PolicyRefused: The engine is one, and it was not made ready for, or cannot be done.
    """
    placement, reason = launch.placement, engine.unseen
    if not engine.address.shares_files and launch.spec.mounts:
        raise PolicyRefused(
            f"{reason}, so {str(launch.spec.mounts[0].source)!r} cannot be mounted; leave out the mounts, or put what "
            "they hold into the image or the workspace",
            rule="workspace-on-engine",
        )
    if placement.is_idmapped and is_gvisor:
        raise PolicyRefused(
            "workspace mode 'bind' is not allowed: it belongs to root, and gVisor opens files as root, who has no part "
            "in an idmapped mount; use mode 'clone', or --sandbox docker, podman or bubblewrap",
            rule="bind-owner",
        )
    if placement.is_idmapped and not image.is_own:
        raise PolicyRefused(
            "workspace mode 'bind' is not allowed: it belongs to root, and ringfence did not build image "
            f"{image.reference!r}: one made to deceive could leave set-user-ID programs of root's there; use mode "
            "'clone', an image of `ringfence image ls`, or --sandbox bubblewrap",
            rule="bind-owner",
        )
    if engine.facts.is_podman and stands_in_closed(placement):
        raise PolicyRefused(
            f"the workspace {str(placement.workspace)!r} lies in /root, which images keep closed to everybody but root, "
            "and Podman cannot cover it; move the project elsewhere, or use --sandbox docker or bubblewrap",
            rule="workspace-on-engine",
        )
    if placement.upload != "none" and engine.facts.is_podman:
        raise PolicyRefused(
            f"{reason}, and Podman does not take a workspace into a volume as Docker does; use Podman's socket on this "
            "machine, a Docker engine, or --sandbox bubblewrap",
            rule="workspace-on-engine",
        )
    if reason is not None and placement.workspace is not None and placement.upload == "none":
        raise PolicyRefused(
            f"{reason}, so the workspace cannot be mounted; use mode 'clone' or 'read_only', which are uploaded there",
            rule="workspace-on-engine",
        )


def with_ids_inside(launch: Launch, facts: EngineFacts) -> Launch:
    """The launch with ids that exist in the engine's user namespace; the engine maps them to ids outside."""
    placement = launch.placement
    if not facts.shifts_ids or max(placement.uid, placement.gid) < _IDS_IN_A_NAMESPACE:
        return launch
    return replace(launch, placement=replace(placement, uid=_ID_INSIDE, gid=_ID_INSIDE))


def host_files(texts: Mapping[str, str]) -> dict[str, Path]:
    """Files with these texts for an engine on this machine, by path inside; created on first use, never changed.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    digest = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:16]
    folder = state_dir() / "docker" / "etc" / digest
    files = {place: folder / Path(place).name for place in texts}
    for place, file in files.items():
        if not file.is_file() or file.read_text() != texts[place]:  # an existing file may be mounted
            replace_state_file(file, texts[place].encode())
        if file.stat().st_mode & 0o777 != _READABLE:  # by the container's user, whatever our umask
            file.chmod(_READABLE)
    return files


# --- asking


def configuration(
    container: HardenedContainer, facts: EngineFacts, files: Mapping[str, Path]
) -> dict[str, Any]:
    """The body of `POST /containers/create` (Docker Engine API 1.41).

    Args:
        container: The container to create.
        facts: Facts of the engine.
        files: Host files to show as the container's own, by path inside; empty if the engine does not see host files.
    """
    return {
        "Image": container.image.id,
        "Entrypoint": [container.argv[0]],
        "Cmd": list(container.argv[1:]),
        "User": f"{container.uid}:{container.gid}",
        "WorkingDir": "/",
        "Hostname": container.hostname,
        "Env": [f"{name}={value}" for name, value in container.first_environment.items()],
        "Labels": dict(container.labels),
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        # A supervisor that dies closes the connection, which ends stdin and thereby the guest.
        "StdinOnce": True,
        "Tty": False,
        # The guest ignores all other signals: it exits when the stream ends, or is killed at once.
        "StopSignal": "SIGKILL",
        # An image's own health check would run programs unknown to the guest; the guest's heartbeat is the check.
        "Healthcheck": {"Test": ["NONE"]},
        # Halves the start (74 against 150 ms); the engine then writes no /etc/hosts.
        "NetworkDisabled": container.network == "none" and "/etc/hosts" in files,
        "HostConfig": _host_configuration(container, facts, files),
    }


def _host_configuration(
    container: HardenedContainer, facts: EngineFacts, files: Mapping[str, Path]
) -> dict[str, Any]:
    shown = [ContainerMount(place, file, read_only=True) for place, file in files.items()]
    limits = container.limits
    optional = {
        "UsernsMode": "keep-id" if facts.is_podman and facts.is_rootless else None,
        "Runtime": container.runtime,
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "NanoCpus": None if limits.cpus is None else round(limits.cpus * 1e9),
        "PidsLimit": limits.pids,
        "CpusetCpus": limits.cpuset,
    }
    return {
        "NetworkMode": container.network,
        "ReadonlyRootfs": container.read_only_root,
        "CapDrop": ["ALL"],
        "CapAdd": list(container.capabilities),
        "SecurityOpt": list(_security_options(container, facts)),
        "Privileged": False,
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"},
        "ShmSize": container.shm_bytes,
        "Ulimits": list(_resource_limits(container, facts)),
        "Tmpfs": {one.target: _memory_options(one, container, facts) for one in container.memory},
        "Mounts": [_mount(one, container.labels) for one in (*shown, *container.mounts)],
        **{name: value for name, value in optional.items() if value is not None},
    }


def _resource_limits(container: HardenedContainer, facts: EngineFacts) -> Iterator[dict[str, Any]]:
    limits = {"core": container.core_bytes, "nofile": container.open_files}
    if facts.is_podman:
        limits["nproc"] = _PODMAN_PROCESSES
    for name, value in limits.items():
        yield {"Name": name, "Soft": value, "Hard": value}


def _security_options(container: HardenedContainer, facts: EngineFacts) -> Iterator[str]:
    if container.no_new_privileges:
        yield "no-new-privileges:true"
    if facts.has_apparmor and not facts.is_podman:
        yield _APPARMOR


def _memory_options(memory: MemoryMount, container: HardenedContainer, facts: EngineFacts) -> str:
    mode = "mode=1777"
    # Podman 4.3 accepts no owner for a tmpfs; there is no other user inside.
    if memory.is_private and not facts.is_podman:
        mode = f"mode=0700,uid={container.uid},gid={container.gid}"
    may_execute = "exec" if memory.may_execute else "noexec"
    return f"rw,nosuid,nodev,{may_execute},size={memory.size_bytes},{mode}"


def _mount(mount: ContainerMount, labels: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(mount.source, Path):
        return volume_mount(mount.source, mount.target, labels, read_only=mount.read_only)
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        # Mounts below a read-only source would stay writable (before Docker 25), so they are not shown at all.
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": mount.read_only},
    }


def volume_mount(
    volume: str | None, target: str, labels: Mapping[str, str], *, read_only: bool
) -> dict[str, Any]:
    """A volume in a container's configuration; the image's files at its target are not copied into it.

    Args:
        volume: Its name; None for a new one that is removed with the container.
        target: Path inside.
        labels: Labels of a new volume.
        read_only: Whether it cannot be written there.
    """
    return {
        "Type": "volume",
        **({} if volume is None else {"Source": volume}),
        "Target": target,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": True, "Labels": dict(labels)},
    }


# --- reading back: detects an engine that silently drops a limit

_HARDENING = ("ReadonlyRootfs", "Privileged", "Init", "NetworkMode", "Runtime")
_LIMITS = ("Memory", "MemorySwap", "NanoCpus", "PidsLimit", "CpusetCpus")


def mismatches(asked: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """Describe the differences between a `configuration` and `GET /containers/{id}/json`."""
    wanted, got = asked["HostConfig"], made.get("HostConfig") or {}
    for key in (*_HARDENING, *_LIMITS):
        if key in wanted and not _is_same(key, wanted[key], got):
            yield f"{key} is {got.get(key)!r}, not {wanted[key]!r}"
    user = (made.get("Config") or {}).get("User")
    if user != asked["User"]:
        yield f"User is {user!r}, not {asked['User']!r}"
    yield from _wrong_privileges(wanted, got)
    yield from _wrong_mounts(wanted, made.get("Mounts") or ())


def _is_same(key: str, wanted: Any, got: Mapping[str, Any]) -> bool:
    found = got.get(key)
    if key == "NanoCpus" and not found and got.get("CpuPeriod"):
        # Podman stores the same value as quota and period.
        return bool(round(got.get("CpuQuota", 0) / got["CpuPeriod"] * 1e9) == wanted)
    if isinstance(wanted, bool):
        return bool(found) == wanted
    return bool(found == wanted)


def _wrong_privileges(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[str]:
    if set(got.get("CapAdd") or ()) - set(wanted["CapAdd"]):
        yield f"capabilities {got['CapAdd']!r} were added"
    dropped = {str(one).upper().removeprefix("CAP_") for one in got.get("CapDrop") or ()}
    # Podman lists the ones that it would have granted.
    if "ALL" not in dropped and not dropped >= {"CHOWN", "SETUID", "SETGID", "NET_BIND_SERVICE", "KILL"}:
        yield f"capabilities dropped are {sorted(dropped)!r}, not all"
    found = [str(one) for one in got.get("SecurityOpt") or ()]
    if not any(one.startswith("no-new-privileges") and not one.endswith("false") for one in found):
        yield "no-new-privileges is not set"
    if "seccomp=unconfined" in found:
        yield "the engine's own system call filter is off"
    if _APPARMOR in set(wanted["SecurityOpt"]) - set(found):
        yield "the AppArmor profile is not set"
    for key in ("PidMode", "IpcMode", "UTSMode", "CgroupnsMode", "UsernsMode"):
        if got.get(key) == "host":
            yield f"{key} is the host's"
    if got.get("Devices"):
        yield f"devices {got['Devices']!r} were added"


def _wrong_mounts(wanted: Mapping[str, Any], mounts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    found = {str(one.get("Destination")): one for one in mounts}
    asked = {one["Target"]: one["ReadOnly"] for one in wanted["Mounts"]}
    for target, read_only in asked.items():
        if target not in found:
            yield f"nothing is mounted on {target!r}"
        elif bool(found[target].get("RW")) == read_only:
            yield f"the mount on {target!r} is {'writable' if read_only else 'read-only'}"
    for target, other in found.items():
        if target not in asked and target not in wanted["Tmpfs"] and other.get("Type") != "tmpfs":
            yield f"{other.get('Source')!r} is mounted on {target!r}, which was not asked for"

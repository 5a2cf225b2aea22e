"""The configuration of a container, hardening and all, from what is to be launched and what the engine is. Pure."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ringfence.frozen import frozen
from ringfence.sandbox.base import Launch, Placement
from ringfence.sandbox.docker.facts import EngineFacts
from ringfence.sandbox.docker.limits import ContainerLimits

HOME = "/home/agent"
SCRATCH = "/var/tmp"  # noqa: S108 -- inside
"""Where TMPDIR points: unlike in `/tmp`, programs in it may be executed."""
_CLOSED = "/root"
"""In images, only root may walk through it: a workspace below it stands in an empty volume instead.

Not in memory: runc gives a tmpfs the mode of the directory below it. The volume is root's, so that nobody inside
can write to it, and goes with the container.
"""
_SHM_BYTES = 64 * 1024**2
_OPEN_FILES = 4096
_PODMAN_PROCESSES = 16_384
"""RLIMIT_NPROC of one user: else Podman raises it to its own ceiling, which fails where it lacks CAP_SYS_RESOURCE."""
_CORE = 1
"""Of 0 the kernel still starts a program that collects core files, where the machine has one; of 1 it does not."""


@frozen
class ImageFacts:
    """What an image brings along."""

    id: str
    """Digest of its configuration: containers are made from this, not from a tag that may move."""
    reference: str
    environment: Mapping[str, str]
    volumes: tuple[str, ...]
    """Places it declares as volumes: they would be disk without a bound."""


def parse_image(reference: str, found: Mapping[str, Any]) -> ImageFacts:
    """Read an engine's answer about an image."""
    configuration = found.get("Config") or {}
    pairs = (str(one).partition("=") for one in configuration.get("Env") or ())
    return ImageFacts(
        id=str(found["Id"]),
        reference=reference,
        environment={name: value for name, _, value in pairs},
        volumes=tuple(sorted({_normal(str(place)) for place in configuration.get("Volumes") or {}})),
    )


def _normal(place: str) -> str:
    """A path inside as engines take it; `normpath` alone keeps two slashes at the start."""
    return f"/{os.path.normpath(place).lstrip('/')}"


@frozen
class Recipe:
    """All that decides how a container is made."""

    launch: Launch
    engine: EngineFacts
    image: ImageFacts
    limits: ContainerLimits
    labels: Mapping[str, str]
    runtime: str | None
    account_files: Mapping[str, Path]
    """Host files shown at places of `/etc`; empty where the engine does not see our files."""
    guest_filter: bytes
    """The system call filter that the guest puts on itself and all its commands, besides the engine's own default."""
    covers_guest: bool = False
    """Whether the guest covers its files below /proc, as the kernel lets every process of its uid open them."""

    @property
    def has_network(self) -> bool:
        """Whether something other than loopback was asked for."""
        return self.launch.spec.network != "none"


def _guest_options(recipe: Recipe) -> Iterator[str]:
    if recipe.covers_guest:
        yield "cover"
    yield recipe.guest_filter.hex()


def configuration(recipe: Recipe, *, volume: str | None = None) -> dict[str, Any]:
    """The body of `POST /containers/create` (Docker Engine API 1.41).

    Args:
        recipe: What decides it.
        volume: The volume with the workspace, where it is carried.
    """
    launch, spec = recipe.launch, recipe.launch.spec
    return {
        "Image": recipe.image.id,
        "Entrypoint": ["python3"],
        "Cmd": [*launch.argv, *_guest_options(recipe)],
        "User": f"{launch.placement.uid}:{launch.placement.gid}",
        "WorkingDir": "/",
        "Hostname": "ringfence",
        "Env": [],
        "Labels": dict(recipe.labels),
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        # A holder that dies closes the connection: then stdin ends, and with it the guest.
        "StdinOnce": True,
        "Tty": False,
        # The guest ignores what can be ignored: its end comes by the stream, or at once.
        "StopSignal": "SIGKILL",
        # An image's own check would run programs behind the guest's back; the guest's heartbeat is the check.
        "Healthcheck": {"Test": ["NONE"]},
        # Halves the start (74 against 150 ms); the engine then writes no /etc/hosts.
        "NetworkDisabled": not recipe.has_network and "/etc/hosts" in recipe.account_files,
        "HostConfig": _host_configuration(recipe, spec.network, volume=volume),
    }


def _host_configuration(recipe: Recipe, network: str, *, volume: str | None) -> dict[str, Any]:
    limits, facts = recipe.limits, recipe.engine
    made: dict[str, Any] = {
        "NetworkMode": network,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": _security_options(facts),
        "Privileged": False,
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"},
        "ShmSize": _SHM_BYTES,
        "Ulimits": list(_resource_limits(recipe)),
        "Tmpfs": dict(_memory_places(recipe)),
        "Mounts": list(_mounts(recipe, volume)),
    }
    if facts.is_podman and facts.is_rootless:
        made["UsernsMode"] = "keep-id"
    if recipe.runtime is not None:
        made["Runtime"] = recipe.runtime
    if limits.memory is not None:
        made |= {"Memory": limits.memory, "MemorySwap": limits.memory}
    if limits.cpus is not None:
        made["NanoCpus"] = round(limits.cpus * 1e9)
    if limits.pids is not None:
        made["PidsLimit"] = limits.pids
    if limits.cpuset is not None:
        made["CpusetCpus"] = limits.cpuset
    return made


def _resource_limits(recipe: Recipe) -> Iterator[dict[str, Any]]:
    yield {"Name": "core", "Soft": _CORE, "Hard": _CORE}
    yield {"Name": "nofile", "Soft": _OPEN_FILES, "Hard": _OPEN_FILES}
    if recipe.engine.is_podman:
        yield {"Name": "nproc", "Soft": _PODMAN_PROCESSES, "Hard": _PODMAN_PROCESSES}


def _security_options(facts: EngineFacts) -> list[str]:
    options = ["no-new-privileges:true"]
    if facts.has_apparmor and not facts.is_podman:
        options.append("apparmor=docker-default")
    return options


def memory_volumes(recipe: Recipe) -> tuple[str, ...]:
    """The image's volumes that are memory: all but those where something is mounted that was asked for."""
    placement = recipe.launch.placement
    taken = {
        str(placement.workspace),
        *(str(overlay.target) for overlay in placement.overlays),
        *(_normal(mount.target) for mount in recipe.launch.spec.mounts),
        *recipe.account_files,
        *((_CLOSED,) if stands_in_closed(placement) else ()),
    }
    return tuple(place for place in recipe.image.volumes if place not in taken)


def memory_places(recipe: Recipe) -> tuple[str, ...]:
    """Where a file system of memory is mounted."""
    return tuple(dict(_memory_places(recipe)))


def _memory_places(recipe: Recipe) -> Iterator[tuple[str, str]]:
    spec, placement = recipe.launch.spec, recipe.launch.placement
    size = f"size={int(spec.tmp)}"
    # Podman 4.3 takes no owner for a tmpfs; nobody else is inside.
    own = "mode=1777" if recipe.engine.is_podman else f"mode=0700,uid={placement.uid},gid={placement.gid}"
    for place in memory_volumes(recipe):
        yield place, f"rw,nosuid,nodev,exec,{size},mode=1777"
    yield "/tmp", f"rw,nosuid,nodev,{'exec' if spec.tmp_exec else 'noexec'},{size},mode=1777"  # noqa: S108
    yield SCRATCH, f"rw,nosuid,nodev,exec,{size},mode=1777"
    yield HOME, f"rw,nosuid,nodev,exec,{size},{own}"


def stands_in_closed(placement: Placement) -> bool:
    """Whether the way to the workspace leads through a directory that images keep closed."""
    return placement.workspace is not None and placement.workspace.is_relative_to(_CLOSED)


def _mounts(recipe: Recipe, volume: str | None) -> Iterator[dict[str, Any]]:
    launch = recipe.launch
    if stands_in_closed(launch.placement):
        options = {"NoCopy": True, "Labels": dict(recipe.labels)}
        yield {"Type": "volume", "Target": _CLOSED, "ReadOnly": False, "VolumeOptions": options}
    for target, file in recipe.account_files.items():
        yield _bind(file, target, read_only=True)
    placement = launch.placement
    if volume is not None:
        yield volume_mount(volume, str(placement.workspace), read_only=placement.workspace_read_only)
    else:
        yield from _shown(placement)
    for mount in launch.spec.mounts:
        yield _bind(mount.source, mount.target, read_only=mount.read_only)


def _shown(placement: Placement) -> Iterator[dict[str, Any]]:
    if placement.workspace is not None and placement.workspace_source is not None:
        yield _bind(
            placement.workspace_source, str(placement.workspace), read_only=placement.workspace_read_only
        )
    for overlay in placement.overlays:
        yield _bind(overlay.source, str(overlay.target), read_only=overlay.read_only)


def volume_mount(volume: str, target: str, *, read_only: bool) -> dict[str, Any]:
    """A volume in a container's configuration; what the image has at that place is not copied into it."""
    return {
        "Type": "volume",
        "Source": volume,
        "Target": target,
        "ReadOnly": read_only,
        "VolumeOptions": {"NoCopy": True},
    }


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    # What is mounted below a read-only source would stay writable (before Docker 25): it is not shown at all.
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": read_only},
    }

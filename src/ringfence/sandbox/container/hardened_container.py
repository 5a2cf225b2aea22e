"""Describes the hardened container of a sandbox, independent of its engine: configuration, limits and end reason."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.base import EndReason, Enforcement, Facts, Launch, Placement
from ringfence.sandbox.enforcement import Unenforced, enforcement
from ringfence.sandbox.spec import SandboxSpec

HOME = "/home/agent"
SCRATCH = "/var/tmp"  # noqa: S108 -- inside
"""The directory that TMPDIR names: unlike in `/tmp`, programs in it may be executed."""
SILENCE_LIMIT_S = 30.0
"""Silence after which the guest exits: an engine that is killed leaves its containers running, with an open stdin."""
_CLOSED = "/root"
"""In images, only root may walk through this directory: a workspace below it is in an empty volume instead.

A tmpfs will not do: runc gives it the mode of the directory below it. The volume belongs to root, so that no process
inside can write to it, and is removed with the container.
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_FROM_IMAGE = frozenset({"HOME", "USER", "LOGNAME", "HOSTNAME", "SHELL", "TMPDIR", "BASH_ENV", "ENV"})
LIMITS = frozenset({"memory", "cpus", "pids"})
_SENTRY_TASKS = 2000
"""Added to the engine's limit of processes on gVisor: its kernel is itself a process of the container, counts its
threads against `pids`, and crashes when it runs short of them (measured: at 100 under 32 commands at once)."""
_PROGRAM_PATHS = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT")
"""Variables that decide which programs and libraries the guest's interpreter is (ld.so(8))."""
KILLED_CODE = 128 + 9
_LOOPBACK = ("127.0.0.1", "localhost", "ringfence")


@frozen
class ImageFacts:
    """Properties of an image."""

    id: str
    """Digest of its configuration: containers are made from this, not from a tag that may move."""
    reference: str
    environment: Mapping[str, str]
    volumes: tuple[str, ...]
    """Directories that it declares as volumes, which would be unbounded disk."""
    is_own: bool = False
    """Whether ringfence built it, so that its programs can be trusted."""


@frozen
class MemoryMount:
    """A file system in memory: without set-id files and devices, always bounded."""

    target: str
    size_bytes: int
    may_execute: bool = True
    is_private: bool = False
    """Whether only the sandbox's own user may enter it."""


@frozen
class ContainerMount:
    """A mount inside. If it is read-only, mounts below its source on the host are not part of it."""

    target: str
    source: Path | str | None
    """A host path, a volume's name, or None for an empty volume that is removed with the container."""
    read_only: bool = False


@frozen
class ContainerLimits:
    """How the limits of one container are enforced."""

    enforced: dict[str, Enforcement]
    memory: int | None
    """The value for the engine, swap included; None where it cannot enforce it. The same holds for the next fields."""
    cpus: float | None
    pids: int | None
    cpuset: str | None


@frozen
class HardenedContainer:
    """The configuration of a container. Its namespaces are always private, and it is never restarted."""

    image: ImageFacts
    argv: tuple[str, ...]
    """The first process."""
    first_environment: Mapping[str, str]
    """The environment of the first process, which replaces the image's variables: they could make it run a program from
    a mount before the guest has put the system call filter on itself."""
    uid: int
    gid: int
    labels: Mapping[str, str]
    limits: ContainerLimits
    memory: tuple[MemoryMount, ...]
    mounts: tuple[ContainerMount, ...]
    """In this order."""
    files: Mapping[str, str]
    """Contents of files in /etc, for engines that can show them: the user's name, names of the loopback."""
    environment: Mapping[str, str]
    """The environment of commands inside."""
    network: str
    """`none`, or the name of an engine's network that was granted."""
    runtime: str | None
    """The OCI runtime; None: the engine's default."""
    masks_guest: bool
    """Whether the guest masks its files below /proc, as the kernel lets every process of its uid open them."""
    capabilities: tuple[str, ...] = ()
    read_only_root: bool = True
    no_new_privileges: bool = True
    hostname: str = "ringfence"
    open_files: int = 4096
    core_bytes: int = 1
    """At 0 the kernel still starts a program that collects core files, where the machine has one; at 1 it does not."""
    shm_bytes: int = 64 * 1024**2


def plan_limits(
    spec: SandboxSpec, unset: Mapping[str, str], *, is_gvisor: bool, processors: int, key: int
) -> ContainerLimits:
    """Decide how each limit is enforced.

    Args:
        spec: The requested sandbox.
        unset: Limits that the engine cannot set, and why.
        is_gvisor: Whether the container's kernel is gVisor.
        processors: How many the engine can choose from for a container; 0: it cannot choose.
        key: Any number; spreads containers over the processors.

    Raises:
        PolicyRefused: As `enforcement`.
    """
    enforced = enforcement(spec, unenforced_limits(unset, is_gvisor=is_gvisor))
    kept = LIMITS - unset.keys()
    pids = spec.pids + (_SENTRY_TASKS if is_gvisor else 0)
    return ContainerLimits(
        enforced,
        memory=spec.memory if "memory" in kept else None,
        cpus=spec.cpus if "cpus" in kept else None,
        pids=pids if "pids" in kept else None,
        cpuset=_processors(spec.cpus, processors, key) if "cpus" in kept else None,
    )


def unenforced_limits(unset: Mapping[str, str], *, is_gvisor: bool) -> Unenforced:
    """The limits that the kernel does not enforce, and why."""
    return {"pids": "gVisor's own threads count against it", **unset} if is_gvisor else unset


def _processors(cpus: float, processors: int, key: int) -> str | None:
    """As many processors as `cpus` fill, so that `nproc` is right inside; None for all of them."""
    count = -int(-cpus // 1)
    if not 0 < count < processors:
        return None
    first = key % processors
    return ",".join(str(one) for one in sorted((first + step) % processors for step in range(count)))


def harden(
    launch: Launch,
    image: ImageFacts,
    limits: ContainerLimits,
    *,
    labels: Mapping[str, str],
    guest_filter: bytes,
    runtime: str | None = None,
    masks_guest: bool = False,
    volume: str | None = None,
) -> HardenedContainer:
    """Decide how the container of a launch is configured.

    Args:
        launch: What is to be started.
        image: The image that it is made from.
        limits: The limits that the engine enforces.
        labels: Labels that say to whom it belongs.
        guest_filter: The system call filter that the guest puts on itself and all its commands.
        runtime: The OCI runtime; None: the engine's default.
        masks_guest: Whether the guest has to mask its files below /proc.
        volume: The volume that holds the workspace, where the engine does not see the host's directories.
    """
    placement, spec = launch.placement, launch.spec
    files = _account_files(placement, spec.host_names())
    mounts = tuple(_mounts(launch, volume))
    taken = {_normal(one.target) for one in mounts} | files.keys()
    taken |= {str(mount.target) for mount in placement.mounts}
    volumes = sorted(set(map(_normal, image.volumes)) - taken)
    return HardenedContainer(
        image=image,
        argv=("python3", *launch.argv, *(("mask",) if masks_guest else ()), guest_filter.hex()),
        first_environment=_first_environment(image, [*taken, *volumes, "/tmp", SCRATCH, HOME]),  # noqa: S108 -- inside
        uid=placement.uid,
        gid=placement.gid,
        labels=labels,
        limits=limits,
        memory=tuple(_memory(volumes, int(spec.tmp), may_execute_tmp=spec.tmp_exec)),
        mounts=mounts,
        files=files,
        environment=_environment(launch.sandbox_id, image),
        network=spec.network,
        runtime=runtime,
        masks_guest=masks_guest,
    )


def stands_in_closed(placement: Placement) -> bool:
    """Whether the workspace is below a directory that images keep closed."""
    return placement.workspace is not None and placement.workspace.is_relative_to(_CLOSED)


def _normal(place: str) -> str:
    """A path inside as engines take it; `normpath` alone keeps two slashes at the start."""
    return f"/{os.path.normpath(place).lstrip('/')}"


def _account_files(placement: Placement, names: tuple[str, ...]) -> dict[str, str]:
    nobody = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    return {
        "/etc/hosts": f"{' '.join((*_LOOPBACK, *names))}\n::1 localhost\n",
        "/etc/passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
        f"agent:x:{placement.uid}:{placement.gid}::{HOME}:/bin/bash\n{nobody}",
        "/etc/group": f"root:x:0:\nagent:x:{placement.gid}:\nnogroup:x:65534:\n",
    }


def _first_environment(image: ImageFacts, writable: Collection[str]) -> dict[str, str]:
    """The image's search paths without entries in a mount; a relative entry is below the working directory."""

    def is_image_own(entry: str) -> bool:
        place = _normal(entry)
        return entry.startswith("/") and not any(
            place == one or place.startswith(f"{one}/") for one in writable
        )

    paths = {"PATH": _PATH} | {
        name: image.environment.get(name, "") for name in _PROGRAM_PATHS if image.environment.get(name)
    }
    return {
        name: ":".join(entry for entry in re.split("[: ]", value) if is_image_own(entry))
        for name, value in paths.items()
    }


def _environment(sandbox_id: str, image: ImageFacts) -> dict[str, str]:
    return {
        "PATH": _PATH,
        "LANG": "C.UTF-8",
        **{key: value for key, value in image.environment.items() if key not in _NOT_FROM_IMAGE},
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "TMPDIR": SCRATCH,
        "RINGFENCE": sandbox_id,
    }


def _memory(volumes: list[str], size_bytes: int, *, may_execute_tmp: bool) -> Iterator[MemoryMount]:
    for place in volumes:
        yield MemoryMount(place, size_bytes)
    yield MemoryMount("/tmp", size_bytes, may_execute=may_execute_tmp)  # noqa: S108 -- inside
    yield MemoryMount(SCRATCH, size_bytes)
    yield MemoryMount(HOME, size_bytes, is_private=True)


def _mounts(launch: Launch, volume: str | None) -> Iterator[ContainerMount]:
    placement = launch.placement
    if stands_in_closed(placement):
        yield ContainerMount(_CLOSED, None)
    if placement.workspace is not None and (volume is not None or placement.workspace_source is not None):
        source = volume or placement.workspace_source
        yield ContainerMount(str(placement.workspace), source, placement.workspace_read_only)
    for bind in placement.mounts if volume is None else ():
        yield ContainerMount(str(bind.target), bind.source, bind.read_only)
    for mount in launch.spec.mounts:
        yield ContainerMount(mount.target, mount.source, mount.read_only)


def started_facts(
    container: HardenedContainer,
    launch: Launch,
    *,
    backend: str,
    engine: str,
    runtime: str,
    laps_ms: Mapping[str, float],
) -> Facts:
    """Build the facts of a sandbox in a container.

    Args:
        container: The container's configuration.
        launch: The launch that it was made for.
        backend: The backend's name.
        engine: The engine's product and version.
        runtime: The OCI runtime that the container uses.
        laps_ms: How long each step took.
    """
    placement, image = launch.placement, container.image
    is_written = placement.workspace is not None and not placement.workspace_read_only
    return Facts(
        backend=backend,
        enforced=container.limits.enforced,
        home=HOME,
        environment=container.environment,
        watched_paths=(str(placement.workspace),) if is_written else (),
        tmpfs_paths=(*(one.target for one in container.memory), "/dev/shm"),  # noqa: S108 -- inside
        notes=(
            f"engine: {engine}, runtime {runtime}, image {image.reference}",
            *_notes(container, placement),
        ),
        image=f"{image.reference} ({image.id})",
        engine=engine,
        laps_ms=dict(laps_ms),
        silence_limit_s=SILENCE_LIMIT_S,
        masks_guest=container.masks_guest,
        filters_guest=True,
    )


def _notes(container: HardenedContainer, placement: Placement) -> Iterator[str]:
    if placement.upload != "none":
        back = "and back when the sandbox ends" if placement.is_downloaded else "and stays there"
        yield f"the workspace is no mount: it is uploaded to the engine, {back}"
    memory = {one.target for one in container.memory}
    for place in sorted(memory & set(map(_normal, container.image.volumes))):
        yield f"the image's volume {place} is memory, gone at the end"
    if container.network != "none":
        yield f"UNSAFE: the sandbox is on the engine's network {container.network!r}"


def end_reason(exit_code: int, *, is_out_of_memory: bool, said: str = "") -> EndReason:
    """Classify why a container ended.

    Args:
        exit_code: Of its first process.
        is_out_of_memory: Whether its engine says that the memory limit killed something in it.
        said: The messages of the engine and the first process about it.
    """
    if exit_code == KILLED_CODE:
        if is_out_of_memory:
            return EndReason("memory", "the memory limit killed it")
        return EndReason("killed", "killed from outside")
    return EndReason(
        "exited", f"its first process ended with code {exit_code}" + (f": {said}" if said else "")
    )

"""Finds where control groups with limits can be created, or the reason why they cannot. Changes nothing.

Version 2 has the "no internal processes" rule: a group that enables controllers for its children holds no process
itself (the root is exempt). So the place is the nearest ancestor, our own group first, that already enables them or
is empty; or our own group if every process in it is ours, as these can then move into a leaf.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

from ringfence.frozen import frozen

Kind = Literal["v2", "v1", "systemd", "none"]

PREFIX = "ringfence-sandbox-"
"""Prefix of each group's name, followed by the sandbox's id."""
OWN_LEAF = "ringfence-host"
"""The leaf into which our own processes move."""

_CONTROLLERS = {"memory": "memory", "cpus": "cpu", "pids": "pids"}
_OCTAL = re.compile(r"\\([0-7]{3})")
_MOUNT = re.compile(r"^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S* (\S+)$", re.MULTILINE)
"""Root, mount point, type and options of a tree in `mountinfo` (proc_pid_mountinfo(5))."""
_HELP = (
    "to have limits start ringfence by `systemd-run --user --scope -p Delegate=yes ringfence ...`, be root, "
    "or let an administrator delegate a control group to you"
)


@frozen
class Hierarchy:
    """One mounted tree of control groups, and where a process is in it."""

    version: int
    controllers: frozenset[str]
    """Of version 1: those of this mount. Of version 2: empty, as each directory lists its own."""
    mount: Path
    own: Path
    """Directory of the process's own group."""


@frozen
class Place:
    """A directory in which groups are made, and the controllers that limit them."""

    directory: Path
    version: int
    controllers: frozenset[str]
    step_aside: bool = False
    """Our own processes must leave this group first."""


@frozen
class CgroupPlan:
    """How this user can enforce limits on this machine."""

    kind: Kind
    reason: str
    """The reason for this kind, for the user; for `none` with what to do about it."""
    can: Mapping[str, bool]
    """For each of `memory`, `cpus` and `pids`: whether the kernel will enforce it."""
    places: tuple[Place, ...] = ()


def plan(
    proc: Path = Path("/proc"), *, scopes: bool = False, environment: Mapping[str, str] = os.environ
) -> CgroupPlan:
    """Find the best way: version 2, version 1, `systemd-run` if the caller uses it, or none.

    Args:
        proc: Where procfs is mounted.
        scopes: The caller starts sandboxes by `launch_prefix` if the kind is `systemd`; else that kind is never
            returned, as nothing would set the limits.
        environment: Shows whether the user has a systemd instance (`XDG_RUNTIME_DIR`).
    """
    trees = hierarchies(proc)
    if not trees:
        return _none("no control groups are mounted here; mount /sys/fs/cgroup to have limits")
    options = [_v2(tree, proc) for tree in trees if tree.version == 2]
    options.append(_v1(trees))
    if scopes:
        options.append(_systemd(trees, environment))
    best = max(options, key=lambda option: sum(option.can.values()))
    if any(best.can.values()):
        return best
    return _none("; ".join([*(option.reason for option in options), _HELP]))


def hierarchies(proc: Path, pid: str = "self") -> list[Hierarchy]:
    """All visible trees that `pid` is in; empty if there are none."""
    try:
        # Other users choose the names of mounts and groups: any bytes but line ends.
        mounts = (proc / "self" / "mountinfo").read_text(errors="surrogateescape")
        memberships = (proc / pid / "cgroup").read_text(errors="surrogateescape")
    except OSError:
        return []
    groups = []
    for line in filter(None, memberships.split("\n")):
        _, names, path = line.split(":", 2)
        groups.append((frozenset(filter(None, names.split(","))), path))
    found = []
    for root, mount, kind, options in _MOUNT.findall(mounts):
        version = 2 if kind == "cgroup2" else 1
        # The options of a version 1 mount are its controllers and settings. Version 2 mounts name no controllers.
        named = set(options.split(","))
        mount_point = Path(_unescape(mount))
        for controllers, path in groups:
            if controllers <= named and bool(controllers) == (version == 1):
                own = _below(mount_point, _unescape(root), path)
                if own is not None and own.is_dir():
                    found.append(Hierarchy(version, controllers, mount_point, own))
    return found


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _below(mount: Path, root: str, path: str) -> Path | None:
    """Directory of group `path` where `root` is mounted; None where it lies outside what is mounted."""
    if "/.." in path or "/.." in root:
        return None
    try:
        return mount / PurePosixPath(path).relative_to(root)
    except ValueError:
        return None


def members(directory: Path) -> list[int]:
    """Processes in a group itself, without its children; empty if it is gone."""
    return [int(pid) for pid in read_fields(directory / "cgroup.procs")]


def read_fields(file: Path) -> list[str]:
    """The fields of a file, separated by white space; empty if it is not there."""
    try:
        return file.read_text().split()
    except OSError:
        return []


def _is_writable(directory: Path) -> bool:
    """Whether groups can be made in a directory and processes moved there (false on a read-only mount)."""
    return os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK)


def _none(reason: str) -> CgroupPlan:
    return CgroupPlan("none", reason, dict.fromkeys(_CONTROLLERS, False))


def _can(controllers: frozenset[str]) -> dict[str, bool]:
    return {limit: controller in controllers for limit, controller in _CONTROLLERS.items()}


def _v1(trees: list[Hierarchy]) -> CgroupPlan:
    wanted = frozenset(_CONTROLLERS.values()) | {"cpuacct"}
    mounted = [tree for tree in trees if tree.version == 1 and tree.controllers & wanted]
    writable = [tree for tree in mounted if _is_writable(tree.own)]
    named = ", ".join(str(tree.own) for tree in writable or mounted)
    if writable:
        places = tuple(Place(tree.own, 1, tree.controllers & wanted) for tree in writable)
        can = _can(frozenset().union(*(place.controllers for place in places)))
        return CgroupPlan("v1", f"version 1 groups below {named} can be written", can, places)
    if mounted:
        return _none(f"version 1 groups {named} belong to somebody else")
    return _none("no version 1 control groups with memory, cpu or pids are mounted")


def _v2(tree: Hierarchy, proc: Path) -> CgroupPlan:
    own = tree.own.parent if tree.own.name == OWN_LEAF else tree.own
    candidates = [one for one in (own, *own.parents) if one.is_relative_to(tree.mount)]
    places = [place for place in (_place(one, own, proc) for one in candidates) if place]
    if not places:
        return _none(f"version 2 group {own} is not delegated to us, or holds other processes")
    best = max(places, key=lambda place: sum(_can(place.controllers).values()))
    reason = f"version 2 group {best.directory} passes on {', '.join(sorted(best.controllers)) or 'nothing'}"
    return CgroupPlan("v2", reason, _can(best.controllers), (best,))


def _place(directory: Path, own: Path, proc: Path) -> Place | None:
    """The place for groups below a version 2 group, with the limits it can set; None if no group can be made there."""
    if not _is_writable(directory):
        return None
    available = frozenset(read_fields(directory / "cgroup.controllers")) & set(_CONTROLLERS.values())
    enabled = frozenset(read_fields(directory / "cgroup.subtree_control")) & available
    if not os.access(directory / "cgroup.subtree_control", os.W_OK):
        return Place(directory, 2, enabled)
    is_root = not (directory / "cgroup.type").exists()
    inhabitants = members(directory)
    if is_root or not inhabitants:
        return Place(directory, 2, available)
    if directory == own and all(_descends_from_us(pid, proc) for pid in inhabitants):
        return Place(directory, 2, available, step_aside=True)
    return Place(directory, 2, enabled) if enabled else None


def _descends_from_us(pid: int, proc: Path) -> bool:
    while pid > 1 and pid != os.getpid():
        try:
            # After the command's name, which may contain blanks and parentheses, come the state and the parent's id.
            pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return pid == os.getpid()


def _systemd(trees: list[Hierarchy], environment: Mapping[str, str]) -> CgroupPlan:
    runtime = environment.get("XDG_RUNTIME_DIR") or "/-"
    program = shutil.which("systemd-run", path="/usr/local/bin:/usr/bin:/bin")
    if program is None or not (Path(runtime) / "systemd" / "private").exists():
        return _none("no systemd of the user's own is running")
    uid = os.getuid()
    for tree in trees:
        service = tree.mount / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service"
        can = _can(
            frozenset(read_fields(service / "cgroup.controllers")) if tree.version == 2 else frozenset()
        )
        if any(can.values()):
            return CgroupPlan("systemd", f"`systemd-run --user --scope` below {service}", can)
    return _none("the user's systemd has no controllers delegated")

"""Looks for a place where limits can be had, and says why where there is none. Changes nothing.

Version 2 has the "no internal processes" rule: a group that passes controllers on holds no process itself
(the very root is exempt). So a place is the nearest ancestor, our own group first, which already passes them
on or is empty; or our own group if every process in it is ours, for then they can step aside into a leaf.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ringfence.frozen import frozen
from ringfence.sandbox.cgroup.hierarchy import Hierarchy, hierarchies, is_writable, members, words

Kind = Literal["v2", "v1", "systemd", "none"]

ASIDE = "ringfence-host"
"""The leaf into which our own processes step aside."""

_CONTROLLERS = {"memory": "memory", "cpus": "cpu", "pids": "pids"}
_HELP = (
    "to have limits start ringfence by `systemd-run --user --scope -p Delegate=yes ringfence ...`, be root, "
    "or let an administrator delegate a control group to you"
)


@frozen
class Place:
    """A directory in which the `ringfence` group is made, and what it limits."""

    directory: Path
    version: int
    controllers: frozenset[str]
    step_aside: bool = False
    """Our own processes must leave this group first."""


@frozen
class CgroupPlan:
    """How limits can be enforced on this machine by this user."""

    kind: Kind
    reason: str
    """What was found, for people; for `none` also what to do."""
    can: Mapping[str, bool]
    """For each of `memory`, `cpus` and `pids`: whether the kernel will enforce it."""
    places: tuple[Place, ...] = ()


def plan(
    proc: Path = Path("/proc"), *, scopes: bool = False, environment: Mapping[str, str] = os.environ
) -> CgroupPlan:
    """Find the best way: version 2, version 1, `systemd-run` if the caller can launch so, or none.

    Args:
        proc: Where procfs is mounted.
        scopes: The caller starts sandboxes by `launch_prefix` where that is the way; else kind `systemd` is
            never given, for limits would be promised that nobody sets.
        environment: Says whether the user has a systemd of his own (`XDG_RUNTIME_DIR`).
    """
    trees = hierarchies(proc)
    if not trees:
        return _none("no control groups are mounted here; mount /sys/fs/cgroup to have limits")
    options = [_v2(tree, proc) for tree in trees if tree.version == 2]
    options.append(_v1(trees))
    if scopes:
        options.append(_systemd(trees, environment))
    best = max(options, key=lambda option: sum(option.can.values()))
    return (
        best if any(best.can.values()) else _none("; ".join([*(option.reason for option in options), _HELP]))
    )


def _none(reason: str) -> CgroupPlan:
    return CgroupPlan("none", reason, dict.fromkeys(_CONTROLLERS, False))


def _can(controllers: frozenset[str]) -> dict[str, bool]:
    return {limit: controller in controllers for limit, controller in _CONTROLLERS.items()}


def _v1(trees: list[Hierarchy]) -> CgroupPlan:
    wanted = frozenset(_CONTROLLERS.values()) | {"cpuacct"}
    mounted = [tree for tree in trees if tree.version == 1 and tree.controllers & wanted]
    writable = [tree for tree in mounted if is_writable(tree.own)]
    places = tuple(Place(tree.own, 1, tree.controllers & wanted) for tree in writable)
    can = _can(frozenset().union(*(place.controllers for place in places)))
    if places:
        return CgroupPlan("v1", f"version 1 groups below {_named(writable)} can be written", can, places)
    if mounted:
        return _none(f"version 1 groups {_named(mounted)} belong to somebody else")
    return _none("no version 1 control groups with memory, cpu or pids are mounted")


def _named(trees: list[Hierarchy]) -> str:
    return ", ".join(str(tree.own) for tree in trees)


def _v2(tree: Hierarchy, proc: Path) -> CgroupPlan:
    own = tree.own.parent if tree.own.name == ASIDE else tree.own
    offered = [place for place in (_offer(one, own, proc) for one in _upwards(own, tree.mount)) if place]
    if not offered:
        return _none(f"version 2 group {own} is not delegated to us, or holds other processes")
    best = max(offered, key=lambda place: sum(_can(place.controllers).values()))
    reason = f"version 2 group {best.directory} passes on {', '.join(sorted(best.controllers)) or 'nothing'}"
    return CgroupPlan("v2", reason, _can(best.controllers), (best,))


def _upwards(directory: Path, mount: Path) -> list[Path]:
    return [one for one in (directory, *directory.parents) if one.is_relative_to(mount)]


def _offer(directory: Path, own: Path, proc: Path) -> Place | None:
    """What a version 2 group could limit below itself; None if nothing can be made there."""
    if not is_writable(directory):
        return None
    available = words(directory / "cgroup.controllers") & set(_CONTROLLERS.values())
    enabled = words(directory / "cgroup.subtree_control") & available
    if not os.access(directory / "cgroup.subtree_control", os.W_OK):
        return Place(directory, 2, enabled)
    is_root = not (directory / "cgroup.type").exists()
    inhabitants = members(directory)
    if is_root or not inhabitants:
        return Place(directory, 2, available)
    if directory == own and _are_ours(inhabitants, proc):
        return Place(directory, 2, available, step_aside=True)
    return Place(directory, 2, enabled) if enabled else None


def _are_ours(pids: list[int], proc: Path) -> bool:
    """Whether all processes are ourselves or descend from us."""
    return all(_descends(pid, os.getpid(), proc) for pid in pids)


def _descends(pid: int, ancestor: int, proc: Path) -> bool:
    while pid > 1 and pid != ancestor:
        try:
            # Behind the command's name, which may hold blanks and parentheses: state, then the parent's id.
            pid = int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return pid == ancestor


def _systemd(trees: list[Hierarchy], environment: Mapping[str, str]) -> CgroupPlan:
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    unified = [tree for tree in trees if tree.version == 2]
    if (
        shutil.which("systemd-run", path="/usr/local/bin:/usr/bin:/bin") is None
        or not (Path(runtime or "/-") / "systemd" / "private").exists()
    ):
        return _none("no systemd of the user's own is running")
    uid = os.getuid()
    for tree in unified:
        service = tree.mount / "user.slice" / f"user-{uid}.slice" / f"user@{uid}.service"
        can = _can(words(service / "cgroup.controllers"))
        if any(can.values()):
            return CgroupPlan("systemd", f"`systemd-run --user --scope` below {service}", can)
    return _none("the user's systemd has no controllers delegated")

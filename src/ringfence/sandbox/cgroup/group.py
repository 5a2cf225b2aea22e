"""Creates, measures, kills and removes a sandbox's control group, also after a crash."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ringfence.errors import SandboxStartFailed
from ringfence.frozen import frozen
from ringfence.sandbox.base import Usage
from ringfence.sandbox.cgroup.limits import GroupLimits, apply, check, settings_for, write
from ringfence.sandbox.cgroup.plan import OWN_LEAF, PREFIX, Place, hierarchies, members, read_fields

_DEADLINE_S = 5.0
_POLL_S = 0.005


@frozen
class Cgroup:
    """A control group with its limits. In version 1 it is one directory per tree."""

    sandbox_id: str
    directories: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Move a process in; children that it starts later are in it, too.

        Raises:
            SandboxStartFailed: The kernel refuses.
        """
        for directory in self.directories:
            write(directory / "cgroup.procs", str(pid))

    def entrances(self) -> tuple[Path, ...]:
        """Files to which a process of one thread writes `0` to move itself in.

        In version 1 that takes a tenth of a millisecond, where `add` waits about 10 ms: moving another process, or
        one's own threads together, first stops all forks of the machine (kernel/cgroup/cgroup.c,
        `cgroup_procs_write_start`).
        """
        return tuple(
            directory / ("tasks" if (directory / "tasks").exists() else "cgroup.procs")
            for directory in self.directories
        )

    def members(self) -> frozenset[int]:
        """Processes in the group, and in groups that were made below it."""
        return frozenset(pid for top in self.directories for one in _tree(top) for pid in members(one))

    def usage(self) -> Usage:
        """The total usage of everything inside, by the kernel's counters."""
        microseconds = self._counter(("cpu.stat", "usage_usec"))
        nanoseconds = self._counter(("cpuacct.usage", None))
        cpu_s = nanoseconds and nanoseconds / 1e9 if microseconds is None else microseconds / 1e6
        return Usage(
            memory_bytes=self._counter(("memory.current", None), ("memory.usage_in_bytes", None)),
            cpu_s=cpu_s,
            pids=self._counter(("pids.current", None)),
            oom_kills=self._counter(("memory.events", "oom_kill"), ("memory.oom_control", "oom_kill")),
            forks_refused=self._counter(("pids.events", "max")),
        )

    def _counter(self, *sources: tuple[str, str | None]) -> int | None:
        """The number in the first of these files that exists: its only number, or the one after a key."""
        for file, key in sources:
            for directory in self.directories:
                fields = read_fields(directory / file)
                position = 0 if key is None else (fields.index(key) + 1 if key in fields else len(fields))
                if position < len(fields) and fields[position].isdigit():
                    return int(fields[position])
        return None

    def kill(self) -> None:
        """Kill everything inside and wait until it is gone, at most 5 s; blocks."""
        for directory in self.directories:
            with suppress(OSError):
                (directory / "pids.max").write_text("0")  # so that no process is forked meanwhile
            with suppress(OSError):
                (directory / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + _DEADLINE_S
        while (pids := self.members()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)

    def remove(self) -> bool:
        """Remove the group, whose processes are dead or dying; blocks.

        Returns:
            False if something is still inside; then it is left for `remove_leftovers`.
        """
        deadline = time.monotonic() + _DEADLINE_S
        remaining = self.directories
        while remaining := tuple(top for top in remaining if not _remove_tree(top)):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def create(sandbox_id: str, limits: GroupLimits, places: Sequence[Place]) -> Cgroup:
    """Create a sandbox's group with those limits that the places can enforce; read each one back.

    Args:
        sandbox_id: Names the group.
        limits: Its limits. One that no place can enforce is not set: a caller that needs it checks the plan first.
        places: Of a plan.

    Raises:
        SandboxStartFailed: The kernel did not take a limit.
    """
    directories: list[Path] = []
    try:
        for place in places:
            directories.append(_make(place, sandbox_id))
            for setting in settings_for(place.version, limits):
                if setting.controller in place.controllers:
                    apply(directories[-1], setting)
    except BaseException:
        Cgroup(sandbox_id, tuple(directories)).remove()
        raise
    return Cgroup(sandbox_id, tuple(directories))


def adopt(sandbox_id: str, pid: int, limits: GroupLimits, proc: Path = Path("/proc")) -> Cgroup:
    """Take over the group that `systemd-run` made around `pid`, after reading its limits back.

    Raises:
        SandboxStartFailed: It is not there or its limits are different.
    """
    tree = next((tree for tree in hierarchies(proc, str(pid)) if tree.version == 2), None)
    if tree is None:
        raise SandboxStartFailed(f"process {pid} of sandbox {sandbox_id!r} is in no version 2 control group")
    for setting in settings_for(2, limits):
        check(tree.own, setting)
    return Cgroup(sandbox_id, (tree.own,))


def leftovers(proc: Path = Path("/proc")) -> dict[str, Cgroup]:
    """The groups of all sandboxes, living or dead, in the visible trees, by sandbox id."""
    found: dict[str, list[Path]] = {}
    for mount in dict.fromkeys(tree.mount for tree in hierarchies(proc)):
        for path, children, _ in os.walk(mount):
            for child in [name for name in children if name.startswith(PREFIX)]:
                found.setdefault(child.removeprefix(PREFIX), []).append(Path(path, child))
                children.remove(child)
    return {sandbox_id: Cgroup(sandbox_id, tuple(paths)) for sandbox_id, paths in found.items()}


def remove_leftovers(sandbox_ids: frozenset[str], proc: Path = Path("/proc")) -> list[str]:
    """Kill the remaining processes in these sandboxes' groups and remove the groups; return those removed. Blocks."""
    removed = []
    for sandbox_id, group in leftovers(proc).items():
        if sandbox_id in sandbox_ids:
            group.kill()
            if group.remove():
                removed.append(f"control group {sandbox_id}")
    return removed


def _make(place: Place, sandbox_id: str) -> Path:
    """Create a sandbox's group in a place."""
    if place.step_aside:
        _step_aside(place.directory)
    directory = place.directory / f"{PREFIX}{sandbox_id}"
    try:
        if place.version == 2:
            _enable(place.directory, place.controllers)
        directory.mkdir()
    except OSError as exc:
        raise SandboxStartFailed(f"could not make control group {str(directory)!r}: {exc.strerror}") from exc
    return directory


def _enable(directory: Path, controllers: frozenset[str]) -> None:
    """Enable controllers for the groups in a version 2 group."""
    missing = controllers - set(read_fields(directory / "cgroup.subtree_control"))
    if missing:
        words = " ".join(f"+{name}" for name in sorted(missing))
        (directory / "cgroup.subtree_control").write_text(words)


def _step_aside(directory: Path) -> None:
    """Move our own processes into a leaf."""
    leaf = directory / OWN_LEAF
    leaf.mkdir(exist_ok=True)
    for pid in members(directory):
        with suppress(ProcessLookupError):
            (leaf / "cgroup.procs").write_text(str(pid))


def _tree(top: Path) -> list[Path]:
    """A group and all below it, children first."""
    return [Path(path) for path, _, _ in os.walk(top, topdown=False)]


def _remove_tree(top: Path) -> bool:
    """Try to remove a group and all groups below it; return whether it is gone."""
    for directory in _tree(top):
        with suppress(OSError):
            directory.rmdir()
    return not top.exists()

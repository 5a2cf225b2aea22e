"""One sandbox's control group: made with its limits, read back, asked, killed, removed."""

import errno
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Usage
from ringfence.sandbox.cgroup.hierarchy import PARENT, counter, hierarchies, members, words
from ringfence.sandbox.cgroup.limits import apply, check, settings_for, write, write_raw
from ringfence.sandbox.cgroup.plan import ASIDE, CgroupPlan, Place, plan

_DEADLINE_S = 5.0
_POLL_S = 0.005
_MAKE_TRIES = 50


@frozen
class Cgroup:
    """A group with its limits. In version 1 that is one directory per tree."""

    sandbox_id: str
    directories: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Move a process in; its later children are in too.

        Raises:
            SandboxStartFailed: The kernel refuses.
        """
        for directory in self.directories:
            write(directory / "cgroup.procs", str(pid))

    def entrances(self) -> tuple[Path, ...]:
        """Files to which a process of one thread writes `0` to get in by itself.

        In version 1 that takes a tenth of a millisecond, where `add` waits about 10 ms: moving another process, or
        one's own threads together, stops all forks of the machine first (kernel/cgroup/cgroup.c,
        `cgroup_procs_write_start`).
        """
        return tuple(
            directory / ("tasks" if (directory / "tasks").exists() else "cgroup.procs")
            for directory in self.directories
        )

    def members(self) -> frozenset[int]:
        """Processes in it, those of groups that were made below it included."""
        return frozenset(pid for top in self.directories for one in _tree(top) for pid in members(one))

    def usage(self) -> Usage:
        """What all inside use together, by the kernel's account."""
        return Usage(
            memory_bytes=self._first(("memory.current", None), ("memory.usage_in_bytes", None)),
            cpu_s=self._cpu_s(),
            pids=self._first(("pids.current", None)),
            oom_kills=self._first(("memory.events", "oom_kill"), ("memory.oom_control", "oom_kill")),
            forks_refused=self._first(("pids.events", "max")),
        )

    def kill(self) -> None:
        """Kill everything inside and wait until it is gone; blocks, at most 5 s. The dead are no error."""
        for directory in self.directories:
            with suppress(OSError):
                write_raw(directory / "pids.max", "0")  # nothing new is born while we kill
        for directory in self.directories:
            with suppress(OSError):
                write_raw(directory / "cgroup.kill", "1")
        deadline = time.monotonic() + _DEADLINE_S
        while (pids := self.members()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)

    def remove(self) -> bool:
        """Remove the group, whose processes are dead or dying, and the common parent if it is empty.

        Blocks (the kernel tells nobody when a group may go), usually for no time and at most 5 s.

        Returns:
            False if something is still inside; then it is left for `remove_leftovers`.
        """
        deadline = time.monotonic() + _DEADLINE_S
        while _remove_trees(self.directories) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        _remove_parents(self.directories)
        return not any(directory.exists() for directory in self.directories)

    def _first(self, *sources: tuple[str, str | None]) -> int | None:
        values = (counter(d / file, name) for file, name in sources for d in self.directories)
        return next((value for value in values if value is not None), None)

    def _cpu_s(self) -> float | None:
        micro = self._first(("cpu.stat", "usage_usec"))
        nano = self._first(("cpuacct.usage", None))
        if micro is not None:
            return micro / 1e6
        return None if nano is None else nano / 1e9


def create(
    sandbox_id: str,
    memory_bytes: int | None,
    cpus: float | None,
    pids: int | None,
    *,
    where: CgroupPlan | None = None,
) -> Cgroup | None:
    """Make a sandbox's group with those limits that the plan can enforce; each is read back.

    Whoever needs a limit asks `plan().can` first: what it denies is not limited here.

    Args:
        sandbox_id: Names the group.
        memory_bytes: Memory and swap together; None: not limited. Rounded down to whole pages.
        cpus: Processor seconds per second; None: not limited. At least 0.01.
        pids: Processes and threads; None: not limited.
        where: None: by `plan()`.

    Returns:
        None if the plan is of kind `none`.

    Raises:
        SandboxStartFailed: The kernel did not take a limit as asked.
        UsageError: The plan is to launch by `launch_prefix`; follow it by `adopt`.
    """
    where = plan() if where is None else where
    if where.kind == "systemd":
        raise UsageError(f"the group of {sandbox_id!r} is made by launch_prefix and taken over by adopt")
    if not where.places:
        return None
    directories: list[Path] = []
    try:
        for place in where.places:
            directory = _make(place, sandbox_id)
            directories.append(directory)
            for setting in settings_for(place.version, memory_bytes, cpus, pids):
                if setting.controller in place.controllers:
                    apply(directory, setting)
    except BaseException:
        _remove_trees(directories)
        _remove_parents(directories)
        raise
    return Cgroup(sandbox_id, tuple(directories))


def adopt(
    sandbox_id: str,
    pid: int,
    *,
    memory_bytes: int | None,
    cpus: float | None,
    pids: int | None,
    proc: Path = Path("/proc"),
) -> Cgroup:
    """Take over the group that `systemd-run` made around `pid`, after reading its limits back.

    Raises:
        SandboxStartFailed: It is not there or its limits are not as asked.
    """
    tree = next((tree for tree in hierarchies(proc, str(pid)) if tree.version == 2), None)
    if tree is None:
        raise SandboxStartFailed(f"process {pid} of sandbox {sandbox_id!r} is in no version 2 control group")
    for setting in settings_for(2, memory_bytes, cpus, pids):
        if not setting.optional or (tree.own / setting.file).exists():
            check(tree.own, setting)
    return Cgroup(sandbox_id, (tree.own,))


def _make(place: Place, sandbox_id: str) -> Path:
    """Make `ringfence/<sandbox_id>` in a place; the parent may be removed by another of us meanwhile."""
    if place.step_aside:
        _step_aside(place.directory)
    parent = place.directory / PARENT
    try:
        for _ in range(_MAKE_TRIES):
            directory = _make_below(parent, place, sandbox_id)
            if directory is not None:
                return directory
        raise FileNotFoundError(errno.ENOENT, "its parent was removed again and again")
    except OSError as exc:
        raise SandboxStartFailed(
            f"could not make control group {str(parent / sandbox_id)!r}: {exc.strerror}"
        ) from exc


def _make_below(parent: Path, place: Place, sandbox_id: str) -> Path | None:
    """None where another of us, removing its own group, took the parent away meanwhile."""
    # Not `exist_ok`: that looks again whether it is a directory, and finds it gone.
    with suppress(FileExistsError):
        parent.mkdir()
    directory = parent / sandbox_id
    try:
        if place.version == 2:
            _pass_on(place.directory, place.controllers)
            _pass_on(parent, place.controllers)
        directory.mkdir()
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENODEV):
            return None
        raise
    return directory


def _pass_on(directory: Path, controllers: frozenset[str]) -> None:
    missing = controllers - words(directory / "cgroup.subtree_control")
    if missing:
        write_raw(directory / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def _step_aside(directory: Path) -> None:
    leaf = directory / ASIDE
    with suppress(FileExistsError):
        leaf.mkdir()
    for pid in members(directory):
        with suppress(ProcessLookupError):
            write_raw(leaf / "cgroup.procs", str(pid))


def _tree(top: Path) -> list[Path]:
    """A group and all below it, children first."""
    return [Path(path) for path, _, _ in os.walk(top, topdown=False)]


def _remove_trees(tops: Sequence[Path]) -> list[Path]:
    """Try to remove groups with all below them; return those that are still there."""
    for top in tops:
        for directory in _tree(top):
            with suppress(OSError):
                directory.rmdir()
    return [top for top in tops if top.exists()]


def _remove_parents(directories: Sequence[Path]) -> None:
    """Remove the common parents, where nothing else is in them."""
    for directory in directories:
        if directory.parent.name == PARENT:
            with suppress(OSError):
                directory.parent.rmdir()

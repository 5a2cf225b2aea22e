"""Enforces limits by measurement where the kernel cannot enforce them.

Measured limits are soft. Memory (what processes use, by themselves and shared, and sockets by their number) and
processes are measured four times a second; disk is the size of the files that changed since the start. What is
allocated and freed between two measurements is not seen.
"""

from __future__ import annotations

import _stat as stat
import posix as os
import time

from . import processes, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_WALK_S = 0.005
"""Longest time that one step of the walk over files may block everything else."""


class Watchdog:
    """Compares usage with limits."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._paths: list[str] = []
        self._tmpfs: list[str] = []
        self._started = time.time()
        self._walk: Iterator[int] | None = None
        self._walked = 0
        self._free_at_start = 0

    def configure(self, pairs: list[tuple[str, str]]) -> None:
        """Set the limits `memory`, `pids`, `disk`, and each `path` and `tmpfs` to measure."""
        for key, value in pairs:
            if key == "path":
                self._paths.append(value)
            elif key == "tmpfs":
                self._tmpfs.append(value)
            elif key in ("memory", "pids", "disk"):
                self._limits[key] = int(value)
        self._free_at_start = usage.free_space(self._paths)

    def measure(self) -> dict[str, object]:
        """The total usage of everything inside."""
        return usage.measure(self._tmpfs)

    def exceeded(self, shims: list[int]) -> list[tuple[str, int]]:
        """(limit, shim) of each limit that is exceeded; the shim is that of the command that uses most."""
        if not shims:
            return []
        found = []
        if "memory" in self._limits or "pids" in self._limits:
            table = processes.list_processes()
            trees = {pid: processes.descendants(pid, table) for pid in shims}
            if "memory" in self._limits and self._is_memory_exceeded(trees):
                found.append(("memory", max(trees, key=lambda pid: usage.memory_at_most(trees[pid]))))
            if "pids" in self._limits and sum(map(len, trees.values())) > self._limits["pids"]:
                found.append(("pids", max(trees, key=lambda pid: len(trees[pid]))))
        if "disk" in self._limits and self._is_disk_exceeded():
            found.append(("disk", max(shims)))
        return found

    def _is_memory_exceeded(self, trees: dict[int, list[int]]) -> bool:
        pids = [pid for tree in trees.values() for pid in tree]
        return usage.memory_of(pids, self._tmpfs) + usage.socket_memory() > self._limits["memory"]

    def _is_disk_exceeded(self) -> bool:
        """Take one step of a walk over the files; return true once a walk finds more than the limit."""
        if self._walk is None:
            if self._free_at_start - usage.free_space(self._paths) < self._limits["disk"]:
                return False  # the free space of the whole file system has not shrunk that much
            self._walk, self._walked = self._changed_sizes(), 0
        deadline = time.monotonic() + _WALK_S
        for size in self._walk:
            self._walked += size
            if self._walked > self._limits["disk"]:
                self._walk = None
                return True
            if time.monotonic() > deadline:
                return False
        self._walk = None
        return False

    def _changed_sizes(self) -> Iterator[int]:
        from os import fwalk  # all of os: only where files are counted

        for root in self._paths:
            for _directory, _names, files, descriptor in fwalk(root, follow_symlinks=False):
                for name in files:
                    try:
                        status = os.lstat(name, dir_fd=descriptor)
                    except OSError:
                        continue
                    if stat.S_ISREG(status.st_mode) and status.st_ctime >= self._started:
                        yield status.st_blocks * 512
                yield 0

"""The sandbox's own time limit, and limits by measurement where the kernel cannot enforce them.

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

_INTERVAL_S = 0.25
_WALK_S = 0.005
"""Longest time that one step of the walk over files may take from everything else."""


class Watchdog:
    """Compares use with limits."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._paths: list[str] = []
        self._tmpfs: list[str] = []
        self._ends_at: float | None = None
        self._silence_s: float | None = None
        self._next_check = 0.0
        self._started = time.time()
        self._walk: Iterator[int] | None = None
        self._walked = 0
        self._free_at_start = 0

    def configure(self, pairs: list[tuple[str, str]]) -> None:
        """Set the limits `ttl_s`, `silence_s`, `memory`, `pids`, `disk`, and each `path` and `tmpfs` to measure."""
        for key, value in pairs:
            if key == "path":
                self._paths.append(value)
            elif key == "tmpfs":
                self._tmpfs.append(value)
            elif key == "ttl_s":
                self._ends_at = time.monotonic() + float(value)
            elif key == "silence_s":
                self._silence_s = float(value)
            else:
                self._limits[key] = int(value)
        self._free_at_start = usage.free_space(self._paths)

    def deadlines(self, has_commands: bool, received_at: float) -> list[float]:
        """When (monotonic) to check next; the host's last frame was received at `received_at`."""
        times = [] if self._ends_at is None else [self._ends_at]
        if self._silence_s is not None:
            times.append(received_at + self._silence_s)
        return [*times, self._next_check] if self._limits and has_commands else times

    def is_expired(self, now: float) -> bool:
        """Whether the sandbox's time is up."""
        return self._ends_at is not None and now >= self._ends_at

    def is_abandoned(self, now: float, received_at: float) -> bool:
        """Whether the host has been silent for so long that it, or what connects us to it, must be gone."""
        return self._silence_s is not None and now >= received_at + self._silence_s

    def measure(self) -> dict[str, object]:
        """What everything inside uses together."""
        return usage.measure(self._tmpfs)

    def exceeded(self, now: float, shims: list[int]) -> list[tuple[str, int]]:
        """(limit, shim) of each limit that is exceeded; the shim is that of the command that uses most."""
        if not self._limits or not shims or now < self._next_check:
            return []
        self._next_check = now + _INTERVAL_S
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
        """Take one step of a walk over the files; true once a walk finds more than the limit."""
        if self._walk is None:
            if self._free_at_start - usage.free_space(self._paths) < self._limits["disk"]:
                return False  # the whole file system has not lost as much
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

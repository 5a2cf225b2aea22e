"""Limits by measuring, for where the kernel cannot enforce them; and the sandbox's own time limit.

What is soft here: memory is what processes hold, by themselves and shared, and sockets by their number, four times a
second; disk is the size of files changed since the start. A burst between two looks gets through.
"""

from __future__ import annotations

import _stat as stat
import posix as os
import time

from . import account, memory, tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERVAL_S = 0.25
_SLICE_S = 0.005
_TICKS = 100


class Watchdog:
    """Looks at what everything inside uses together."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._paths: list[str] = []
        self._tmpfs: list[str] = []
        self._ends_at: float | None = None
        self._silence_s: float | None = None
        self._next = 0.0
        self._started = time.time()
        self._walk: Iterator[int] | None = None
        self._walked = 0
        self._free_at_start = 0

    def configure(self, pairs: list[tuple[str, str]]) -> None:
        """Take limits: `ttl_s`, `silence_s`, `memory`, `pids`, `disk`, and each `path` and `tmpfs` to measure."""
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
        self._free_at_start = self._free()

    def times(self, is_busy: bool, heard_at: float) -> list[float]:
        """When (monotonic) there is something to do, the host having sent something at `heard_at`."""
        times = [] if self._ends_at is None else [self._ends_at]
        if self._silence_s is not None:
            times.append(heard_at + self._silence_s)
        return [*times, self._next] if self._limits and is_busy else times

    def expired(self, now: float) -> bool:
        """Whether the sandbox's time is up."""
        return self._ends_at is not None and now >= self._ends_at

    def is_abandoned(self, now: float, heard_at: float) -> bool:
        """Whether the host has been silent for so long that it, or what carries the stream, must be gone."""
        return self._silence_s is not None and now >= heard_at + self._silence_s

    def measure(self) -> dict[str, object]:
        """Memory (bytes), cpu_s, pids of everything inside: the kernel's account, else by /proc and the tmpfs sizes."""
        told = account.kernels()
        if {"memory", "cpu_s", "pids"} <= set(told):
            return told
        me = os.getpid()
        pids = [me, *tree.descendants(me, tree.snapshot())]
        used = sum(map(memory.private_of, pids)) + memory.shared_between(pids, self._in_tmpfs())
        return {"memory": used, "cpu_s": sum(map(_ticks_of, pids)) / _TICKS, "pids": len(pids), **told}

    def breaches(self, now: float, supervisors: list[int]) -> list[tuple[str, int]]:
        """(limit, supervisor) of what is over a limit; the largest user is the one to blame."""
        if not self._limits or not supervisors or now < self._next:
            return []
        self._next = now + _INTERVAL_S
        found = []
        if "memory" in self._limits or "pids" in self._limits:
            table = tree.snapshot()
            families = {pid: tree.descendants(pid, table) for pid in supervisors}
            if "memory" in self._limits and self._memory_is_over(families):
                found.append(("memory", max(families, key=lambda pid: _weight(families[pid]))))
            if "pids" in self._limits and sum(map(len, families.values())) > self._limits["pids"]:
                found.append(("pids", max(families, key=lambda pid: len(families[pid]))))
        if "disk" in self._limits and self._disk_is_over():
            found.append(("disk", max(supervisors)))
        return found

    def _memory_is_over(self, families: dict[int, list[int]]) -> bool:
        pids = [pid for family in families.values() for pid in family]
        private, in_tmpfs, limit = sum(map(memory.private_of, pids)), self._in_tmpfs(), self._limits["memory"]
        # On the bare host, the sockets that are counted are the machine's.
        in_sockets = memory.in_sockets() if os.getpid() == 1 else 0
        return private + memory.shared_between(pids, in_tmpfs) + in_sockets > limit

    def _in_tmpfs(self) -> int:
        total = 0
        for path in self._tmpfs:
            try:
                status = os.statvfs(path)
            except OSError:
                continue
            total += (status.f_blocks - status.f_bfree) * status.f_frsize
        return total

    def _disk_is_over(self) -> bool:
        """Walk a little further; true once a walk finds more than the limit."""
        if self._walk is None and self._free_at_start - self._free() < self._limits["disk"]:
            return False  # the whole file system has not lost as much: no need to look file by file
        if self._walk is None:
            self._walk, self._walked = self._changed_sizes(), 0
        deadline = time.monotonic() + _SLICE_S
        for size in self._walk:
            self._walked += size
            if self._walked > self._limits["disk"]:
                self._walk = None
                return True
            if time.monotonic() > deadline:
                return False
        self._walk = None
        return False

    def _free(self) -> int:
        """Free bytes of the file systems that are watched."""
        total = 0
        for path in self._paths:
            try:
                status = os.statvfs(path)
                total += status.f_bfree * status.f_frsize
            except OSError:
                continue
        return total

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


def _weight(family: list[int]) -> int:
    return sum(map(memory.private_of, family)) + memory.mapped_at_most(family)


def _ticks_of(pid: int) -> int:
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return sum(int(field) for field in file.read(4096).rpartition(b")")[2].split()[11:15])
    except (OSError, ValueError):
        return 0

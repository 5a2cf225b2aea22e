"""Limits by measuring, for where the kernel cannot enforce them; and the sandbox's own time limit.

What is soft here: memory is what processes hold for themselves, four times a second; disk is the size of
files changed since the start. A burst between two looks gets through.
"""

from __future__ import annotations

import os
import stat
import time

from . import tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_INTERVAL_S = 0.25
_SLICE_S = 0.005
_PAGE = 4096
_TICKS = 100


class Watchdog:
    """Looks at what everything inside uses together."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}
        self._paths: list[str] = []
        self._tmpfs: list[str] = []
        self._ends_at: float | None = None
        self._next = 0.0
        self._started = time.time()
        self._walk: Iterator[int] | None = None
        self._walked = 0

    def configure(self, pairs: list[tuple[str, str]]) -> None:
        """Take limits: `ttl_s`, `memory`, `pids`, `disk`, and each `path` and `tmpfs` to measure."""
        for key, value in pairs:
            if key == "path":
                self._paths.append(value)
            elif key == "tmpfs":
                self._tmpfs.append(value)
            elif key == "ttl_s":
                self._ends_at = time.monotonic() + float(value)
            else:
                self._limits[key] = int(value)

    def times(self, is_busy: bool) -> list[float]:
        """When (monotonic) there is something to do."""
        times = [] if self._ends_at is None else [self._ends_at]
        return [*times, self._next] if self._limits and is_busy else times

    def expired(self, now: float) -> bool:
        """Whether the sandbox's time is up."""
        return self._ends_at is not None and now >= self._ends_at

    def measure(self) -> dict[str, object]:
        """Memory (bytes), cpu_s and pids of everything inside, by /proc and the tmpfs sizes."""
        memory, ticks, count = 0, 0, 0
        me = os.getpid()
        for pid in [me, *tree.descendants(me, tree.snapshot())]:
            used = _use_of(str(pid))
            if used is not None:
                memory += used[0]
                ticks += used[1]
                count += 1
        return {"memory": memory + self._in_tmpfs(), "cpu_s": ticks / _TICKS, "pids": count}

    def breaches(self, now: float, supervisors: list[int]) -> list[tuple[str, int]]:
        """(limit, supervisor) of what is over a limit; the largest user is the one to blame."""
        if not self._limits or not supervisors or now < self._next:
            return []
        self._next = now + _INTERVAL_S
        found = []
        if "memory" in self._limits or "pids" in self._limits:
            memory, pids = self._by_supervisor(supervisors)
            if "memory" in self._limits and sum(memory.values()) + self._in_tmpfs() > self._limits["memory"]:
                found.append(("memory", max(memory, key=lambda pid: memory[pid])))
            if "pids" in self._limits and sum(pids.values()) > self._limits["pids"]:
                found.append(("pids", max(pids, key=lambda pid: pids[pid])))
        if "disk" in self._limits and self._disk_is_over():
            found.append(("disk", max(supervisors)))
        return found

    def _by_supervisor(self, supervisors: list[int]) -> tuple[dict[int, int], dict[int, int]]:
        table = tree.snapshot()
        memory: dict[int, int] = {}
        pids: dict[int, int] = {}
        for supervisor in supervisors:
            family = tree.descendants(supervisor, table)
            pids[supervisor] = len(family) + 1
            memory[supervisor] = sum((_use_of(str(pid)) or (0, 0))[0] for pid in family)
        return memory, pids

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

    def _changed_sizes(self) -> Iterator[int]:
        for root in self._paths:
            for _directory, _names, files, descriptor in os.fwalk(root, follow_symlinks=False):
                for name in files:
                    try:
                        status = os.lstat(name, dir_fd=descriptor)
                    except OSError:
                        continue
                    if stat.S_ISREG(status.st_mode) and status.st_ctime >= self._started:
                        yield status.st_blocks * 512
                yield 0


def _use_of(name: str) -> tuple[int, int] | None:
    """(private bytes, cpu ticks) of one process."""
    try:
        with open("/proc/" + name + "/statm", "rb") as file:
            pages = file.read(256).split()
        with open("/proc/" + name + "/stat", "rb") as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        return (int(pages[1]) - int(pages[2])) * _PAGE, sum(int(field) for field in fields[11:15])
    except (OSError, IndexError, ValueError):
        return None

"""Measures the total usage of everything inside, by the kernel's own counters or else process by process.

In a container the control group can be read from inside; in bubblewrap and on the bare host it cannot.
"""

from __future__ import annotations

import posix as os

from . import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Optional

_PAGE = 4096
_TICKS_PER_S = 100
_FREE_SOCKETS = 256
"""Number of sockets that are not counted, as every program has a few."""
_SOCKET_BUFFER = 212_992
"""Default capacity of a socket's queue in bytes (net.core.wmem_default)."""
_CGROUP_ROOT = "/sys/fs/cgroup/"
_CGROUP_COUNTERS = (
    # (name in the record, divisor, file of version 2 or 1, start of its line)
    ("memory", 1, "memory.current", b""),
    ("memory", 1, "memory/memory.usage_in_bytes", b""),
    ("cpu_s", 1e6, "cpu.stat", b"usage_usec "),
    ("cpu_s", 1e9, "cpuacct/cpuacct.usage", b""),
    ("pids", 1, "pids.current", b""),
    ("pids", 1, "pids/pids.current", b""),
    ("oom_kills", 1, "memory.events", b"oom_kill "),
    ("oom_kills", 1, "memory/memory.oom_control", b"oom_kill "),
)


def measure(tmpfs: list[str]) -> dict[str, object]:
    """`memory` (bytes), `cpu_s`, `pids` and, where the kernel counts them, `oom_kills`.

    Args:
        tmpfs: Mount points of file systems whose content is memory.
    """
    counted = _cgroup_counters()
    if {"memory", "cpu_s", "pids"} <= set(counted):
        return counted
    pids = [os.getpid(), *processes.descendants(os.getpid(), processes.list_processes())]
    return {"memory": memory_of(pids, tmpfs), "cpu_s": sum(map(_cpu_s, pids)), "pids": len(pids), **counted}


def memory_of(pids: list[int], tmpfs: list[str]) -> int:
    """Bytes that processes use together: their own, and shared memory.

    Shared memory is the larger of what is mapped and what files in memory hold: a mapped file is in both, and their
    overlap cannot be measured.
    """
    mapped, files = 0, {}
    for pid in pids:
        mapped += (_number("/proc/%d/smaps_rollup" % pid, b"Pss_Shmem:") or 0) * 1024
        files.update(_memory_files(pid))
    in_files = sum(files.values()) + _system_v() + used_space(tmpfs)
    return sum(map(_private, pids)) + max(mapped, in_files)


def memory_at_most(pids: Iterable[int]) -> int:
    """An upper bound that is quick to get: shared pages count once for each process."""
    return sum(_private(pid) + (_number("/proc/%d/status" % pid, b"RssShmem:") or 0) * 1024 for pid in pids)


def socket_memory() -> int:
    """Bytes that the sockets of our network namespace may hold.

    Only the number of sockets can be read from inside. A socket whose buffer was enlarged, as far as the machine allows
    (net.core.wmem_max), may hold more. On the bare host the number is that of the whole machine and is not used.
    """
    number = _number("/proc/net/sockstat", b"sockets:") if os.getpid() == 1 else None
    return max(0, (number or 0) - _FREE_SOCKETS) * _SOCKET_BUFFER


def used_space(paths: list[str]) -> int:
    """Used bytes of the file systems at some paths."""
    return sum(total - free for total, free in map(_space, paths))


def free_space(paths: list[str]) -> int:
    """Free bytes of the file systems at some paths."""
    return sum(free for _total, free in map(_space, paths))


def _space(path: str) -> tuple[int, int]:
    try:
        status = os.statvfs(path)
    except OSError:
        return 0, 0
    return status.f_blocks * status.f_frsize, status.f_bfree * status.f_frsize


def _cgroup_counters() -> dict[str, object]:
    found: dict[str, object] = {}
    if os.getpid() == 1:  # otherwise the machine's group is visible here
        for name, divisor, file, key in _CGROUP_COUNTERS:
            count = _number(_CGROUP_ROOT + file, key)
            if count is not None and name not in found:
                found[name] = count if divisor == 1 else count / divisor
    return found


def _number(path: str, start: bytes = b"") -> Optional[int]:
    """The last number in a file's first line that starts with `start`; None if there is none."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(start):
                    return [int(word) for word in line.split() if word.isdigit()][-1]
    except (OSError, IndexError):
        pass
    return None


def _private(pid: int) -> int:
    """Bytes of a process that are not shared with another."""
    try:
        with open("/proc/%d/statm" % pid, "rb") as file:
            pages = file.read(256).split()
        return (int(pages[1]) - int(pages[2])) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def _cpu_s(pid: int) -> float:
    return sum(map(int, processes.stat_fields(pid)[11:15])) / _TICKS_PER_S


def _memory_files(pid: int) -> dict[int, int]:
    """{inode: bytes} of the memory files (memfd) that a process has open, mapped or not."""
    found: dict[int, int] = {}
    folder = "/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return found
    for name in names:
        try:
            if os.readlink(folder + "/" + name).startswith("/memfd:"):
                status = os.stat(folder + "/" + name)
                found[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return found


def _system_v() -> int:
    """Bytes of System V shared memory."""
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            rows = file.read().split(b"\n")[1:]
    except OSError:
        return 0
    return sum(int(fields[14]) for fields in map(bytes.split, rows) if len(fields) > 14)

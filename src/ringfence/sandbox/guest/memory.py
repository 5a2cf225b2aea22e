"""How much memory everything inside uses together, where no control group counts it."""

from __future__ import annotations

import posix as os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_PAGE = 4096
_FEW_SOCKETS = 256
_SOCKET_BUFFER = 212_992
"""What a socket's queue holds by default (net.core.wmem_default)."""


def private_of(pid: int) -> int:
    """Bytes a process has for itself."""
    try:
        with open("/proc/%d/statm" % pid, "rb") as file:
            pages = file.read(256).split()
        return (int(pages[1]) - int(pages[2])) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def shared_between(pids: Iterable[int], in_tmpfs: int) -> int:
    """Bytes of shared memory: what is mapped, or what is held in files of memory, whichever is more.

    The two overlap in a way that cannot be told apart: a mapped memory file is in both.
    """
    mapped, files = 0, {}
    for pid in pids:
        mapped += _field_kb("/proc/%d/smaps_rollup" % pid, b"Pss_Shmem:") * 1024
        files.update(_memory_files(pid))
    return max(mapped, sum(files.values()) + _system_v() + in_tmpfs)


def in_sockets() -> int:
    """Bytes that the sockets of our network namespace may hold; the first few, which every program has, for nothing.

    How much is queued in them is told to nobody here, only how many there are. One whose buffer was enlarged, as far as
    the machine allows (net.core.wmem_max), may hold more.
    """
    try:
        with open("/proc/net/sockstat", "rb") as file:
            words = file.readline().split()  # sockets: used 12
        return max(0, int(words[2]) - _FEW_SOCKETS) * _SOCKET_BUFFER
    except (OSError, IndexError, ValueError):
        return 0


def mapped_at_most(pids: Iterable[int]) -> int:
    """A quick upper bound of what is mapped: shared pages count once for each process."""
    return sum(_field_kb("/proc/%d/status" % pid, b"RssShmem:") * 1024 for pid in pids)


def _field_kb(path: str, name: bytes) -> int:
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return 0


def _memory_files(pid: int) -> dict[int, int]:
    """{inode: bytes} of the memory files (memfd) a process holds, mapped or not."""
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
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            rows = file.read().split(b"\n")[1:]
    except OSError:
        return 0
    return sum(int(fields[14]) for fields in map(bytes.split, rows) if len(fields) > 14)

"""Lists the process trees inside the sandbox, and kills them."""

from __future__ import annotations

import posix as os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    ProcessTable = dict[int, tuple[int, bytes]]

SIGKILL, SIGTERM, SIGCONT, SIGSTOP = 9, 15, 18, 19


def list_processes() -> ProcessTable:
    """{pid: (parent pid, state letter)} of every visible process."""
    table: ProcessTable = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_fields(int(name))
            if fields:
                table[int(name)] = (int(fields[1]), fields[0])
    return table


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat after the command's name, the state first; empty if the process is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            # The command's name is in parentheses and may contain spaces and parentheses itself.
            return file.read(4096).rpartition(b")")[2].split()
    except OSError:
        return []


def descendants(root: int, table: ProcessTable) -> list[int]:
    """Living processes below `root`; the children of zombies are included, the zombies are not."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _state) in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            queue.append(pid)
            if table[pid][1] not in (b"Z", b"X"):
                found.append(pid)
    return found


def send_signal(pid: int, number: int) -> None:
    """Signal a process, which may already be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_all(list_pids: Callable[[], list[int]], timeout_s: float) -> bool:
    """Kill every process that `list_pids()` returns until it returns none; False if time ran out.

    All are stopped before any is killed: a stopped process cannot fork, so a fork bomb loses the race.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        stopped: set[int] = set()
        while True:
            running = [pid for pid in list_pids() if pid not in stopped]
            if not running:
                break
            for pid in running:
                send_signal(pid, SIGSTOP)
                stopped.add(pid)
            if time.monotonic() > deadline:
                break
        if not stopped:
            return True
        for pid in stopped:
            send_signal(pid, SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)

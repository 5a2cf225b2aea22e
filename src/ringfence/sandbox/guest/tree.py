"""Process trees inside the sandbox: who descends from whom, and killing all of them."""

from __future__ import annotations

import posix as os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Table = dict[int, tuple[int, bytes, int]]

SIGKILL, SIGCONT, SIGSTOP = 9, 18, 19


def snapshot() -> Table:
    """{pid: (parent pid, state letter, session)} of every process that can be seen."""
    table: Table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/stat", "rb") as file:
                # The command name is in parentheses and may hold spaces and parentheses itself.
                fields = file.read(4096).rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 3:
            table[int(name)] = (int(fields[1]), fields[0], int(fields[3]))
    return table


def descendants(root: int, table: Table) -> list[int]:
    """Living pids below `root` (zombies left out, their children kept)."""
    children: dict[int, list[int]] = {}
    for pid, (parent, _state, _session) in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            queue.append(pid)
            if table[pid][1] not in (b"Z", b"X"):
                found.append(pid)
    return found


def send(pid: int, number: int) -> bool:
    """Signal one process; one that is gone already is fine."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_all(list_pids: Callable[[], list[int]], seconds: float) -> bool:
    """Kill everything that `list_pids()` names until it names nothing; False if time ran out.

    Stopping comes first: a stopped process cannot fork, so the set stops growing and a fork bomb loses.
    """
    deadline = time.monotonic() + seconds
    while True:
        stopped: set[int] = set()
        while True:
            fresh = [pid for pid in list_pids() if pid not in stopped]
            if not fresh:
                break
            for pid in fresh:
                send(pid, SIGSTOP)
                stopped.add(pid)
            if time.monotonic() > deadline:
                break
        if not stopped:
            return True
        for pid in stopped:
            send(pid, SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)

"""How a container ends: why, by its engine's account; and its processes, where the engine is gone."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from ringfence.sandbox.base import EndReason

_KILLED_CODE = 128 + 9
_POLL_S = 0.1

Outcome = Literal["ended", "alive", "unseen"]


def end_reason(exit_code: int, *, is_out_of_memory: bool, said: str = "") -> EndReason:
    """Why a container ended.

    Args:
        exit_code: Of its first process.
        is_out_of_memory: Whether its engine says that the memory limit killed something in it.
        said: What engine and first process wrote about it.
    """
    if exit_code == _KILLED_CODE:
        if is_out_of_memory:
            return EndReason("memory", "the memory limit killed it")
        return EndReason("killed", "killed from outside")
    return EndReason(
        "exited", f"its first process ended with code {exit_code}" + (f": {said}" if said else "")
    )


async def end_processes(container: str, *, within_s: float) -> Outcome:
    """Kill every process of a container that can be seen and may be killed.

    They are known by their control group, whose path has the container's id; an engine in a virtual machine or on
    another machine has none that could be seen here.

    Args:
        container: Its id.
        within_s: How long to wait for those that may not be killed, or cannot be seen, to end by themselves.

    Returns:
        `ended`: some were seen, and none is left. `alive`: some are left. `unseen`: none was ever seen, which does not
        mean that there are none.
    """
    outcome: Outcome = "unseen"
    with anyio.move_on_after(within_s):
        while True:
            found = await anyio.to_thread.run_sync(_kill_all, container)
            if found:
                outcome = "alive"
            elif outcome == "alive":
                return "ended"
            await anyio.sleep(_POLL_S)
    return outcome


def _kill_all(container: str) -> int:
    """Kill the processes of a container; how many there were."""
    pattern = re.compile(rf"/(?:docker-|libpod-)?{re.escape(container)}(?:\.scope)?(?:/|$)", re.MULTILINE)
    found = 0
    for pid in _pids():
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Checked after opening the handle: the process number may have been reused.
            if _is_in(pid, pattern):
                found += 1
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except OSError:
            continue  # another user's; it is waited for
        finally:
            os.close(handle)
    return found


def _pids() -> Iterator[int]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                yield int(entry.name)


def _is_in(pid: int, pattern: re.Pattern[str]) -> bool:
    try:
        if not pattern.search(Path(f"/proc/{pid}/cgroup").read_text()):
            return False
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False

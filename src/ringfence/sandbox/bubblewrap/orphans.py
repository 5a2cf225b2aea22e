"""Sandboxes whose bwrap was killed while it was making them.

The first process of a sandbox waits until bwrap has prepared its namespaces, and only then asks to die with it. A bwrap
that is killed in between, a millisecond, leaves it waiting for ever: nothing runs in it, but it is there.
"""

import os
import signal
from pathlib import Path

from ringfence.sandbox.loader import guest_arguments

_PROC = Path("/proc")


def end_orphans() -> int:
    """Kill those of this user; how many they were. Where /proc shows nothing, there are none to be seen."""
    mark = os.fsencode(guest_arguments()[-1])
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return sum(_end(pid, mark) for pid in pids)


def _end(pid: int, mark: bytes) -> bool:
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it has ended
        return False
    try:
        if not _is_orphan(_PROC / str(pid), mark):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except (OSError, ValueError):  # it has ended, or is somebody else's
        return False
    finally:
        os.close(process)
    return True


def _is_orphan(folder: Path, mark: bytes) -> bool:
    """Whether it is the first process of a sandbox of ours, and its parent is not the bwrap that it was forked from."""
    words = (folder / "cmdline").read_bytes()
    if mark not in words or not words.partition(b"\0")[0].endswith(b"bwrap"):
        return False  # in a container the guest itself is the first process
    told = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    is_ours = os.geteuid() in (0, int(told["Uid"].split()[0]))
    numbers = told.get("NSpid", "").split()
    is_first = len(numbers) > 1 and numbers[-1] == "1"
    return is_ours and is_first and (_PROC / told["PPid"].strip() / "cmdline").read_bytes() != words

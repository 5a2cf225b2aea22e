"""Identifies a process by its pid and start time, which no later process shares."""

import os
import signal
from pathlib import Path


def started(pid: int) -> str:
    """The start time of a process, with the id of the machine's boot; empty if the process has ended.

    The source is field 22 of proc_pid_stat(5), in clock ticks since the boot.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    return f"{boot}:{fields[19].decode()}"


def kill(pid: int, *, process: str) -> bool:
    """Send SIGKILL to a process if it is the expected one; return whether it was.

    Args:
        pid: The pid of the process.
        process: The value that `started` returned when the process registered.
    """
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not process or started(pid) != process:
            return False
        signal.pidfd_send_signal(held, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(held)
    return True

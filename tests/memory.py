"""How much memory a program has used."""

from pathlib import Path


def peak_kib() -> int:
    """The most that was resident of this program at once, KiB.

    `ru_maxrss` would not do: a program inherits there what the one that started it had used by then (getrusage(2)).
    """
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))

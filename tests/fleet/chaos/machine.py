"""Finds the processes of a fleet on this machine without asking the fleet, which may be dead."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process."""

    pid: int
    parent: int
    state: str
    """The state letter of proc_pid_stat(5)."""
    words: tuple[str, ...]


def processes() -> Iterator[Process]:
    """Yield all processes except zombies."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):  # the process has ended meanwhile
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if fields[0] not in "ZX":
                    yield Process(int(entry.name), int(fields[1]), fields[0], tuple(words[:-1]))


def _has(pid: int, variable: bytes) -> bool:
    with suppress(OSError):
        return variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


@dataclass(frozen=True)
class Machine:
    """The processes of the fleet whose state directory is below `state`.

    Args:
        state: The fleet's XDG_STATE_HOME.
    """

    state: Path

    def _mine(self, *words: str) -> list[int]:
        variable = b"XDG_STATE_HOME=" + os.fsencode(self.state)
        return sorted(
            process.pid
            for process in processes()
            if set(words) <= set(process.words) and _has(process.pid, variable)
        )

    def daemons(self) -> list[int]:
        """Return the process ids of daemons."""
        return self._mine("fleet", "up", "--file")

    def workers(self) -> list[int]:
        """Return the process ids of workers."""
        return self._mine("fleet", "worker", "--told")

    def fences(self, *workers: int) -> list[int]:
        """Return the process ids of the outermost bubblewrap processes of these workers, or of all workers."""
        roots = workers or self.workers()
        return sorted(each.pid for each in processes() if each.parent in roots and "--args" in each.words)


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True

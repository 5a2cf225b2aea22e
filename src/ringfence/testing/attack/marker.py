"""Finds processes by a word in their arguments, from the host's side."""

import secrets
from pathlib import Path
from typing import Any

from ringfence.frozen import frozen


@frozen
class Marker:
    """A word that only the wanted processes have. A probe is given its halves, so that it does not find itself."""

    left: str
    right: str

    @classmethod
    def new(cls) -> "Marker":
        """Return a unique marker."""
        return cls("ringfence-mark-", secrets.token_hex(8))

    @property
    def text(self) -> str:
        """The whole word."""
        return self.left + self.right

    @property
    def halves(self) -> dict[str, Any]:
        """The halves, as facts for a probe."""
        return {"left": self.left, "right": self.right}

    def pids(self, proc: Path = Path("/proc")) -> list[int]:
        """Return the processes of this machine that have the marker among their arguments."""
        return [pid for pid in all_pids(proc) if self.text.encode() in arguments_of(pid, proc)]


def all_pids(proc: Path = Path("/proc")) -> list[int]:
    """Return every process that is visible from here."""
    return [int(path.name) for path in proc.iterdir() if path.name.isdigit()]


def arguments_of(pid: int, proc: Path = Path("/proc")) -> bytes:
    """Return a process's arguments; empty if it has ended."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def status_of(pid: int, proc: Path = Path("/proc")) -> dict[str, list[str]]:
    """Return the fields of /proc/PID/status; empty if the process has ended."""
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}

"""Finds processes by a word in their arguments, from the host's side."""

import secrets
from pathlib import Path
from typing import Any

from ringfence.frozen import frozen


@frozen
class Marker:
    """A word that only the processes looked for have. A probe is given halves, so as not to find itself."""

    left: str
    right: str

    @classmethod
    def new(cls) -> "Marker":
        """One that nothing else has."""
        return cls("ringfence-mark-", secrets.token_hex(8))

    @property
    def text(self) -> str:
        """The whole word."""
        return self.left + self.right

    @property
    def halves(self) -> dict[str, Any]:
        """As facts for a probe."""
        return {"left": self.left, "right": self.right}

    def pids(self, proc: Path = Path("/proc")) -> list[int]:
        """Processes of this machine that have it among their arguments."""
        return [pid for pid in all_pids(proc) if self.text.encode() in arguments_of(pid, proc)]


def all_pids(proc: Path = Path("/proc")) -> list[int]:
    """Every process that can be seen from here."""
    return [int(path.name) for path in proc.iterdir() if path.name.isdigit()]


def arguments_of(pid: int, proc: Path = Path("/proc")) -> bytes:
    """A process's arguments; empty if it is gone."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def status_of(pid: int, proc: Path = Path("/proc")) -> dict[str, list[str]]:
    """The fields of /proc/PID/status; empty if it is gone."""
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}

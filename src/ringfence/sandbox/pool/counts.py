"""Counts the hits and misses of a pool in a small file beside its sandboxes, updated under a lock."""

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from ringfence.config.paths import replace_state_file
from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.supervisor.directory import locked

_LIMIT_BYTES = 64 * 1024
_REASON_CHARS = 500
What = Literal["hits", "misses", "stale", "failed"]


@frozen
class Counts:
    """Counts since the pool's directory was created."""

    hits: int = 0
    """A warm sandbox was handed out."""
    misses: int = 0
    """No warm sandbox fitted, and one was started cold."""
    stale: int = 0
    """A warm sandbox was found unfit at the hand-over, and was ended."""
    failed: int = 0
    """A sandbox could not be started ahead."""
    last_failure: str = ""

    @property
    def hit_rate(self) -> float | None:
        """The share of requests that were hits; None without requests."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


def read_counts(folder: Path) -> Counts:
    """The counts of a pool; a damaged file counts as empty."""
    with suppress(OSError, ValueError, TypeError), (folder / "counts").open("rb") as file:
        return Counts(**json.loads(file.read(_LIMIT_BYTES)))
    return Counts()


def count(folder: Path, what: What, reason: str = "") -> None:
    """Increase a count. A failure to count does not affect the pool."""
    with suppress(OSError, InfrastructureFault), locked(folder / ".counts.lock"):
        counts = read_counts(folder)
        counts = replace(counts, **{what: getattr(counts, what) + 1})
        if reason:
            counts = replace(counts, last_failure=reason[:_REASON_CHARS])
        replace_state_file(folder / "counts", json.dumps(asdict(counts)).encode())

"""How often a pool had what was asked for: a small file beside its sandboxes, changed under a lock."""

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
    """Since the pool's directory was made."""

    hits: int = 0
    """A warm sandbox was handed out."""
    misses: int = 0
    """There was none, and one was started cold."""
    stale: int = 0
    """A warm one was found unfit when it was wanted, and ended."""
    failed: int = 0
    """One could not be started ahead."""
    last_failure: str = ""

    @property
    def hit_rate(self) -> float | None:
        """Hits of all that was asked for; None if nothing was."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


def read_counts(folder: Path) -> Counts:
    """The counts of a pool; a damaged file counts as none."""
    with suppress(OSError, ValueError, TypeError), (folder / "counts").open("rb") as file:
        return Counts(**json.loads(file.read(_LIMIT_BYTES)))
    return Counts()


def count(folder: Path, what: What, reason: str = "") -> None:
    """Count one more. A pool that cannot be counted serves all the same."""
    with suppress(OSError, InfrastructureFault), locked(folder / ".counts.lock"):
        counts = read_counts(folder)
        counts = replace(counts, **{what: getattr(counts, what) + 1})
        if reason:
            counts = replace(counts, last_failure=reason[:_REASON_CHARS])
        replace_state_file(folder / "counts", json.dumps(asdict(counts)).encode())

"""Why an attempt was rejected, as it is kept, told to the next attempt, and compared."""

import hashlib
from collections.abc import Sequence

from ringfence.loop.rows import StepRow

_MOST = 50
_MOST_CHARS = 16_000
"""Of one attempt's complaints together."""


def bounded(complaints: Sequence[str]) -> list[str]:
    """Complaints as the next attempt is told them: what an agent made can be as long as it likes."""
    found, room = list[str](), _MOST_CHARS
    for number, each in enumerate(complaints):
        if number == _MOST or room <= 0:
            return [*found, f"and {len(complaints) - number} more complaints, which are left out"]
        shown = each if len(each) <= room else f"{each[:room]}\n[{len(each) - room} characters are left out]"
        found.append(shown)
        room -= len(shown)
    return found


def fingerprint(rejected: StepRow) -> str:
    """The same for attempts that were rejected for the same reasons."""
    return hashlib.sha256(repr(rejected.result["complaints"]).encode()).hexdigest()

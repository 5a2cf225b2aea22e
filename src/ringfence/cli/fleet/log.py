"""What the daemon and its workers say, on stderr: lines for people, or one JSON object each for programs.

Secrets that this process has had are taken out; text of agents cannot act on a terminal, nor make a line of its own.
"""

import math
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from ringfence.escape import safe_json, visible
from ringfence.fleet.config.model import LogFormat
from ringfence.fleet.telling import Level
from ringfence.secret import Redactor, registered_secrets

_LONGEST = 4000
"""Characters of a line, or of a field."""


class Log:
    """A `Tell` that writes to stderr.

    Args:
        form: How.
        bound: Fields that every line has.
    """

    def __init__(self, form: LogFormat, **bound: object) -> None:
        self.form = form
        self._bound = bound

    def __call__(self, line: str, /, *, event: str, level: Level = "warning", **fields: object) -> None:
        """See `Tell`."""
        time = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        said = {"time": time, "level": level, "event": event, "message": line, **self._bound, **fields}
        with suppress(OSError):  # a terminal that was closed
            sys.stderr.write(f"{self._rendered(_bounded(said))}\n")
            sys.stderr.flush()

    def _rendered(self, said: dict[str, Any]) -> str:
        if self.form == "json":
            return safe_json(said)
        about = f"job {said['job']}: " if "job" in said else ""
        at = "" if sys.stderr.isatty() else f"{said['time']} "
        return f"{at}ringfence: {visible(about + said['message'], one_line=True)}"


def _bounded(fields: dict[str, Any]) -> dict[str, Any]:
    """The same without secrets, and no longer than it may be; what is no plain value is told as text."""
    redactor = _redactor(frozenset(registered_secrets()))
    for name, value in fields.items():
        is_number = isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
        if value is None or is_number:
            continue
        fields[name] = redactor.redact(str(value))[:_LONGEST]
    return fields


@lru_cache(maxsize=1)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)

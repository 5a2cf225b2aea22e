"""Writes the log of the daemon and its workers to stderr: one line of text or one JSON object per message.

Secrets that this process has handled are redacted. Control characters in agents' text are escaped, so that the
text can neither control a terminal nor start a new line.
"""

import math
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from ringfence.escape import safe_json, visible
from ringfence.fleet.config.model import LogFormat
from ringfence.fleet.log import Level
from ringfence.secret import Redactor, registered_secrets

_MAX_CHARS = 4000
"""Length limit of a message, and of each field."""


class Log:
    """A `ringfence.fleet.log.Log` that writes to stderr.

    Args:
        form: The format of the log.
        bound: Fields of every message.
    """

    def __init__(self, form: LogFormat, **bound: object) -> None:
        self.form = form
        self._bound = bound

    def __call__(self, line: str, /, *, event: str, level: Level = "warning", **fields: object) -> None:
        """See `ringfence.fleet.log.Log`."""
        time = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        entry = {"time": time, "level": level, "event": event, "message": line, **self._bound, **fields}
        with suppress(OSError):  # the terminal was closed
            sys.stderr.write(f"{self._render(_redact(entry))}\n")
            sys.stderr.flush()

    def _render(self, entry: dict[str, Any]) -> str:
        if self.form == "json":
            return safe_json(entry)
        prefix = f"job {entry['job']}: " if "job" in entry else ""
        at = "" if sys.stderr.isatty() else f"{entry['time']} "
        return f"{at}ringfence: {visible(prefix + entry['message'], one_line=True)}"


def _redact(fields: dict[str, Any]) -> dict[str, Any]:
    """Redact secrets and limit lengths; values other than numbers and None become text."""
    redactor = _redactor(frozenset(registered_secrets()))
    for name, value in fields.items():
        is_number = isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
        if value is None or is_number:
            continue
        fields[name] = redactor.redact(str(value))[:_MAX_CHARS]
    return fields


@lru_cache(maxsize=1)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)

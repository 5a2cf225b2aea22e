"""What the daemon and its workers say, on stderr: lines for people, or one JSON object each for programs.

Secrets that this process has had are taken out; text of agents cannot act on a terminal, nor make a line of its own.
"""

import math
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import structlog

from ringfence.cli.escape import safe_json, visible
from ringfence.fleet.config.model import LogFormat
from ringfence.fleet.telling import Level

if TYPE_CHECKING:
    from ringfence.secret import Redactor

_LONGEST = 4000
"""Characters of a line, or of a field."""
_Fields = MutableMapping[str, Any]


class Log:
    """A `Tell` that writes to stderr.

    Args:
        form: How.
        bound: Fields that every line has.
    """

    def __init__(self, form: LogFormat, **bound: object) -> None:
        self.form = form
        self._logger = structlog.wrap_logger(
            _Stderr(),
            processors=[
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                _bounded,
                self._rendered,
            ],
            wrapper_class=structlog.BoundLoggerBase,
            cache_logger_on_first_use=False,
        ).bind(**bound)

    def __call__(self, line: str, /, *, event: str, level: Level = "warning", **fields: object) -> None:
        """See `Tell`."""
        with suppress(OSError):  # a terminal that was closed
            self._logger._proxy_to_logger("write", event, level=level, message=line, **fields)

    def _rendered(self, _logger: object, _method: str, fields: _Fields) -> str:
        said = dict(fields)
        if self.form == "json":
            first = {name: said.pop(name) for name in ("time", "level", "event", "message")}
            return safe_json(first | said)
        about = f"job {said['job']}: " if "job" in said else ""
        at = "" if sys.stderr.isatty() else f"{said['time']} "
        return f"{at}ringfence: {visible(about + said['message'], one_line=True)}"


class _Stderr:
    def write(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _bounded(_logger: object, _method: str, fields: _Fields) -> _Fields:
    """The same without secrets, and no longer than it may be; what is no plain value is told as text."""
    from ringfence.secret.redact import remembered

    redactor = _redactor(frozenset(remembered()))
    for name, value in fields.items():
        is_number = isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
        if value is None or is_number:
            continue
        fields[name] = redactor.redact(str(value))[:_LONGEST]
    return fields


@lru_cache(maxsize=1)
def _redactor(values: frozenset[str]) -> "Redactor":
    from ringfence.secret import Redactor

    return Redactor(values)

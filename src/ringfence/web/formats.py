"""Formats figures, times and states for pages."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ringfence.escape import safe_json

NONE = "\N{EN DASH}"
"""The placeholder of an unknown value."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TONES = {
    "good": ("succeeded", "passed", "met", "accepted", "green", "sealed", "yes", "allow", "applied", "held"),
    "bad": (
        "failed", "check_red", "refused", "infrastructure", "authentication", "configuration", "sandbox_start",
        "broken", "truncated", "damaged", "missing", "rejected", "not met", "red", "no", "deny", "gone",
    ),
    "warn": (
        "blocked", "waiting", "limit", "timed_out", "interrupted", "unclear", "skipped", "open", "draining", "question",
        "unverified", "pending", "undone", "unknown",
    ),
    "live": ("running", "starting", "active"),
}  # fmt: skip
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words}
_ICON_OF = {"good": "check", "bad": "cross", "warn": "alert", "live": "live", "plain": "dot"}
_ICONS = {
    "queued": "clock",
    "cancelled": "slash",
    "unverified": "half",
    "blocked": "question",
    "waiting": "question",
}


_WORDS = {"pending": "not applied yet"}


def tone(word: str) -> str:
    """The tone of a state: `good`, `bad`, `warn`, `live` or `plain`."""
    return _TONE_OF.get(word, "plain")


def icon(word: str) -> str:
    """The name of the icon of a state, so that a state is never shown by colour alone."""
    return _ICONS.get(word) or _ICON_OF[tone(word)]


def words(name: str) -> str:
    """A state's name in words: `timed_out` as `timed out`."""
    return _WORDS.get(name) or name.replace("_", " ")


def parse_moment(value: Any) -> datetime | None:
    """Parse a time from an ISO 8601 text or from milliseconds since 1970; None if there is none."""
    if value is None or value == "":
        return None
    try:
        moment = (
            datetime.fromtimestamp(value / 1000, UTC)
            if isinstance(value, int | float)
            else datetime.fromisoformat(value)
        )
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def ago(value: Any) -> str:
    """A time relative to now: `3 min ago`, `in 2 h`."""
    moment = parse_moment(value)
    if moment is None:
        return NONE
    distance = (datetime.now(UTC) - moment).total_seconds()
    span = _span(abs(distance))
    if span == "0 s":
        return "now"
    return f"{span} ago" if distance > 0 else f"in {span}"


def moment(value: Any) -> str:
    """A time in full, in UTC: `2026-11-28 08:10:02 UTC`."""
    found = parse_moment(value)
    return "" if found is None else f"{found.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: Any) -> str:
    """A duration: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds is None:
        return NONE
    whole = int(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def took(job: Mapping[str, Any]) -> str:
    """How long a job ran, up to now if it still runs."""
    start, end = parse_moment(job.get("started_at")), parse_moment(job.get("ended_at"))
    return NONE if start is None else duration(((end or datetime.now(UTC)) - start).total_seconds())


def tokens(count: Any) -> str:
    """A number of tokens: `950`, `12.3 k`, `4.1 M`."""
    if not count:
        return NONE
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f}"


def usd(amount: Any) -> str:
    """An amount of money: `$0.0042`, `$1.20`."""
    if amount is None:
        return NONE
    if not amount:
        return "$0"
    return f"${amount:,.4f}" if amount < 0.01 else f"${amount:,.2f}"


def size(count: Any) -> str:
    """A number of bytes: `12 kB`, `3.4 MB`."""
    if count is None:
        return NONE
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} B"


def short(identifier: Any) -> str:
    """The end of an id, which commands accept in place of the id."""
    return str(identifier or "").rpartition("-")[2]


def plain(value: Any) -> str:
    """A configuration value as text: a text unchanged, any other value as JSON."""
    return value if isinstance(value, str) else safe_json(value)


def percent(part: Any, whole: Any) -> int:
    """A part as a percentage of the whole, from 0 to 100."""
    return 0 if not whole or not part else max(1, min(100, round(100 * part / whole)))


def _span(seconds: float) -> str:
    for length, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s")):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "0 s"


FILTERS = {
    each.__name__: each
    for each in (tone, icon, words, ago, moment, duration, took, tokens, usd, size, short, plain, percent)
}
"""The filters for templates."""

"""Schedules by interval: `30s`, `5m`, `1h 30m`."""

import re
from datetime import UTC, datetime, timedelta

from ringfence.config.units import format_duration, parse_duration
from ringfence.errors import UsageError
from ringfence.fleet.schedule.slot import Schedule

_SECOND = timedelta(seconds=1)
_WORDS = re.compile(r"\d[\d.]*\s*[a-z]*", re.ASCII)
_LONGEST = 80


class IntervalSchedule(Schedule):
    """Slots at `anchor + n * interval`, n from 0. The anchor is kept with the schedule, so slots survive restarts.

    Args:
        interval: At least a second.
        anchor: The first slot, with a time zone; fractions of a second are dropped.

    Raises:
        UsageError: The interval is shorter than a second.
    """

    def __init__(self, interval: timedelta, anchor: datetime) -> None:
        if interval < _SECOND:
            raise UsageError(f"an interval of {interval.total_seconds():g} s is too short; take at least 1s")
        self.interval = interval
        self.anchor = anchor.astimezone(UTC).replace(microsecond=0)

    @classmethod
    def beginning(
        cls, interval: timedelta, created_at: datetime, *, first_at_once: bool = True
    ) -> "IntervalSchedule":
        """A schedule whose first slot follows its creation within a second, or after one interval."""
        soon = created_at.astimezone(UTC).replace(microsecond=0) + _SECOND
        return cls(interval, soon if first_at_once else soon + interval)

    def next_after(self, moment: datetime) -> datetime | None:
        """See `Schedule`."""
        number = max(0, (moment - self.anchor) // self.interval + 1)
        try:
            return self.anchor + number * self.interval
        except OverflowError:
            return None

    def count(self, start: datetime, end: datetime, limit: int) -> int:
        """See `Schedule`."""
        until_start, until_end = (max(0, (at - self.anchor) // self.interval + 1) for at in (start, end))
        return min(limit, max(0, until_end - until_start))

    def describe(self) -> str:
        """The interval in its largest unit."""
        return f"every {format_duration(self.interval.total_seconds())}"


def parse_interval(text: str | float) -> timedelta:
    """The time in `30s`, `5m`, `1.5h` or `1h 30m`; a number alone is seconds.

    Raises:
        UsageError: It is no such time, or shorter than a second.
    """
    words = [text] if isinstance(text, int | float) else _words(text)
    try:
        seconds = sum(parse_duration(word) for word in words)
        interval = timedelta(seconds=seconds)
        IntervalSchedule(interval, datetime.now(UTC))
    except (ValueError, OverflowError) as exc:
        raise UsageError(
            f"{str(text)[:_LONGEST]!r} is no interval; write a number and a unit, like 30s, 5m or 1h 30m"
        ) from exc
    return interval


def _words(text: str) -> list[str]:
    """Number and unit by number and unit; the whole text where it is not made of such."""
    words = _WORDS.findall(text)
    is_whole = "".join(words).replace(" ", "") == text.replace(" ", "")
    has_units = len(words) < 2 or all(word.rstrip()[-1].isalpha() for word in words)
    return words if words and is_whole and has_units and len(text) <= _LONGEST else [text]

"""Schedules by interval."""

from datetime import UTC, datetime, timedelta

from ringfence.config.units import format_duration
from ringfence.errors import UsageError
from ringfence.fleet.schedule.base import Schedule

_SECOND = timedelta(seconds=1)


class IntervalSchedule(Schedule):
    """Due times at `anchor + n * interval`, with n from 0.

    Args:
        interval: At least a second.
        anchor: The first due time, with a time zone; fractions of a second are dropped.

    Raises:
        UsageError: The interval is shorter than a second.
    """

    def __init__(self, interval: timedelta, anchor: datetime) -> None:
        if interval < _SECOND:
            raise UsageError(f"an interval of {interval.total_seconds():g} s is too short; take at least 1s")
        self.interval = interval
        self.anchor = anchor.astimezone(UTC).replace(microsecond=0)

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
        """Return the interval in its largest unit."""
        return f"every {format_duration(self.interval.total_seconds())}"

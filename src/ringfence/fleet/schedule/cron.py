"""Schedules by cron expressions, with the semantics of cronsim, which are those of Debian's cron.

As in Debian, the expression decides about times that daylight saving skips or repeats. If neither its minute nor its
hour starts with a star, it means a time of day, which happens once per day: a skipped one at the end of the gap, a
repeated one the first time. Other expressions mean a rhythm of the wall clock: skipped times do not happen, and repeated
ones happen twice.
"""

import calendar
import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from ringfence.errors import UsageError
from ringfence.fleet.schedule.base import Schedule
from ringfence.fleet.schedule.zone import zone

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Names for common expressions."""

_FIELDS: Final = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, L for the last, LW for the last working day"),
    ("month", "1 to 12, or JAN to DEC"),
    (
        "day of the week",
        "0 to 7 (0 and 7 are Sunday), or SUN to SAT, MON#2 for the second Monday, 5L for the last Friday",
    ),
)
_MAX_LENGTH: Final = 200
_SOME_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - cronsim works on local times
_STEP: Final = timedelta(days=7)
"""Less than the time between two changes of a zone's offset that cancel each other."""
_CALENDARS: Final = 1024
_ANSWERS: Final = 64
"""The sizes of the caches: calendars, and answers of each calendar."""
_SECOND: Final = timedelta(seconds=1)


class CronSchedule(Schedule):
    """Due times by a cron expression of five fields, or an alias such as `@daily`.

    Args:
        expression: An expression as in a crontab, with names in any case.
        zone_name: The IANA time zone of the expression; None: that of the machine.

    Raises:
        UsageError: The expression is not valid or has no due time, or there is no such time zone.
    """

    def __init__(self, expression: str, zone_name: str | None = None) -> None:
        self.expression = expression.strip()
        self.zone = zone(zone_name)
        fields = ALIASES.get(self.expression.lower(), self.expression)
        _check(expression, fields)
        self._calendar = _calendar(fields, self.zone)

    def next_after(self, moment: datetime) -> datetime | None:
        """See `Schedule`."""
        # Due times are at whole seconds, so all moments within a second have the same answer.
        return self._calendar.next_after(moment.astimezone(UTC).replace(microsecond=0))

    def describe(self) -> str:
        """Return the expression and its time zone."""
        return f"{self.expression} ({self.zone.key})"


class _Calendar:
    """The due times of an expression in a time zone, cached for all schedules that share them."""

    def __init__(self, fields: str, zone: ZoneInfo) -> None:
        self._fields = fields
        self.zone = zone
        minute, hour = fields.split()[:2]
        self._is_rhythm = minute.startswith("*") or hour.startswith("*")
        self.next_after = functools.lru_cache(_ANSWERS)(self._next_after)

    def _next_after(self, moment: datetime) -> datetime | None:
        try:
            return self._next_of_rhythm(moment) if self._is_rhythm else self._next_of_day(moment)
        except (StopIteration, OverflowError):
            return None

    def _next_of_day(self, moment: datetime) -> datetime:
        # The second pass of a repeated hour has local times before due times that have passed already.
        for due_time in CronSim(self._fields, moment.astimezone(self.zone)):
            if (found := due_time.astimezone(UTC)) > moment:
                return found
        raise StopIteration

    def _next_of_rhythm(self, moment: datetime) -> datetime:
        """Search from one change of the offset to the next, between which local time runs evenly.

        cronsim's own search across a change misses due times, for example after the half hour of Lord Howe Island.
        """
        start = moment.astimezone(UTC)
        for _ in range(1000):
            offset = start.astimezone(self.zone).utcoffset() or timedelta()
            local_time = (start + offset).replace(tzinfo=None)
            due_time = (next(CronSim(self._fields, local_time)) - offset).replace(tzinfo=UTC)
            change = self._first_change(start, due_time, offset)
            if change is None:
                return due_time
            start = change - _SECOND
            offset = change.astimezone(self.zone).utcoffset() or timedelta()
            local_time = (start + offset).replace(tzinfo=None)
            if next(CronSim(self._fields, local_time)) - offset == change.replace(tzinfo=None):
                return change
            start = change
        raise StopIteration

    def _first_change(self, start: datetime, end: datetime, offset: timedelta) -> datetime | None:
        """Return the first second in (start, end] at which the offset differs."""
        early = start.replace(microsecond=0)
        while early < end:
            late = min(early + _STEP, end)
            if late.astimezone(self.zone).utcoffset() != offset:
                return self._bisect(early, late, offset)
            early = late
        return None

    def _bisect(self, early: datetime, late: datetime, offset: timedelta) -> datetime:
        while late - early > _SECOND:
            middle = early + timedelta(seconds=(late - early) // _SECOND // 2)
            if middle.astimezone(self.zone).utcoffset() == offset:
                early = middle
            else:
                late = middle
        return late


@functools.lru_cache(_CALENDARS)
def _calendar(fields: str, zone: ZoneInfo) -> _Calendar:
    return _Calendar(fields, zone)


def _check(expression: str, fields: str) -> None:
    shown = repr(expression[:_MAX_LENGTH])
    parts = fields.split()
    if expression.strip().lower() == "@reboot":
        raise UsageError(f"cron {shown} is not a time; write `every: 1h` for an interval, or five fields")
    if expression.strip().startswith("@") and expression.strip().lower() not in ALIASES:
        raise UsageError(f"cron {shown} is unknown; write five fields or one of {', '.join(ALIASES)}")
    if len(parts) != len(_FIELDS) or len(fields) > _MAX_LENGTH:
        raise UsageError(
            f"cron {shown} has {len(parts)} fields; write five: minute hour day-of-month month day-of-week"
        )
    for place, part in enumerate(parts):
        alone = ["*"] * len(parts)
        alone[place] = part
        # A day that exists in some month is checked with its month below.
        if not _is_known(" ".join(alone)):
            name, values = _FIELDS[place]
            raise UsageError(
                f"cron {shown}: {part!r} is not a valid {name}; write {values}, lists, ranges or steps"
            )
    if not _is_known(fields):
        raise UsageError(f"cron {shown} never happens: {_why_never(parts)}")
    if next(_simulated(fields), None) is None:
        raise UsageError(f"cron {shown} never happens: no day of the next fifty years matches")


def _is_known(fields: str) -> bool:
    try:
        CronSim(fields, _SOME_TIME)
    except (CronSimError, ValueError, AssertionError):
        return False
    return True


def _simulated(fields: str) -> Iterator[datetime]:
    return iter(CronSim(fields, _SOME_TIME))


def _why_never(parts: list[str]) -> str:
    parsed = CronSim(f"0 0 * {parts[3]} *", _SOME_TIME)
    months = sorted(parsed.months)
    longest = max(calendar.monthrange(2024, month)[1] for month in months)
    names = ", ".join(calendar.month_name[month] for month in months)
    return f"day {parts[2]} does not exist: {names} has at most {longest} days"

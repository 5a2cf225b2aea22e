"""Schedules by cron expression, with the semantics of cronsim, which are those of Debian's cron.

Whether a time that daylight saving skips or repeats counts depends on the expression, as in Debian: where neither its
minute nor its hour begins with a star, it means a moment of the day, which happens once: a skipped one at the end of the
gap, a repeated one the first time. Others mean a rhythm, which follows the clock on the wall: skipped times do not
happen, repeated ones happen twice.
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
_LONGEST: Final = 200
_SOME_TIME: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - cronsim works on times of the wall
_STEP: Final = timedelta(days=7)
"""Shorter than the time between any two changes of a zone's offset that would undo each other."""
_CALENDARS: Final = 1024
_ANSWERS: Final = 64
"""Of each that are remembered."""
_SECOND: Final = timedelta(seconds=1)


class CronSchedule(Schedule):
    """Slots by a cron expression of five fields, or an alias such as `@daily`.

    Args:
        expression: As in a crontab; names in any case.
        zone_name: IANA time zone in which it is meant; None: the machine's.

    Raises:
        UsageError: It is no such expression, it never happens, or there is no such zone.
    """

    def __init__(self, expression: str, zone_name: str | None = None) -> None:
        self.expression = expression.strip()
        self.zone = zone(zone_name)
        fields = ALIASES.get(self.expression.lower(), self.expression)
        _check(expression, fields)
        self._calendar = _calendar(fields, self.zone)

    def next_after(self, moment: datetime) -> datetime | None:
        """See `Schedule`."""
        # Slots are at whole seconds, so that within one all have the same answer.
        return self._calendar.next_after(moment.astimezone(UTC).replace(microsecond=0))

    def describe(self) -> str:
        """The expression and its zone."""
        return f"{self.expression} ({self.zone.key})"


class _Calendar:
    """The slots of an expression in a zone, for all schedules that have them: many ask the same at the same time."""

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
        # A repeated hour's second pass is earlier on the wall than slots that are already over.
        for slot in CronSim(self._fields, moment.astimezone(self.zone)):
            if (found := slot.astimezone(UTC)) > moment:
                return found
        raise StopIteration

    def _next_of_rhythm(self, moment: datetime) -> datetime:
        """Go from one change of the offset to the next; between two, the clock on the wall runs evenly."""
        start = moment.astimezone(UTC)
        for _ in range(1000):
            offset = start.astimezone(self.zone).utcoffset() or timedelta()
            on_wall = (start + offset).replace(tzinfo=None)
            slot = (next(CronSim(self._fields, on_wall)) - offset).replace(tzinfo=UTC)
            change = self._first_change(start, slot, offset)
            if change is None:
                return slot
            start = change - _SECOND
            offset = change.astimezone(self.zone).utcoffset() or timedelta()
            on_wall = (start + offset).replace(tzinfo=None)
            if next(CronSim(self._fields, on_wall)) - offset == change.replace(tzinfo=None):
                return change
            start = change
        raise StopIteration

    def _first_change(self, start: datetime, end: datetime, offset: timedelta) -> datetime | None:
        """The first second in (start, end] at which the zone's offset is another."""
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
    shown = repr(expression[:_LONGEST])
    parts = fields.split()
    if expression.strip().lower() == "@reboot":
        raise UsageError(
            f"cron {shown} has no time; write `every: 1h` for a rhythm, or a time in five fields"
        )
    if expression.strip().startswith("@") and expression.strip().lower() not in ALIASES:
        raise UsageError(f"cron {shown} is unknown; write five fields or one of {', '.join(ALIASES)}")
    if len(parts) != len(_FIELDS) or len(fields) > _LONGEST:
        raise UsageError(
            f"cron {shown} has {len(parts)} fields; write five: minute hour day-of-month month day-of-week"
        )
    for place, part in enumerate(parts):
        alone = ["*"] * len(parts)
        alone[place] = part
        # A day that is fine in some month is judged with its month, below.
        if not _is_known(" ".join(alone)):
            name, values = _FIELDS[place]
            raise UsageError(
                f"cron {shown}: {part!r} is no {name}; it takes {values}, lists, ranges and steps"
            )
    if not _is_known(fields):
        raise UsageError(f"cron {shown} never happens: {_why_never(parts)}")
    if next(_simulated(fields), None) is None:
        raise UsageError(
            f"cron {shown} never happens: no day of the next fifty years has all that it asks for"
        )


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
    return f"day {parts[2]} is asked for, but {names} has at most {longest} days"

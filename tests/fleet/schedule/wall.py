"""A slow reference for cron expressions, which checks every minute."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


def slots(expression: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """Return all due times after `start` and not after `end`, in UTC."""
    minute, hour = expression.split()[:2]
    is_rhythm = minute.startswith("*") or hour.startswith("*")
    found = _of_rhythm(expression, zone, start, end) if is_rhythm else _of_day(expression, zone, start, end)
    return sorted({slot for slot in found if start < slot <= end})


def _of_rhythm(expression: str, zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    at = start.astimezone(UTC).replace(second=0, microsecond=0)
    while at <= end:
        if _matches(expression, at.astimezone(zone)):
            yield at
        at += MINUTE


def _of_day(expression: str, zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[datetime]:
    wall = start.astimezone(zone).replace(tzinfo=None, second=0, microsecond=0) - timedelta(days=2)
    while wall <= end.astimezone(zone).replace(tzinfo=None) + timedelta(days=2):
        if _matches(expression, wall):
            real = wall
            while (utc := real.replace(tzinfo=zone).astimezone(UTC)).astimezone(zone).replace(
                tzinfo=None
            ) != real:
                real += MINUTE
            yield utc
        wall += MINUTE


@cache
def _parsed(expression: str) -> tuple[frozenset[int], ...]:
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    return tuple(_values(field, *bound) for field, bound in zip(expression.split(), bounds, strict=True))


def _matches(expression: str, wall: datetime) -> bool:
    minute, hour, day, month, weekday = _parsed(expression)
    if wall.minute not in minute or wall.hour not in hour or wall.month not in month:
        return False
    is_day = wall.day in day
    is_weekday = wall.isoweekday() in weekday or wall.isoweekday() % 7 in weekday
    are_both = expression.split()[2].startswith("*") or expression.split()[4].startswith("*")
    return (is_day and is_weekday) if are_both else (is_day or is_weekday)


def _values(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        low, high = (least, most) if span == "*" else (int(first), int(last or first))
        found |= set(range(low, high + 1, int(step or 1)))
    return frozenset(found)

"""Finds the due times of a schedule that have come, even if the clock was set in the meantime."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from ringfence.fleet.schedule.base import Schedule

MAX_DUE_TIMES: Final = 100
"""The most due times that fire at once."""
MAX_COUNTED: Final = 1000
"""The most dropped due times that are counted."""
TOLERANCE_S: Final = 1.0
"""A due time that is late by less counts as on time."""
_FIRST_SPAN: Final = timedelta(minutes=1)


class CatchUp(StrEnum):
    """What happens with due times that were missed."""

    SKIP = "skip"
    """They are skipped: only due times that are on time fire."""
    ONCE = "once"
    """The newest of them fires."""
    ALL = "all"
    """Each of them fires, or the newest hundred."""


@dataclass(frozen=True)
class DueTimes:
    """The due times that have come."""

    times: tuple[datetime, ...]
    """The due times that fire, the oldest first; at most a hundred."""
    handled: datetime
    """The time up to which the schedule is handled once these due times have fired; store it for the next call."""
    dropped: int
    """The number of due times that do not fire, at most `MAX_COUNTED`."""


def find_due(
    schedule: Schedule,
    *,
    handled: datetime,
    now: datetime,
    catch_up: CatchUp,
    tolerance_s: float = TOLERANCE_S,
) -> DueTimes:
    """Return the due times that fire now.

    If the wall clock was set back a little, nothing is due until it has caught up; after a longer step back
    `ringfence.fleet.schedule.clock` starts anew. If it was set ahead, due times were missed, and `catch_up` decides.

    Args:
        schedule: The schedule.
        handled: The last due time that was handled, or the start of the schedule.
        now: The time by the wall clock.
        catch_up: What happens with missed due times.
        tolerance_s: A due time that is late by less counts as on time, in seconds.
    """
    handled, now = handled.astimezone(UTC), now.astimezone(UTC)
    first = schedule.next_after(handled)
    if first is None or first > now:
        return DueTimes((), handled, 0)
    newest = _newest(schedule, handled, now, 1 if catch_up is CatchUp.ONCE else MAX_DUE_TIMES)
    times = newest
    if catch_up is CatchUp.SKIP:
        tolerance = timedelta(seconds=tolerance_s)
        times = [time for time in newest if now - time < tolerance]
    before = schedule.count(handled, times[0] if times else now, MAX_COUNTED + 1)
    missed = before - len(times[:1])
    return DueTimes(tuple(times), handled=newest[-1], dropped=min(missed, MAX_COUNTED))


def _newest(schedule: Schedule, start: datetime, end: datetime, limit: int) -> list[datetime]:
    """Return the last `limit` due times in (start, end], at least one, by a binary search for their span."""
    upper_limit = 4 * limit
    too_short, too_long = timedelta(), None
    span = _FIRST_SPAN
    while True:
        is_all = span >= end - start
        found = schedule.between(start if is_all else end - span, end, upper_limit)
        if len(found) == upper_limit:
            too_long = span
        elif len(found) < limit and not is_all:
            too_short = span
        else:
            return found[-limit:]
        span = span * 2 if too_long is None else (too_short + too_long) / 2

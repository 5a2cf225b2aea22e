"""What of a schedule is due, after no matter what has happened to the clock meanwhile."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from ringfence.fleet.schedule.base import Schedule

MOST_SLOTS: Final = 100
"""More are never fired at once."""
MOST_COUNTED: Final = 1000
"""Dropped slots beyond this number are not counted one by one."""
TOLERANCE_S: Final = 1.0
"""A slot that is late by less is on time."""
_AT_FIRST: Final = timedelta(minutes=1)


class CatchUp(StrEnum):
    """What becomes of slots that nobody was there for."""

    SKIP = "skip"
    """Nothing: only what is on time fires."""
    ONCE = "once"
    """One run stands for all that were missed: the newest slot fires."""
    ALL = "all"
    """Each fires, of more than a hundred the newest hundred."""


@dataclass(frozen=True)
class Due:
    """What to do now."""

    slots: tuple[datetime, ...]
    """To be fired, the oldest first; at most a hundred."""
    handled: datetime
    """Everything up to here is dealt with, once the slots are: keep it for the next time."""
    dropped: int
    """How many slots are not fired, up to `MOST_COUNTED`."""


def due(
    schedule: Schedule,
    *,
    handled: datetime,
    now: datetime,
    catch_up: CatchUp,
    tolerance_s: float = TOLERANCE_S,
) -> Due:
    """Which slots fire now.

    A clock that goes back a little finds everything handled up to where it was; `ringfence.fleet.schedule.clock` begins
    anew after a longer way back. One that leaps ahead finds slots missed, and does with them as the policy says.

    Args:
        schedule: The schedule.
        handled: The last slot that was dealt with, or the moment from which on slots count.
        now: By the wall clock.
        catch_up: The policy.
        tolerance_s: A slot late by less is on time, in seconds.
    """
    handled, now = handled.astimezone(UTC), now.astimezone(UTC)
    first = schedule.next_after(handled)
    if first is None or first > now:
        return Due((), handled, 0)
    newest = _newest(schedule, handled, now, 1 if catch_up is CatchUp.ONCE else MOST_SLOTS)
    slots = newest
    if catch_up is CatchUp.SKIP:
        punctual = timedelta(seconds=tolerance_s)
        slots = [slot for slot in newest if now - slot < punctual]
    before = schedule.count(handled, slots[0] if slots else now, MOST_COUNTED + 1)
    missed = before - len(slots[:1])
    return Due(tuple(slots), handled=newest[-1], dropped=min(missed, MOST_COUNTED))


def _newest(schedule: Schedule, start: datetime, end: datetime, limit: int) -> list[datetime]:
    """The last `limit` slots of (start, end], at least one; found by looking back further, or less far, by halves."""
    most = 4 * limit
    too_short, too_long = timedelta(), None
    span = _AT_FIRST
    while True:
        is_all = span >= end - start
        found = schedule.between(start if is_all else end - span, end, most)
        if len(found) == most:
            too_long = span
        elif len(found) < limit and not is_all:
            too_short = span
        else:
            return found[-limit:]
        span = span * 2 if too_long is None else (too_short + too_long) / 2

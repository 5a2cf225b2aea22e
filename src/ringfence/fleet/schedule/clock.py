"""The clock of a fleet: it calls back when due times of many schedules come, and waits for no callback for long."""

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from ringfence.errors import InfrastructureFault
from ringfence.fleet.schedule.base import Schedule
from ringfence.fleet.schedule.due import TOLERANCE_S, CatchUp, Due, due

LONGEST_SLEEP_S: Final = 1.0
"""So soon a change of the wall clock is noticed."""
SMALLEST_JUMP_S: Final = 0.5
"""What the wall clock may move against the steady one between two looks before it counts as a jump."""
CALL_LIMIT_S: Final = 10.0
"""So long a callback may take."""
_MOST_LENIENT_S: Final = 60.0
"""Slots that are late because this process was busy are on time, up to here."""
LONGEST_AHEAD: Final = timedelta(minutes=1)
"""A timer whose last slot lies further in the future was handled while the clock was wrong: it starts anew from now."""
_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 60.0


class TimeSource(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """By the wall clock, in UTC."""

    def steady_s(self) -> float:
        """Seconds since some moment, by a clock that nobody sets and that stands still while the machine sleeps."""

    async def wait(self, event: anyio.Event, timeout_s: float) -> None:
        """Until the event is set, or for so long."""


class SystemTime:
    """The machine's clocks."""

    def now(self) -> datetime:
        """See `TimeSource`."""
        return datetime.now(UTC)

    def steady_s(self) -> float:
        """See `TimeSource`."""
        return time.monotonic()

    async def wait(self, event: anyio.Event, timeout_s: float) -> None:
        """See `TimeSource`."""
        with anyio.move_on_after(timeout_s):
            await event.wait()


@dataclass(frozen=True)
class Timer:
    """A schedule in the hands of a clock."""

    key: str
    """One of its kind, such as `agent/schedule`."""
    schedule: Schedule
    handled: datetime
    """The last slot that was dealt with, or the moment from which on slots count."""
    catch_up: CatchUp = CatchUp.ONCE


class Fire(Protocol):
    """What is to happen."""

    async def __call__(self, timer: Timer, due: Due, /) -> None:
        """Note the slots' jobs and `due.handled` durably; do not wait for the jobs.

        It is called again with the same slots after a while if it raises or takes too long: it must be safe to repeat
        (by `slot_id` as the jobs' key). Slots may be empty where all were dropped.
        """


@dataclass(frozen=True)
class ClockJumped:
    """The wall clock was set, or the machine has slept."""

    seconds: float
    """Ahead; negative: back."""


Report = Callable[[str | None, Exception | ClockJumped], None]
"""Is told what went wrong, with the timer's key if it is about one. It must not raise."""


@dataclass
class _Entry:
    timer: Timer
    is_paused: bool = False
    is_busy: bool = False
    is_broken: bool = False
    pending: Due | None = None
    failures: int = 0
    overdue_since_s: float | None = None
    """Steady time since which this process kept it from being looked at."""
    ticket: int = field(default=0)
    """Only the newest place in the heap counts."""


class Clock:
    """Calls back when slots are due, for as long as `run` runs. All methods belong to the loop that runs it.

    Each timer stands alone: one whose schedule or callback fails, or hangs, delays no other.

    Args:
        fire: What is to happen.
        report: Is told of errors and of jumps.
        source: Where the time comes from.
        call_limit_s: So long a call of `fire` may take, in seconds.
    """

    def __init__(
        self,
        fire: Fire,
        *,
        report: Report,
        source: TimeSource | None = None,
        call_limit_s: float = CALL_LIMIT_S,
    ) -> None:
        self._fire = fire
        self._report = report
        self._time = source or SystemTime()
        self._call_limit_s = call_limit_s
        self._entries: dict[str, _Entry] = {}
        self._heap: list[tuple[datetime, int, str]] = []
        self._tickets = itertools.count(1)
        self._changed = anyio.Event()

    def add(self, timer: Timer, *, is_paused: bool = False) -> None:
        """Take a timer in, in the place of one with its key."""
        self._entries[timer.key] = _Entry(timer, is_paused)
        self._plan(self._entries[timer.key], self._time.now())

    def remove(self, key: str) -> None:
        """Forget a timer; a call under way goes on."""
        self._entries.pop(key, None)

    def pause(self, key: str) -> None:
        """Let a timer fire no more until it is resumed."""
        if entry := self._entries.get(key):
            entry.is_paused = True

    def resume(self, key: str, *, handled: datetime | None = None) -> None:
        """Let a timer fire again.

        Args:
            key: Its key.
            handled: Slots up to here are not caught up on; None: the policy holds for all since it was paused.
        """
        if entry := self._entries.get(key):
            entry.is_paused = False
            if handled is not None and handled > entry.timer.handled:
                self._handle(entry, handled)
            self._plan(entry, self._time.now())

    def next_slot(self, key: str) -> datetime | None:
        """When a timer fires next, were it not paused; None if never, or if there is no such timer."""
        entry = self._entries.get(key)
        return entry.timer.schedule.next_after(entry.timer.handled) if entry else None

    def is_paused(self, key: str) -> bool:
        """Whether a timer rests; one that is not there does."""
        entry = self._entries.get(key)
        return entry is None or entry.is_paused

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as calls:
            wall, steady, planned_s = self._time.now(), self._time.steady_s(), 0.0
            while True:
                now, now_steady = self._time.now(), self._time.steady_s()
                self._notice_jump((now - wall).total_seconds() - (now_steady - steady))
                late_s = max(0.0, now_steady - steady - planned_s)
                wall, steady = now, now_steady
                await self._start_due(calls, now, late_s)
                planned_s = self._pause_s()
                await self._time.wait(self._changed, planned_s)
                self._changed = anyio.Event()

    def _notice_jump(self, seconds: float) -> None:
        if abs(seconds) >= SMALLEST_JUMP_S:
            self._report(None, ClockJumped(seconds))
        if seconds <= -SMALLEST_JUMP_S:
            for entry in self._entries.values():
                self._plan(entry, self._time.now())

    def _pause_s(self) -> float:
        if self._changed.is_set() or not self._heap:
            return 0.0 if self._changed.is_set() else LONGEST_SLEEP_S
        until_s = (self._heap[0][0] - self._time.now()).total_seconds()
        return min(LONGEST_SLEEP_S, max(0.0, until_s))

    async def _start_due(self, calls: TaskGroup, now: datetime, late_s: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            _, ticket, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is None or entry.ticket != ticket or entry.is_paused or entry.is_busy:
                continue
            pending = entry.pending or self._look(entry, now, late_s)
            if pending is None:
                self._plan(entry, now)
            else:
                entry.pending, entry.is_busy = pending, True
                calls.start_soon(self._call, entry, pending)
            await anyio.lowlevel.checkpoint()

    def _look(self, entry: _Entry, now: datetime, late_s: float) -> Due | None:
        """What is due of a timer; None if nothing is, or if its schedule is broken, which is then left alone."""
        since_s = entry.overdue_since_s
        waited_s = 0.0 if since_s is None else self._time.steady_s() - since_s
        entry.overdue_since_s = None
        timer = entry.timer
        try:
            found = due(
                timer.schedule,
                handled=timer.handled,
                now=now,
                catch_up=timer.catch_up,
                tolerance_s=TOLERANCE_S + min(_MOST_LENIENT_S, max(late_s, waited_s)),
            )
        except Exception as exc:  # noqa: BLE001 - a broken schedule must not stop the others
            self._give_up(entry, exc)
            return None
        return found if found.slots or found.dropped else None

    async def _call(self, entry: _Entry, pending: Due) -> None:
        entry.overdue_since_s = self._time.steady_s()
        try:
            with anyio.fail_after(self._call_limit_s):
                await self._fire(entry.timer, pending)
        except TimeoutError:
            self._retry(entry, InfrastructureFault(_overtime(entry.timer, self._call_limit_s)))
        except Exception as exc:  # noqa: BLE001 - a broken callback must not stop the others
            self._retry(entry, exc)
        else:
            entry.pending, entry.failures = None, 0
            self._handle(entry, pending.handled)
            entry.is_busy = False
            self._plan(entry, self._time.now())

    def _retry(self, entry: _Entry, error: Exception) -> None:
        self._report(entry.timer.key, error)
        wait_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(entry.failures, 10))
        entry.failures += 1
        entry.is_busy = False
        self._push(entry, self._time.now() + timedelta(seconds=wait_s))

    def _handle(self, entry: _Entry, handled: datetime) -> None:
        entry.timer = replace(entry.timer, handled=max(entry.timer.handled, handled))

    def _plan(self, entry: _Entry, now: datetime) -> None:
        """Have the timer looked at when its next slot comes."""
        if entry.is_paused or entry.is_busy or entry.is_broken:
            return
        if entry.timer.handled > now + LONGEST_AHEAD:
            entry.timer = replace(entry.timer, handled=now)
        try:
            slot = now if entry.pending else entry.timer.schedule.next_after(entry.timer.handled)
        except Exception as exc:  # noqa: BLE001 - a broken schedule must not stop the others
            self._give_up(entry, exc)
            return
        if slot is not None:
            self._push(entry, slot)

    def _push(self, entry: _Entry, at: datetime) -> None:
        if self._entries.get(entry.timer.key) is not entry:
            return
        entry.ticket = next(self._tickets)
        if not self._heap or at < self._heap[0][0]:
            self._changed.set()
        heapq.heappush(self._heap, (at, entry.ticket, entry.timer.key))

    def _give_up(self, entry: _Entry, error: Exception) -> None:
        entry.is_broken = True
        self._report(entry.timer.key, error)


def _overtime(timer: Timer, limit_s: float) -> str:
    return f"noting what is due of {timer.key!r} took longer than {limit_s:g} s; it is tried again"

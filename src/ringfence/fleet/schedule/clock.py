"""The clock of a fleet, which calls back when due times of its schedules come. No schedule delays another."""

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
from ringfence.fleet.schedule.due import TOLERANCE_S, CatchUp, DueTimes, find_due

MAX_SLEEP_S: Final = 1.0
"""The time within which a step of the wall clock is noticed."""
MIN_STEP_S: Final = 0.5
"""The difference between wall clock and monotonic clock, from one check to the next, that counts as a step."""
CALL_LIMIT_S: Final = 10.0
"""The time limit of a callback."""
_MAX_LATENESS_S: Final = 60.0
"""Due times that are late because this process was busy count as on time, up to this lateness."""
MAX_AHEAD: Final = timedelta(minutes=1)
"""A timer that was handled further in the future was handled while the clock was wrong, and starts anew from now."""
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 60.0


class TimeSource(Protocol):
    """A source of the time."""

    def now(self) -> datetime:
        """Return the time by the wall clock, in UTC."""

    def monotonic_s(self) -> float:
        """Return seconds by a clock that is never set, and that stops while the machine sleeps."""

    async def wait(self, event: anyio.Event, timeout_s: float) -> None:
        """Wait until the event is set, for a limited time."""


class SystemTime:
    """The clocks of the machine."""

    def now(self) -> datetime:
        """See `TimeSource`."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """See `TimeSource`."""
        return time.monotonic()

    async def wait(self, event: anyio.Event, timeout_s: float) -> None:
        """See `TimeSource`."""
        with anyio.move_on_after(timeout_s):
            await event.wait()


@dataclass(frozen=True)
class Timer:
    """A schedule that a clock runs."""

    key: str
    """The unique name of the timer, such as `agent/schedule`."""
    schedule: Schedule
    handled: datetime
    """The last due time that was handled, or the start of the schedule."""
    catch_up: CatchUp = CatchUp.ONCE


class Fire(Protocol):
    """The callback of a clock."""

    async def __call__(self, timer: Timer, due: DueTimes, /) -> None:
        """Store the jobs of the due times and `due.handled` durably, without waiting for the jobs.

        The call is repeated with the same due times if it raises or takes too long, so it must be idempotent, with
        `due_time_id` as the key of each job. There are no due times if all were dropped.
        """


@dataclass(frozen=True)
class ClockStep:
    """A step of the wall clock, because it was set or because the machine slept."""

    seconds: float
    """Seconds ahead; negative: back."""


Report = Callable[[str | None, Exception | ClockStep], None]
"""Logs an error or a step of the clock, with the key of the timer if it concerns one. It must not raise."""


@dataclass
class _Entry:
    timer: Timer
    is_paused: bool = False
    is_busy: bool = False
    is_broken: bool = False
    pending: DueTimes | None = None
    failures: int = 0
    overdue_since_s: float | None = None
    """The monotonic time since which this process has kept the timer from being checked."""
    ticket: int = field(default=0)
    """The number of its valid entry in the heap; older entries are ignored."""


class Clock:
    """Calls back when due times come, while `run` runs. All methods must be called in the event loop of `run`.

    A timer whose schedule or callback fails or hangs delays no other timer.

    Args:
        fire: The callback.
        report: Logs errors and steps of the clock.
        source: The source of the time; None: the clocks of the machine.
        call_limit_s: The time limit of a call of `fire`, in seconds.
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
        """Add a timer; it replaces a timer with the same key."""
        self._entries[timer.key] = _Entry(timer, is_paused)
        self._plan(self._entries[timer.key], self._time.now())

    def remove(self, key: str) -> None:
        """Remove a timer. A running call of its callback continues."""
        self._entries.pop(key, None)

    def pause(self, key: str) -> None:
        """Pause a timer until it is resumed."""
        if entry := self._entries.get(key):
            entry.is_paused = True

    def resume(self, key: str, *, handled: datetime | None = None) -> None:
        """Resume a timer.

        Args:
            key: The key of the timer.
            handled: Due times up to here are dropped; None: the policy applies to all since the timer was paused.
        """
        if entry := self._entries.get(key):
            entry.is_paused = False
            if handled is not None and handled > entry.timer.handled:
                self._handle(entry, handled)
            self._plan(entry, self._time.now())

    def next_due(self, key: str) -> datetime | None:
        """Return the next due time of a timer, paused or not; None if it has none, or if there is no such timer."""
        entry = self._entries.get(key)
        return entry.timer.schedule.next_after(entry.timer.handled) if entry else None

    def is_paused(self, key: str) -> bool:
        """Whether a timer is paused or does not exist."""
        entry = self._entries.get(key)
        return entry is None or entry.is_paused

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as calls:
            wall, monotonic, planned_s = self._time.now(), self._time.monotonic_s(), 0.0
            while True:
                now, now_s = self._time.now(), self._time.monotonic_s()
                self._check_step((now - wall).total_seconds() - (now_s - monotonic))
                late_s = max(0.0, now_s - monotonic - planned_s)
                wall, monotonic = now, now_s
                await self._start_due(calls, now, late_s)
                planned_s = self._pause_s()
                await self._time.wait(self._changed, planned_s)
                self._changed = anyio.Event()

    def _check_step(self, seconds: float) -> None:
        if abs(seconds) >= MIN_STEP_S:
            self._report(None, ClockStep(seconds))
        if seconds <= -MIN_STEP_S:
            for entry in self._entries.values():
                self._plan(entry, self._time.now())

    def _pause_s(self) -> float:
        if self._changed.is_set() or not self._heap:
            return 0.0 if self._changed.is_set() else MAX_SLEEP_S
        until_s = (self._heap[0][0] - self._time.now()).total_seconds()
        return min(MAX_SLEEP_S, max(0.0, until_s))

    async def _start_due(self, calls: TaskGroup, now: datetime, late_s: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            _, ticket, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is None or entry.ticket != ticket or entry.is_paused or entry.is_busy:
                continue
            pending = entry.pending or self._find_due(entry, now, late_s)
            if pending is None:
                self._plan(entry, now)
            else:
                entry.pending, entry.is_busy = pending, True
                calls.start_soon(self._call, entry, pending)
            await anyio.lowlevel.checkpoint()

    def _find_due(self, entry: _Entry, now: datetime, late_s: float) -> DueTimes | None:
        """Return the due times of a timer that have come; None if there are none, or if its schedule fails."""
        since_s = entry.overdue_since_s
        waited_s = 0.0 if since_s is None else self._time.monotonic_s() - since_s
        entry.overdue_since_s = None
        timer = entry.timer
        try:
            found = find_due(
                timer.schedule,
                handled=timer.handled,
                now=now,
                catch_up=timer.catch_up,
                tolerance_s=TOLERANCE_S + min(_MAX_LATENESS_S, max(late_s, waited_s)),
            )
        except Exception as exc:  # noqa: BLE001 - a broken schedule must not stop the others
            self._give_up(entry, exc)
            return None
        return found if found.times or found.dropped else None

    async def _call(self, entry: _Entry, pending: DueTimes) -> None:
        entry.overdue_since_s = self._time.monotonic_s()
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
        wait_s = min(_MAX_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(entry.failures, 10))
        entry.failures += 1
        entry.is_busy = False
        self._push(entry, self._time.now() + timedelta(seconds=wait_s))

    def _handle(self, entry: _Entry, handled: datetime) -> None:
        entry.timer = replace(entry.timer, handled=max(entry.timer.handled, handled))

    def _plan(self, entry: _Entry, now: datetime) -> None:
        """Put the timer into the heap for its next due time."""
        if entry.is_paused or entry.is_busy or entry.is_broken:
            return
        if entry.timer.handled > now + MAX_AHEAD:
            entry.timer = replace(entry.timer, handled=now)
        try:
            next_at = now if entry.pending else entry.timer.schedule.next_after(entry.timer.handled)
        except Exception as exc:  # noqa: BLE001 - a broken schedule must not stop the others
            self._give_up(entry, exc)
            return
        if next_at is not None:
            self._push(entry, next_at)

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
    return f"storing the due jobs of {timer.key!r} took longer than {limit_s:g} s; it is retried"

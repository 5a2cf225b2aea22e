"""The clock of a fleet, on a simulated time source: which timers fire, and that none delays another."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel
import pytest

from ringfence.fleet.schedule.base import Schedule
from ringfence.fleet.schedule.clock import Clock, ClockStep, Timer
from ringfence.fleet.schedule.cron import CronSchedule
from ringfence.fleet.schedule.due import CatchUp, DueTimes
from ringfence.fleet.schedule.interval import IntervalSchedule

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Time:
    """A time source that advances only while it is waited on, by the time that is waited for."""

    def __init__(self, end_s: float = 1000.0) -> None:
        self.wall, self.steady, self.end_s = START, 0.0, end_s
        self.waits: list[float] = []
        self.jumps: dict[int, timedelta] = {}
        self.is_over = anyio.Event()

    def now(self) -> datetime:
        return self.wall

    def monotonic_s(self) -> float:
        return self.steady

    async def wait(self, event: anyio.Event, timeout_s: float) -> None:
        for _ in range(20):  # calls that were started may end first
            await anyio.lowlevel.checkpoint()
        if event.is_set():
            return
        if self.steady >= self.end_s:
            self.is_over.set()
            await event.wait()
            return
        self.waits.append(timeout_s)
        before = int(self.steady)
        self.wall, self.steady = self.wall + timedelta(seconds=timeout_s), self.steady + timeout_s
        for at in range(before + 1, int(self.steady) + 1):
            self.wall += self.jumps.get(at, timedelta())


class FleetFiles:
    """Records what a clock fires and reports."""

    def __init__(self) -> None:
        self.fired: list[tuple[str, float]] = []
        self.dropped = 0
        self.problems: list[tuple[str | None, Exception | ClockStep]] = []

    async def fire(self, timer: Timer, due: DueTimes) -> None:
        self.fired += [(timer.key, (slot - START).total_seconds()) for slot in due.times]
        self.dropped += due.dropped

    def report(self, key: str | None, problem: Exception | ClockStep) -> None:
        self.problems.append((key, problem))

    def of(self, key: str) -> list[float]:
        return [at for name, at in self.fired if name == key]


def every(seconds: float, key: str = "a", policy: CatchUp = CatchUp.ONCE) -> Timer:
    """Return a timer of an interval."""
    return Timer(key, IntervalSchedule(timedelta(seconds=seconds), START), START, policy)


async def run(clock: Clock, time: Time) -> None:
    """Run the clock until its time is over."""
    async with anyio.create_task_group() as group:
        group.start_soon(clock.run)
        with anyio.fail_after(30):
            await time.is_over.wait()
        group.cancel_scope.cancel()


async def test_slots_fire_in_their_time():
    """Each timer fires at each of its due times, and not before."""
    time, crew = Time(60), FleetFiles()
    at: list[float] = []

    async def fire(timer: Timer, due: DueTimes) -> None:
        at.append((time.wall - START).total_seconds())
        await crew.fire(timer, due)

    clock = Clock(fire, report=crew.report, source=time)
    clock.add(every(20, "slow"))
    clock.add(every(7.5, "fast"))
    await run(clock, time)
    assert crew.of("slow") == [20, 40, 60]
    assert crew.of("fast") == [7.5 * number for number in range(1, 9)]
    assert at == sorted(moment for _, moment in crew.fired)
    assert crew.problems == []


async def test_it_looks_no_more_than_once_a_second():
    """Between due times the clock sleeps, a second at a time."""
    time, crew = Time(600), FleetFiles()
    clock = Clock(crew.fire, report=crew.report, source=time)
    clock.add(every(60))
    await run(clock, time)
    assert len(time.waits) <= 602
    assert max(time.waits) <= 1.0


@pytest.mark.parametrize(
    ("policy", "fired", "dropped"),
    [
        (CatchUp.SKIP, [10, 20, 130, 140], 10),
        (CatchUp.ONCE, [10, 20, 120, 130, 140], 9),
        (CatchUp.ALL, [10, 20, *range(30, 150, 10)], 0),
    ],
)
async def test_a_jump_ahead_is_told_and_caught_up(policy, fired, dropped):
    """A jump of the wall clock is noticed within a second; the due times in between are handled by the policy."""
    time, crew = Time(45), FleetFiles()
    time.jumps = {22: timedelta(seconds=103)}
    clock = Clock(crew.fire, report=crew.report, source=time)
    clock.add(every(10, policy=policy))
    await run(clock, time)
    assert crew.of("a") == fired
    assert crew.dropped == dropped
    [(key, jump)] = crew.problems
    assert (key, jump) == (None, ClockStep(103.0))


async def test_a_jump_back_fires_nothing_again():
    """After a jump backwards nothing fires again until the wall clock is where it was."""
    time, crew = Time(100), FleetFiles()
    time.jumps = {35: timedelta(seconds=-30)}
    clock = Clock(crew.fire, report=crew.report, source=time)
    clock.add(every(10, policy=CatchUp.ALL))
    await run(clock, time)
    assert crew.of("a") == [10, 20, 30, 40, 50, 60, 70]
    assert crew.problems == [(None, ClockStep(-30.0))]


async def test_a_clock_that_was_hours_ahead_silences_no_schedule():
    """Once a clock that was ahead is right again, timers fire at their own due times as usual."""
    time, crew = Time(100), FleetFiles()
    time.jumps = {25: timedelta(hours=2), 45: timedelta(hours=-2)}
    clock = Clock(crew.fire, report=crew.report, source=time)
    clock.add(every(10))
    await run(clock, time)
    ahead = [at for at in crew.of("a") if at > 7000]
    assert ahead == [7220, 7230, 7240]
    assert [at for at in crew.of("a") if at < 7000] == [10, 20, 50, 60, 70, 80, 90, 100]


async def test_a_timer_that_was_handled_in_the_future_fires_again():
    """A timer whose last due time is in the future, as after a restart with a corrected clock, still fires."""
    time, crew = Time(30), FleetFiles()
    clock = Clock(crew.fire, report=crew.report, source=time)
    clock.add(Timer("a", IntervalSchedule(10 * SECOND, START), START + timedelta(hours=2)))
    await run(clock, time)
    assert crew.of("a") == [10, 20, 30]


class Broken(Schedule):
    """A schedule that fails from its third due time on."""

    def next_after(self, moment: datetime) -> datetime | None:
        if moment >= START + 2 * SECOND:
            raise ArithmeticError("no such slot")
        return moment + SECOND

    def describe(self) -> str:
        return "broken"


async def test_a_broken_schedule_stops_no_other():
    """A schedule that raises is reported once and stopped; the others continue."""
    time, crew = Time(20), FleetFiles()
    clock = Clock(crew.fire, report=crew.report, source=time)
    clock.add(Timer("broken", Broken(), START))
    clock.add(every(5))
    await run(clock, time)
    assert crew.of("a") == [5, 10, 15, 20]
    assert [(key, str(problem)) for key, problem in crew.problems] == [("broken", "no such slot")]


async def test_a_callback_that_fails_is_called_again():
    """A failed callback is called again with growing pauses until it succeeds; other timers do not wait for it."""
    time, crew = Time(20), FleetFiles()
    failures = 3
    tries: list[float] = []

    async def fire(timer: Timer, due: DueTimes) -> None:
        if timer.key == "bad":
            tries.append(time.steady)
            if len(tries) <= failures:
                raise OSError("no database")
        await crew.fire(timer, due)

    clock = Clock(fire, report=crew.report, source=time)
    clock.add(every(10, "bad", CatchUp.SKIP))
    clock.add(every(1))
    await run(clock, time)
    assert tries == [10, 11, 13, 17, 20]
    assert crew.of("bad") == [10, 20]
    assert crew.of("a") == list(range(1, 21))
    assert [key for key, _ in crew.problems] == ["bad"] * failures


async def test_a_callback_that_hangs_delays_no_other():
    """The clock does not wait for a callback; after its time limit the callback is cancelled, reported and retried."""
    crew = FleetFiles()
    is_fired = anyio.Event()

    async def fire(timer: Timer, due: DueTimes) -> None:
        if timer.key == "hanging":
            await anyio.sleep_forever()
        is_fired.set()

    def report(key: str | None, problem: Exception | ClockStep) -> None:
        crew.report(key, problem)
        is_reported.set()

    is_reported = anyio.Event()
    clock = Clock(fire, report=report, call_limit_s=0.05)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    for key in ("hanging", "other"):
        clock.add(Timer(key, IntervalSchedule(timedelta(hours=1), long_ago - SECOND), long_ago))
    async with anyio.create_task_group() as group:
        group.start_soon(clock.run)
        with anyio.fail_after(30):
            await is_fired.wait()
            await is_reported.wait()
        group.cancel_scope.cancel()
    assert "took longer than 0.05 s" in str(crew.problems[0][1])


async def test_changes_wake_it():
    """Adding, pausing, resuming or removing a timer takes effect at once, even while the clock sleeps."""
    time, crew = Time(100), FleetFiles()

    async def fire(timer: Timer, due: DueTimes) -> None:
        await crew.fire(timer, due)
        for action in plan.pop((timer.key, due.times[-1]), []):
            action()

    clock = Clock(fire, report=crew.report, source=time)
    plan: dict[tuple[str, datetime], list[Callable[[], None]]] = {
        ("lead", START + 10 * SECOND): [lambda: clock.add(every(3, "new")), lambda: clock.pause("old")],
        ("lead", START + 20 * SECOND): [lambda: clock.remove("new")],
        ("lead", START + 50 * SECOND): [lambda: clock.resume("old", handled=START + 50 * SECOND)],
    }
    clock.add(every(10, "lead"))
    clock.add(every(8, "old"))
    await run(clock, time)
    assert crew.of("new") == [9, 12, 15, 18]
    assert crew.of("old") == [8, 56, 64, 72, 80, 88, 96]
    assert clock.next_due("old") == START + 104 * SECOND
    assert clock.next_due("new") is None


async def test_being_busy_is_not_being_away():
    """Due times that are late because the process was busy count as on time, so that `skip` does not skip them."""
    time, crew = Time(60), FleetFiles()

    async def fire(timer: Timer, due: DueTimes) -> None:
        await crew.fire(timer, due)
        if timer.key == "blocking" and due.times[-1] == START + 19 * SECOND:
            time.wall, time.steady = time.wall + 5 * SECOND, time.steady + 5  # as a blocked loop does

    clock = Clock(fire, report=crew.report, source=time)
    clock.add(every(19, "blocking"))
    clock.add(every(10, policy=CatchUp.SKIP))
    await run(clock, time)
    assert crew.of("a") == [10, 20, 30, 40, 50, 60]


async def test_the_real_clock_fires_a_real_slot():
    """With the machine's own clocks a timer fires, and not before its due time."""
    crew, fired_at = FleetFiles(), []
    is_fired = anyio.Event()

    async def fire(timer: Timer, due: DueTimes) -> None:
        fired_at.append((datetime.now(UTC), due.times[0]))
        is_fired.set()

    clock = Clock(fire, report=crew.report)
    clock.add(Timer("a", IntervalSchedule(SECOND, datetime.now(UTC) + SECOND), datetime.now(UTC)))
    clock.add(Timer("b", CronSchedule("0 0 1 1 *", "UTC"), datetime.now(UTC)))
    async with anyio.create_task_group() as group:
        group.start_soon(clock.run)
        with anyio.fail_after(30):
            await is_fired.wait()
        group.cancel_scope.cancel()
    assert fired_at[0][0] >= fired_at[0][1]
    assert crew.problems == []

"""A thousand schedules: how late their slots fire, and what a hundred cost while nothing is due.

Run alone: `python -m benchmarks.schedules`.
"""

import resource
import time
from datetime import UTC, datetime, timedelta

import anyio

from benchmarks.claim import Row, p50_p99
from ringfence.fleet.schedule.clock import Clock, ClockStep, Timer
from ringfence.fleet.schedule.cron import CronSchedule
from ringfence.fleet.schedule.due import DueTimes
from ringfence.fleet.schedule.interval import IntervalSchedule

_MANY = 1000
_IDLE = 100
_IDLE_S = 20.0
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")


class _Seen:
    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.keys: set[str] = set()
        self.is_complete = anyio.Event()

    async def fire(self, timer: Timer, due: DueTimes) -> None:
        """Note how late it is."""
        self.late_ms.append((datetime.now(UTC) - due.times[-1]).total_seconds() * 1000)
        self.keys.add(timer.key)
        if len(self.keys) == _MANY:
            self.is_complete.set()

    def report(self, _key: str | None, problem: Exception | ClockStep) -> None:
        """A clock that jumps only makes a worse figure."""
        if isinstance(problem, Exception):
            raise problem


async def measure() -> list[Row]:
    """Both."""
    return [await _measure_many(), await _measure_idle()]


async def _measure_many() -> Row:
    """All are due at the same second, and each is noted by a call of its own."""
    seen = _Seen()
    clock = Clock(seen.fire, report=seen.report)
    now = datetime.now(UTC)
    soon = now + timedelta(seconds=3)
    for number in range(_MANY):
        clock.add(Timer(f"agent{number}", IntervalSchedule(timedelta(minutes=1), soon), now))
    async with anyio.create_task_group() as group:
        group.start_soon(clock.run)
        with anyio.fail_after(60):
            await seen.is_complete.wait()
        group.cancel_scope.cancel()
    return Row(
        f"{_MANY} schedules due at once: lateness of the call",
        "≤ 1 s",
        f"{p50_p99(seen.late_ms)}, worst {max(seen.late_ms):.1f} ms",
        "-",
        is_kept=len(seen.late_ms) == _MANY and max(seen.late_ms) <= 1000,
    )


async def _measure_idle() -> Row:
    seen = _Seen()
    clock = Clock(seen.fire, report=seen.report)
    now = datetime.now(UTC)
    for number in range(_IDLE):
        clock.add(Timer(f"agent{number}", CronSchedule("* * * * *", _ZONES[number % len(_ZONES)]), now))
    async with anyio.create_task_group() as group:
        group.start_soon(clock.run)
        before, start = _cpu_s(), time.monotonic()
        await anyio.sleep(_IDLE_S)
        used, taken = _cpu_s() - before, time.monotonic() - start
        group.cancel_scope.cancel()
    return Row(
        f"clock of {_IDLE} one-minute schedules: share of a core",
        "≤ 0.5 %",
        f"{used / taken:.2%}",
        f"{len(seen.late_ms)} fired in {taken:.0f} s",
        is_kept=used / taken <= 0.005,
    )


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    for row in anyio.run(measure):
        print(row)

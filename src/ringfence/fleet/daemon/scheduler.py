"""Fires the schedules of a fleet's agents; each due time makes at most one job, even if a process is killed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from ringfence.errors import UsageError
from ringfence.fleet.config.checks import make_schedule
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.config.model import ScheduleSettings
from ringfence.fleet.daemon.due_jobs import DueJobs, fire_in
from ringfence.fleet.metrics import Counters
from ringfence.fleet.schedule.base import Schedule, due_time_id
from ringfence.fleet.schedule.clock import Clock, Report, Timer
from ringfence.fleet.schedule.due import CatchUp, DueTimes
from ringfence.fleet.store.batch_writer import BatchWriter
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import NewJob
from ringfence.fleet.store.schedules import ScheduleStates
from ringfence.fleet.submission import JobRequest, new_job


@dataclass(frozen=True)
class PlannedSchedule:
    """A schedule of an agent, with its present settings."""

    agent: Agent
    name: str
    settings: ScheduleSettings
    schedule: Schedule

    @property
    def key(self) -> str:
        """Its unique name, `AGENT/SCHEDULE`."""
        return f"{self.agent.name}/{self.name}"

    @property
    def is_enabled(self) -> bool:
        """Whether the configuration lets it fire. It does not for a disabled agent, whose jobs would only wait."""
        return self.settings.is_enabled and self.agent.settings.is_enabled


def planned(fleet: Fleet) -> Iterator[PlannedSchedule]:
    """Iterate over all schedules of a fleet.

    Raises:
        UsageError: A schedule is invalid; the message does not name its place.
    """
    for agent in fleet.agents.values():
        for name, settings in agent.settings.schedules.items():
            yield PlannedSchedule(agent, name, settings, make_schedule(settings, fleet.settings.timezone))


class Scheduler:
    """Fires schedules as jobs.

    Args:
        database: Stores how far each schedule is handled.
        on_submitted: Called after new jobs were submitted.
        report: Called with errors and with jumps of the clock.
        counters: Count missed due times and measure delays.
    """

    def __init__(
        self,
        database: Database,
        *,
        on_submitted: Callable[[], None],
        report: Report,
        counters: Counters | None = None,
    ) -> None:
        self._counters = counters or Counters()
        self._states = ScheduleStates(database)
        self._batch_writer = BatchWriter(database, fire_in)
        self._on_submitted = on_submitted
        self._schedules: dict[str, PlannedSchedule] = {}
        self.clock = Clock(self._fire, report=report)

    async def take(self, fleet: Fleet) -> None:
        """Replace the schedules by those of a fleet. Unchanged schedules are left alone."""
        states = await self._states.all()
        wanted = {each.key: each for each in planned(fleet)}
        new: list[tuple[PlannedSchedule, datetime]] = []
        for key in set(self._schedules) - set(wanted):
            self.clock.remove(key)
        for key, each in wanted.items():
            state = states.get((each.agent.name, each.name))
            is_paused = not each.is_enabled or (state is not None and state.is_paused)
            before = self._schedules.get(key)
            if (
                before is None
                or before.settings != each.settings
                or before.is_enabled != each.is_enabled
                or before.schedule.describe() != each.schedule.describe()
            ):
                handled = (
                    state.last_due if state is not None and state.last_due is not None else datetime.now(UTC)
                )
                timer = Timer(key, each.schedule, handled, CatchUp(each.settings.catch_up))
                self.clock.add(timer, is_paused=is_paused)
                if state is None:
                    new.append((each, handled))
        await self._states.mark_handled((each.agent.name, each.name, handled) for each, handled in new)
        self._schedules = wanted

    def all(self) -> list[tuple[PlannedSchedule, datetime | None]]:
        """Return every schedule and when it fires next; None while it is paused, or if it never fires again."""
        return [
            (each, None if self.clock.is_paused(key) else self.clock.next_due(key))
            for key, each in sorted(self._schedules.items())
        ]

    def next_times(self, key: str, count: int) -> list[datetime]:
        """Return when a schedule would fire next, paused or not.

        Raises:
            UsageError: There is no schedule of this name.
        """
        each = self._schedules.get(key)
        if each is None:
            raise UsageError(f"there is no schedule {key!r}; `ringfence fleet schedules ls` lists them")
        found: list[datetime] = []
        moment: datetime | None = datetime.now(UTC)
        while len(found) < count and moment is not None:
            moment = each.schedule.next_after(moment)
            found += [moment] if moment is not None else []
        return found

    async def pause(self, key: str, *, is_paused: bool) -> bool:
        """Pause or resume a schedule; due times missed in between are skipped. Returns False if there is none."""
        each = self._schedules.get(key)
        if each is None:
            return False
        await self._states.pause(each.agent.name, each.name, is_paused=is_paused)
        if is_paused:
            self.clock.pause(key)
        elif each.is_enabled:
            now = datetime.now(UTC)
            await self._states.mark_handled([(each.agent.name, each.name, now)])
            self.clock.resume(key, handled=now)
        return True

    async def _fire(self, timer: Timer, due: DueTimes, /) -> None:
        each = self._schedules.get(timer.key)
        if each is None:
            return
        jobs = tuple(self._new_job(each, due_time) for due_time in due.times)
        due_jobs = DueJobs(each.agent.name, each.name, due.handled, jobs, each.settings.overlap)
        await self._batch_writer.write(due_jobs)
        self._on_submitted()
        self._count_due_times(each.agent.name, due)

    @staticmethod
    def _new_job(each: PlannedSchedule, due_time: datetime) -> NewJob:
        return new_job(
            JobRequest(
                each.agent,
                "schedule",
                name=each.name,
                prompt=each.settings.prompt,
                dedupe_key=f"schedule/{each.key}/{due_time_id(due_time)}",
                priority=each.settings.priority,
            )
        )

    def _count_due_times(self, agent: str, due: DueTimes) -> None:
        self._counters.missed.labels(agent).inc(due.dropped)
        now = datetime.now(UTC)
        for due_time in due.times:
            self._counters.lag_s.labels(agent).observe(max(0.0, (now - due_time).total_seconds()))

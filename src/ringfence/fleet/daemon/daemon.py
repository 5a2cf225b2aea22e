"""The parts of a fleet's daemon, and what the API and the commands do with them. `run_daemon` runs them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from ringfence.config.units import format_duration
from ringfence.engine import open_engine
from ringfence.errors import RingfenceError
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.difference import differences, pending_changes
from ringfence.fleet.config.loader import load_trusted
from ringfence.fleet.config.model import LogFormat
from ringfence.fleet.daemon.dispatcher import Dispatcher
from ringfence.fleet.daemon.limits import limits_of
from ringfence.fleet.daemon.scheduler import Scheduler
from ringfence.fleet.daemon.supervisor import Supervisor
from ringfence.fleet.daemon.systemd_notify import Notifier
from ringfence.fleet.daemon.triggers import Triggers
from ringfence.fleet.log import Log
from ringfence.fleet.metrics import CensusCache, Counters
from ringfence.fleet.preflight import check_limits
from ringfence.fleet.record_store import open_record_store
from ringfence.fleet.retention import Retention, RetentionResult
from ringfence.fleet.schedule.clock import ClockStep
from ringfence.fleet.schedule.zone import zone
from ringfence.fleet.store.agents import AgentStates
from ringfence.fleet.store.database import Database, sqlite_url
from ringfence.fleet.store.job import Job, NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.submission import JobRequest, Submission, after_jobs, new_job, submit
from ringfence.job.state import JobState


@dataclass
class Daemon:
    """Everything that the API and the command line act on.

    Args:
        file: The fleet's file.
        state: The state directory.
        environ: Variables that the file may name.
        log: Receives messages for a person.
        notifier: Reports the daemon's state to systemd, if systemd started it.
        log_format: The log format of this daemon and its workers; overrides the one in the file.
    """

    file: Path
    state: Path
    environ: Mapping[str, str]
    log: Log
    notifier: Notifier = field(default_factory=lambda: Notifier({}))
    log_format: LogFormat | None = None
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.fleet = load_trusted(self.file, environ=self.environ)
        self.url = self.fleet.settings.engine.url or sqlite_url(self.state, self.file)
        self.effective_log_format: LogFormat = self.log_format or self.fleet.settings.log_format
        self.database = Database(self.url)
        self.jobs = Jobs(self.database)
        self.agents = AgentStates(self.database)
        self.engine = open_engine(self.url)
        self.counters = Counters()
        self.census_cache = CensusCache(self.database)
        self.records = open_record_store(self.fleet.settings.records, self.state)
        self.retention = Retention(self.database, self.engine, records=self.records)
        self.triggers = Triggers(
            self.database, submit=self.submit, is_wanted=self._takes_work, log=self.log, state=self.state
        )
        self.dispatcher = Dispatcher(
            self.database,
            self.engine,
            bounds=lambda: limits_of(self.fleet),
            followers=self._followers,
            log=self.log,
            timezone=zone(self.fleet.settings.timezone),
        )
        self.scheduler = Scheduler(
            self.database, on_submitted=self.dispatcher.wake, report=self._report, counters=self.counters
        )
        capacity = max(1, -(-self.fleet.settings.concurrency // max(1, self.fleet.settings.workers)))
        more = worker_settings(self.fleet, log_format=self.effective_log_format)
        self.supervisor = Supervisor(self.url, capacity=capacity, more=more, log=self.log)
        self.is_ready = False
        self.stopping = anyio.Event()
        """Set by the first call of `stop`."""
        self.stopping_at_once = anyio.Event()
        """Set by the second call of `stop`."""
        self._reloading = anyio.Lock()

    async def _takes_work(self, name: str) -> bool:
        """Whether to claim work for an agent now: not if it is disabled or has a queued job, or the fleet drains."""
        agent = self.fleet.agents.get(name)
        if agent is None or not agent.settings.is_enabled or not (await self.agents.get(name)).is_enabled:
            return False
        waiting = await self.jobs.list(agent=name, states=[JobState.QUEUED], limit=1)
        return not waiting and self.dispatcher.is_accepting

    def stop(self) -> None:
        """Stop after running jobs have had `fleet.drain` to end; a second call stops at once."""
        if not self.stopping.is_set():
            drain = format_duration(self.fleet.settings.drain)
            line = f"stopping: running jobs have {drain} to end; the rest is queued again"
            self.log(line, event="fleet.stopping", level="info")
        elif not self.stopping_at_once.is_set():
            self.log(
                "stopping at once: running jobs are queued again",
                event="fleet.stopping",
                level="info",
            )
            self.stopping_at_once.set()
        self.stopping.set()

    async def apply_retention(self, *, dry_run: bool = False) -> RetentionResult:
        """Remove the data of ended jobs that the configuration no longer requires to be kept.

        Raises:
            InfrastructureFault: The database cannot be reached, or a record cannot be removed.
        """
        done = await self.retention.round(self.fleet.settings.retention, dry_run=dry_run)
        if not dry_run and done.jobs:
            self.counters.removed.inc(len(done.jobs))
            line = f"retention: removed {len(done.jobs)} jobs and {done.size_bytes} bytes of records"
            counts = {"jobs": len(done.jobs), "runs": done.runs, "size_bytes": done.size_bytes}
            self.log(line, event="retention.done", level="info", **counts)
        return done

    async def submit(self, request: JobRequest) -> Submission:
        """Submit a job and wake the dispatcher.

        Raises:
            UsageError: There is no task.
            InfrastructureFault: The database cannot be reached.
        """
        entered = await submit(self.database, request)
        self.dispatcher.wake()
        return entered

    async def cancel(self, job_id: str, *, reason: str) -> Job:
        """Cancel a job, queued or running.

        Raises:
            UsageError: The job does not exist, or has ended.
        """
        job = await self.jobs.request_cancel(job_id, reason=reason)
        self.dispatcher.wake()
        return job

    async def reload(self) -> list[str]:
        """Reload the configuration files; running jobs keep their settings. Returns what changed, one line per change.

        The changes, or the reason why the reload failed, are logged as well.

        Raises:
            ConfigurationError, PolicyRefused: The files are invalid, not trusted, or set a limit that cannot be
                enforced; the previous configuration stays in effect.
        """
        try:
            changed = await self._reloaded()
        except RingfenceError as exc:
            self.log(f"the configuration is unchanged: {exc}", event="reload.failed")
            raise
        self.dispatcher.wake()
        for line in changed:
            self.log(line, event="fleet.changed", level="info")
        self.log(f"reloaded; changes: {len(changed)}", event="fleet.reloaded", level="info")
        return changed

    async def _reloaded(self) -> list[str]:
        async with self._reloading, self._report_reload():
            fleet = await anyio.to_thread.run_sync(partial(load_trusted, self.file, environ=self.environ))
            await check_limits(fleet)
            changed = differences(self.fleet, fleet)
            await self.scheduler.take(fleet)
            self.fleet = fleet
            self.dispatcher.timezone = zone(fleet.settings.timezone)
            self.triggers.take(fleet)
        return changed

    @asynccontextmanager
    async def _report_reload(self) -> AsyncIterator[None]:
        self.notifier.reloading()
        try:
            yield
        finally:
            self.notifier.ready()

    async def pending(self) -> list[str]:
        """Return what a reload would change, one line per change, without secrets, and the files that are not trusted.

        Raises:
            ConfigurationError: The files are invalid.
        """
        compare = partial(pending_changes, self.fleet, self.file, environ=self.environ)
        return await anyio.to_thread.run_sync(compare)

    def _followers(self, job: Job) -> Sequence[NewJob]:
        return [new_job(request) for request in after_jobs(job, self.fleet.agents)]

    def _report(self, key: str | None, error: Exception | ClockStep) -> None:
        if isinstance(error, ClockStep):
            line = f"the clock was set by {error.seconds:+.1f} s; schedules use the new time"
            self.log(line, event="clock.jumped", seconds=error.seconds)
        else:
            known = isinstance(error, RingfenceError)
            problem = str(error) if known else f"internal error: {error!r}"
            self.log(f"schedule {key}: {problem}", event="schedule.failed", schedule=key)


def worker_settings(fleet: Fleet, *, log_format: LogFormat) -> dict[str, Any]:
    """The part of the configuration that workers need, as JSON values."""
    return {
        "fleet": fleet.settings.name,
        "log_format": log_format,
        **fleet.settings.model_dump(mode="json", include={"traces", "records"}),
    }

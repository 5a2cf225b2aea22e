"""The fleet's daemon: the only process that admits jobs. It never executes one."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from starlette.types import ASGIApp

from ringfence.config.units import format_duration
from ringfence.engine import WorkflowState, open_engine
from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.fleet.client import socket_path
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.difference import differences, pending_changes
from ringfence.fleet.config.loader import load_trusted
from ringfence.fleet.config.model import LogFormat
from ringfence.fleet.daemon.dispatcher import Dispatcher
from ringfence.fleet.daemon.http_server import serving, serving_at
from ringfence.fleet.daemon.inbox_webhook import inbox_hook
from ringfence.fleet.daemon.leader_lock import LeaderLock
from ringfence.fleet.daemon.limits import limits_of
from ringfence.fleet.daemon.log_file import keep_short, log_file
from ringfence.fleet.daemon.question_deadlines import keep_deadlines
from ringfence.fleet.daemon.scheduler import Scheduler
from ringfence.fleet.daemon.supervisor import Supervisor
from ringfence.fleet.daemon.systemd_notify import Notifier
from ringfence.fleet.daemon.triggers import Triggers
from ringfence.fleet.daemon.webhooks import HookSecrets, webhook_app
from ringfence.fleet.log import Log
from ringfence.fleet.metrics import Counters
from ringfence.fleet.preflight import check_limits
from ringfence.fleet.record_store import open_record_store
from ringfence.fleet.retention import Forgotten, Retention
from ringfence.fleet.schedule.clock import ClockStep
from ringfence.fleet.schedule.zone import zone
from ringfence.fleet.state_directory import exclusive, note_file
from ringfence.fleet.store.agents import AgentStates
from ringfence.fleet.store.database import Database, sqlite_url
from ringfence.fleet.store.deliveries import remove_old_deliveries
from ringfence.fleet.store.job import ACTIVE, Job, NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.submission import JobRequest, Submission, after_jobs, new_job, submit
from ringfence.job.state import JobState

_END_S = 40.0
_UNREACHABLE_S = 10.0
_FOLLOW_UPS_S = 10.0
_RETAIN_S = 600.0
_RETAIN_PAUSE_S = 10.0


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
        slots = max(1, -(-self.fleet.settings.concurrency // max(1, self.fleet.settings.workers)))
        more = worker_settings(self.fleet, log_format=self.effective_log_format)
        self.supervisor = Supervisor(self.url, slots=slots, more=more, log=self.log)
        self.is_ready = False
        self._leader_lock = LeaderLock(self.url, fleet=self.fleet.settings.name)
        self._lost_reason = ""
        self._standby_reason = ""
        self._stopping = anyio.Event()
        self._at_once = anyio.Event()
        self._reloading = anyio.Lock()

    async def run(self, *, on_ready: Callable[[], None], is_standby: bool = False) -> None:
        """Run the fleet until `stop` is called.

        Args:
            on_ready: Called once the daemon runs the fleet.
            is_standby: Wait while another daemon runs the fleet, and take over when that one has ended.

        Raises:
            UsageError: Another daemon uses the state directory, or `is_standby` is set and the database is SQLite,
                which no second daemon can share.
            InfrastructureFault: The database cannot be reached, or another daemon runs its fleet.
        """
        from ringfence.fleet.api.access import LocalAccess
        from ringfence.fleet.api.app import create_app
        from ringfence.fleet.api.context import ApiContext

        api = create_app(ApiContext.of_daemon(self))

        with exclusive(self.state, self.file):
            note_file(self.state, self.file)
            async with (
                self._leading(is_standby=is_standby),
                self.engine,
                serving(LocalAccess(api), socket_path(self.state)),
                self._remote_api(api),
                self._webhooks(),
                self._monitoring(),
                anyio.create_task_group() as tasks,
            ):
                await self.scheduler.take(self.fleet)
                tasks.start_soon(self.triggers.run, self.fleet)
                tasks.start_soon(self.dispatcher.run)
                tasks.start_soon(self.scheduler.clock.run)
                tasks.start_soon(self.supervisor.run, self.fleet.settings.workers)
                tasks.start_soon(self.notifier.stay_alive)
                tasks.start_soon(self._retain)
                tasks.start_soon(keep_deadlines, self.database, self.log)
                tasks.start_soon(self._watch_leader_lock)
                tasks.start_soon(keep_short, log_file(self.state), self.log)
                self.is_ready = True
                self.notifier.ready()
                on_ready()
                await self._stopping.wait()
                self.notifier.stopping()
                if not self._lost_reason:  # otherwise another daemon runs the jobs
                    await self._drain()
                tasks.cancel_scope.cancel()
            self.database.close()
            line = f"fleet {self.fleet.settings.name!r} is down"
            self.log(line, event="fleet.stopped", level="info", fleet=self.fleet.settings.name)
            if self._lost_reason:
                raise InfrastructureFault(f"this daemon no longer runs its fleet: {self._lost_reason}")

    @asynccontextmanager
    async def _leading(self, *, is_standby: bool) -> AsyncIterator[None]:
        """Hold the leader lock, so that only this daemon runs the database's fleet, and create the tables."""
        if is_standby and self._leader_lock.is_local:
            raise UsageError(
                "--standby needs a database that several machines share; set `fleet.engine.type: postgres`"
            )
        async with self._leader_lock.taken(on_wait=self._stand_by if is_standby else None):
            self.database.create_tables()
            yield

    def _stand_by(self, reason: str) -> None:
        """Log each reason to wait once, and raise if `stop` was called in the meantime."""
        if self._stopping.is_set():
            raise InfrastructureFault("stopped before it took over from the daemon that runs the fleet")
        if reason != self._standby_reason:
            self._standby_reason = reason
            self.log(f"standing by: {reason}", event="fleet.standby", level="info")

    async def _watch_leader_lock(self) -> None:
        """Stop this daemon if another one took over the fleet while the database was unreachable."""
        self._lost_reason = await self._leader_lock.kept()
        self.stop()

    @asynccontextmanager
    async def _remote_api(self, api: ASGIApp) -> AsyncIterator[None]:
        """Serve the API to clients with a token, if the fleet sets an address for it."""
        from ringfence.fleet.api.access import TokenAccess

        listen = self.fleet.settings.api
        if listen is None:
            yield
            return
        hosts = (listen.address, *listen.hosts)
        async with serving_at(TokenAccess(api, self.database, hosts=hosts, log=self.log), listen.address):
            yield

    @asynccontextmanager
    async def _webhooks(self) -> AsyncIterator[None]:
        """Serve webhooks, if the fleet sets an address for them."""
        listen = self.fleet.settings.webhooks
        if listen is None:
            yield
            return
        secrets = HookSecrets(self.state)
        inbox = inbox_hook(
            lambda: self.fleet,
            database=self.database,
            on_answer=self.dispatcher.wake,
            secrets=secrets,
            log=self.log,
        )
        app = webhook_app(
            lambda name: self.fleet.agents.get(name),
            submit=self.submit,
            secrets=secrets,
            log=self.log,
            inbox=inbox,
        )
        async with serving_at(app, listen.address):
            yield

    @asynccontextmanager
    async def _monitoring(self) -> AsyncIterator[None]:
        """Serve metrics and health checks, if the fleet sets an address for them."""
        from ringfence.fleet.api.monitoring import monitoring_app

        listen = self.fleet.settings.metrics
        if listen is None:
            yield
            return
        async with serving_at(monitoring_app(self), listen.address):
            yield

    async def _takes_work(self, name: str) -> bool:
        """Whether to claim work for an agent now: not if it is disabled or has a queued job, or the fleet drains."""
        agent = self.fleet.agents.get(name)
        if agent is None or not agent.settings.is_enabled or not (await self.agents.get(name)).is_enabled:
            return False
        waiting = await self.jobs.list(agent=name, states=[JobState.QUEUED], limit=1)
        return not waiting and self.dispatcher.is_accepting

    def stop(self) -> None:
        """Stop after running jobs have had `fleet.drain` to end; a second call stops at once."""
        if not self._stopping.is_set():
            drain = format_duration(self.fleet.settings.drain)
            line = f"stopping: running jobs have {drain} to end; the rest is queued again"
            self.log(line, event="fleet.stopping", level="info")
        elif not self._at_once.is_set():
            self.log(
                "stopping at once: running jobs are queued again",
                event="fleet.stopping",
                level="info",
            )
            self._at_once.set()
        self._stopping.set()

    async def forget(self, *, dry_run: bool = False) -> Forgotten:
        """Remove the data of ended jobs that the configuration no longer requires to be kept.

        Raises:
            InfrastructureFault: The database cannot be reached, or a record cannot be removed.
        """
        done = await self.retention.round(self.fleet.settings.retention, dry_run=dry_run)
        if not dry_run and done.jobs:
            self.counters.forgotten.inc(len(done.jobs))
            line = f"retention: removed {len(done.jobs)} jobs and {done.size_bytes} bytes of records"
            counts = {"jobs": len(done.jobs), "runs": done.runs, "size_bytes": done.size_bytes}
            self.log(line, event="retention.done", level="info", **counts)
        return done

    async def _retain(self) -> None:
        """Apply the retention settings every few minutes until cancelled."""
        while True:
            await anyio.sleep(_RETAIN_S)
            try:
                await remove_old_deliveries(self.database, datetime.now(UTC))
                while not (await self.forget()).is_all:  # noqa: ASYNC110 -- the next batch follows after a pause
                    await anyio.sleep(_RETAIN_PAUSE_S)
            except RingfenceError as exc:
                self.log(f"retention: {exc}", event="retention.failed")
            except Exception as exc:  # noqa: BLE001 -- a failed removal must not stop the daemon
                self.log(f"retention: internal error: {exc!r}", event="retention.failed")

    async def _drain(self) -> None:
        """Start no more jobs, and wait for those that run, for `fleet.drain` at most.

        The workers queue unfinished jobs again, without using up an attempt. A database that cannot be reached may be
        back before the time is over.
        """
        self.is_ready = False
        self.dispatcher.is_accepting = False
        with anyio.move_on_after(self.fleet.settings.drain):
            while not self._at_once.is_set():
                with suppress(InfrastructureFault):  # the dispatcher logs it
                    await self.jobs.requeue_starting()
                    if not await self._active():
                        break
                await anyio.sleep(0.2)
        with anyio.move_on_after(_END_S):
            await self._report_unfinished()
        with anyio.move_on_after(_FOLLOW_UPS_S):  # the rest is done at the next start
            while await self._follow_ups():  # noqa: ASYNC110 -- workers end workflows
                await anyio.sleep(0.2)

    async def _report_unfinished(self) -> None:
        """Log the jobs that are queued again.

        Raises:
            InfrastructureFault: The database cannot be reached.
        """
        give_up_at = anyio.current_time() + _UNREACHABLE_S
        while True:
            try:
                ids = [job.id for job in await self._active()]
                break
            except InfrastructureFault as exc:
                if anyio.current_time() > give_up_at:
                    raise InfrastructureFault(
                        f"{exc}; running jobs are repeated after the next start"
                    ) from exc
            await anyio.sleep(0.2)
        if ids:
            line = (
                "not finished in time; these jobs are queued again and start at the next `ringfence fleet up`: "
                f"{', '.join(ids)}"
            )
            self.log(line, event="fleet.left", level="info", jobs=ids)

    async def _follow_ups(self) -> bool:
        """Whether a worker still runs hooks or reports a job's end; work left for the next start does not count."""
        running = await self.engine.list(states=[WorkflowState.RUNNING])
        left = await self.jobs.active_workflows()
        return bool(self.supervisor.pids) and any(each.id not in left for each in running)

    async def _active(self) -> list[Job]:
        return await self.jobs.list(states=ACTIVE, limit=1000)

    async def submit(self, wanted: JobRequest) -> Submission:
        """Enter a job and wake the dispatcher.

        Raises:
            UsageError: There is no task.
            InfrastructureFault: The database cannot be reached.
        """
        entered = await submit(self.database, wanted)
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
        return [new_job(wanted) for wanted in after_jobs(job, self.fleet.agents)]

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

"""Admits queued jobs to the durable engine, and enters the jobs that follow ended ones.

A job is admitted and its workflow enqueued in one transaction. Everything here can be repeated: after a crash, the next
daemon continues from the state in the database.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import anyio
from sqlalchemy import Connection

from ringfence.engine import HIGHEST_PRIORITY, WorkflowState
from ringfence.errors import InfrastructureFault
from ringfence.fleet.log import Log
from ringfence.fleet.store.admission import Admission, Bounds, WaitReasons
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import QueueFull
from ringfence.fleet.store.job import Job, NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.worker.workflow import JOB_WORKFLOW

if TYPE_CHECKING:
    from ringfence.engine.client import Engine

_BUSY_S = 0.2
_IDLE_S = 2.0
_RECONCILE_S = 5.0
_ENDED_JOBS_BATCH = 100
_LIVE = (WorkflowState.WAITING, WorkflowState.RUNNING)


class Dispatcher:
    """Admits jobs whenever something changes, and ends jobs whose workflow has ended without an outcome.

    Args:
        database: The database that holds the jobs.
        engine: The durable engine that workers take workflows from; it uses the same database.
        bounds: Returns the limits that apply now.
        followers: Returns the jobs that follow a job that has ended.
        log: Logs faults of the database; the dispatcher retries after them.
        timezone: The time zone in which a budget's day begins.
    """

    def __init__(
        self,
        database: Database,
        engine: "Engine",
        *,
        bounds: Callable[[], Bounds],
        followers: Callable[[Job], Sequence[NewJob]],
        log: Log,
        timezone: ZoneInfo | None = None,
    ) -> None:
        self._jobs = Jobs(database)
        self._admission = Admission(database, enqueue=self._enqueue)
        self._engine = engine
        self._bounds = bounds
        self._followers = followers
        self._log = log
        self.timezone = timezone
        """The time zone in which a budget's day begins; None means the machine's."""
        self._woken = anyio.Event()
        self._reconciled_at = float("-inf")
        self._fault = ""
        self._unreadable: set[str] = set()
        self.is_accepting = True
        """False while the fleet drains: no new job starts."""
        self.waiting = WaitReasons()
        """Why queued jobs wait."""

    def wake(self) -> None:
        """Start the next round at once, because a job was entered or something else has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Dispatch jobs until cancelled, and wait for the database while it cannot be reached."""
        while True:
            self._woken = anyio.Event()
            pause_s = await self._try_round()
            with anyio.move_on_after(pause_s):
                await self._woken.wait()

    async def _try_round(self) -> float:
        """Run a round. A fault that lasts is logged once, so that a night's outage does not fill the log."""
        try:
            pause_s = await self.round()
        except InfrastructureFault as exc:
            line, event = str(exc), "database.failed"
        except Exception as exc:  # noqa: BLE001 -- an internal error must not end the daemon
            line, event = f"no jobs are started: internal error: {exc!r}", "dispatch.failed"
        else:
            if self._fault:
                self._fault = ""
                self._log("jobs are started again", event="dispatch.resumed", level="info")
            return pause_s
        if line != self._fault:
            self._fault = line
            self._log(line, event=event)
        return _IDLE_S

    async def round(self) -> float:
        """Do all work that is possible now. Returns the seconds to wait, unless something changes earlier."""
        now = datetime.now(UTC)
        await self._reconcile()
        while (
            await self._jobs.follow(
                self._followers, limit=_ENDED_JOBS_BATCH, left_out=self._log_left_out, finish=self._finish
            )
            == _ENDED_JOBS_BATCH
        ):
            pass
        if not self.is_accepting:
            return _BUSY_S
        admitted = await self._admission.admit(self._bounds(), now=now, day_began=self._day_began(now))
        self.waiting = admitted.waiting
        if admitted.active or admitted.lacks_workers:
            return _BUSY_S
        if admitted.next_at is None:
            return _IDLE_S
        return min(_IDLE_S, max(0.0, (admitted.next_at - now).total_seconds()))

    def _log_left_out(self, ended: Job, why: QueueFull) -> None:
        self._log(f"no job follows job {ended.id}: {why}", event="job.refused", job=ended.id)

    def _finish(self, connection: Connection, job: Job) -> None:
        """Enqueue the hooks and the report to the work's source for a job that ended outside an attempt."""
        self._enqueue(connection, job, has_ended=True)

    def _enqueue(self, connection: Connection, job: Job, *, has_ended: bool = False) -> None:
        self._engine.enqueue_in(
            connection,
            JOB_WORKFLOW,
            id=job.workflow_id,
            argument={"job": job.id, "has_ended": has_ended},
            priority=max(0, min(HIGHEST_PRIORITY, job.priority)),
            label=job.placement,
        )

    async def _reconcile(self) -> None:
        """End each active job whose workflow has ended or does not exist."""
        if anyio.current_time() - self._reconciled_at < _RECONCILE_S:
            return
        self._reconciled_at = anyio.current_time()
        await self._report_unreadable()
        active = await self._jobs.active_workflows()
        live = await self._engine.list(ids=[*active], states=_LIVE, limit=len(active) + 1)
        orphaned = active.keys() - {each.id for each in live}
        errors = {each.id: each.error for each in await self._engine.list(ids=[*orphaned])}
        for workflow in orphaned:
            reason = errors.get(workflow) or "its workflow ended without an outcome"
            await self._jobs.end_orphaned(active[workflow], workflow=workflow, reason=reason)

    async def _report_unreadable(self) -> None:
        """Log each job that this version cannot read, once."""
        for job_id in await self._jobs.unreadable():
            if job_id not in self._unreadable:
                self._unreadable.add(job_id)
                line = f"job {job_id} is left alone: this version of ringfence cannot read it; use the one that wrote it"
                self._log(line, event="job.unreadable", job=job_id)

    def _day_began(self, now: datetime) -> datetime:
        return now.astimezone(self.timezone).replace(hour=0, minute=0, second=0, microsecond=0)

"""Stores attempts at jobs.

A worker begins an attempt and ends it once. After a later attempt began, or the job ended, its writes have no effect and
report that: this fences a worker that was taken for dead.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, bindparam, case, func, insert, select, update

from ringfence.fleet.store.agents import LastSession, set_last_session_in
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.inbox import AskedQuestion, add_question_in
from ringfence.fleet.store.job import ACTIVE, DONE, Job, milliseconds, reason_of
from ringfence.fleet.store.jobs import get_in, now_ms, put_blob_in
from ringfence.fleet.store.spend import Usage, add_spend_in
from ringfence.fleet.store.tables import ATTEMPTS, JOBS, WORKERS
from ringfence.job.state import JobState
from ringfence.journal import new_run_id

_WORKER_STOPPED = "its worker was stopped"
_WORKER_DRAINS = "its worker drains"


def _greatest(column: Column[Any], value: ColumnElement[Any]) -> ColumnElement[Any]:
    return case((column > value, column), else_=value)


# Built once: building a statement takes longer than executing it.
# A parameter must not have the name of a column that the same statement sets: hence `of_` and `new_`.
_HERE = (ATTEMPTS.c.job == bindparam("job_id"), ATTEMPTS.c.number == bindparam("of_number"))
_JOB = update(JOBS).where(JOBS.c.id == bindparam("job_id"))
_CLOSE = (
    update(ATTEMPTS)
    .where(ATTEMPTS.c.job == bindparam("job_id"), ATTEMPTS.c.ended_ms.is_(None))
    .values(ended_ms=bindparam("now"), state=JobState.INTERRUPTED, reason="its worker died")
)
_COUNT = select(func.count()).where(
    ATTEMPTS.c.job == bindparam("job_id"),
    ATTEMPTS.c.is_counted.is_(True),
)
_IS_DRAINING = select(WORKERS.c.is_draining).where(WORKERS.c.id == bindparam("worker_id"))
_BEGIN = insert(ATTEMPTS)
_BEGIN_JOB = _JOB.values(
    state=JobState.RUNNING,
    attempt=bindparam("new_attempt"),
    worker=bindparam("new_worker"),
    host=bindparam("new_host"),
    run_id=bindparam("new_run_id"),
    reserved_tokens=bindparam("remaining_tokens"),
    reserved_usd=bindparam("remaining_usd"),
    changed_ms=bindparam("now"),
    started_ms=func.coalesce(JOBS.c.started_ms, bindparam("now")),
)
_END = (
    update(ATTEMPTS)
    .where(*_HERE)
    .values(
        ended_ms=bindparam("now"),
        state=bindparam("new_state"),
        reason=bindparam("new_reason"),
        is_counted=bindparam("new_is_counted"),
    )
)
_SET_USAGE = (
    update(ATTEMPTS)
    .where(*_HERE)
    .values(
        tokens=_greatest(ATTEMPTS.c.tokens, bindparam("new_tokens")),
        cost_usd=_greatest(ATTEMPTS.c.cost_usd, bindparam("new_cost_usd")),
    )
)
_SUMS = select(func.sum(ATTEMPTS.c.tokens), func.sum(ATTEMPTS.c.cost_usd)).where(
    ATTEMPTS.c.job == bindparam("job_id")
)
_OPEN_SUMS = _SUMS.where(ATTEMPTS.c.ended_ms.is_(None))
_USAGE = select(ATTEMPTS.c.tokens, ATTEMPTS.c.cost_usd).where(*_HERE)
_SET_JOB_USAGE = _JOB.values(
    tokens=bindparam("new_tokens"), cost_usd=bindparam("new_cost_usd"), changed_ms=bindparam("now")
)


@dataclass(frozen=True)
class Attempt:
    """Identifies an attempt at a job; every write of its worker carries it."""

    job: str
    number: int
    worker: str
    run_id: str
    counted_number: int = 1
    """1 + the attempts counted so far; those whose worker was stopped, or that asked a question, do not count."""


@dataclass(frozen=True)
class AttemptResult:
    """The result of an attempt."""

    state: JobState
    reason: str = ""
    """The reason for the state, in a line."""
    spent: Usage = field(default_factory=Usage)
    asked: AskedQuestion | None = None
    """The question with which the attempt ended: the job waits for the answer."""
    has_changes: bool = False
    """Whether the attempt left changes in a private copy, which a person may apply."""
    answer: bytes | None = None
    """The last text of the agent, in UTF-8; None if the agent did not run."""
    session: LastSession | None = None
    """The session that the attempt leaves to the agent's next job; None to leave what is stored."""


@dataclass(frozen=True)
class InterruptedRun:
    """The run of an attempt that did not end the job."""

    id: str
    has_asked: bool
    """Whether the run ended with a question, which has been answered since."""


class Attempts:
    """The attempts in a database. Safe to use from several processes and machines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, job_id: str, *, worker: str, host: str, workflow_id: str = "") -> Attempt | None:
        """Begin the next attempt at a job that was admitted.

        An earlier attempt that is still open belongs to a worker that is dead, or is fenced from now on. The new attempt
        may spend what that attempt left of the job's reservation.

        Args:
            job_id: The job.
            worker: The name of the worker that executes the attempt.
            host: The machine of the worker.
            workflow_id: The workflow that executes the attempt; empty: the one of the job's last admission.

        Returns:
            The attempt; None if the job has ended, is to be cancelled, or was admitted again for another workflow, or if
            the worker is draining, in which case the job is queued again.
        """

        def act(connection: Connection) -> Attempt | None:
            job = get_in(connection, job_id, to_change=True)
            if job is None or job.state not in ACTIVE or job.is_cancel_asked:
                return None
            if workflow_id not in ("", job.workflow_id):
                return None
            now = now_ms()
            # Before the open attempt is closed, as what it used is subtracted.
            remaining = _remaining_reservation_in(connection, job)
            connection.execute(_CLOSE, {"job_id": job_id, "now": now})
            if connection.execute(_IS_DRAINING, {"worker_id": worker}).scalar():
                _queue_again(connection, job_id, _WORKER_DRAINS, now)
                return None
            counted = connection.execute(_COUNT, {"job_id": job_id}).scalar_one() + 1
            attempt = Attempt(job_id, job.attempt + 1, worker, new_run_id(), counted)
            row = {
                "job": job_id,
                "number": attempt.number,
                "worker": worker,
                "host": host,
                "run_id": attempt.run_id,
                "started_ms": now,
            }
            connection.execute(_BEGIN, row)
            values = {
                "job_id": job_id,
                "new_attempt": attempt.number,
                "new_worker": worker,
                "new_host": host,
                "new_run_id": attempt.run_id,
                "now": now,
                **remaining,
            }
            connection.execute(_BEGIN_JOB, values)
            return attempt

        return await self._database.write(act)

    async def leave(self, attempt: Attempt) -> None:
        """End an attempt whose worker is stopping, and queue its job again.

        The attempt does not count against the job's attempts. A job that is to be cancelled is not queued again.
        """

        def act(connection: Connection) -> None:
            now = now_ms()
            job = get_in(connection, attempt.job, to_change=True)
            connection.execute(
                update(ATTEMPTS)
                .where(*_of(attempt), ATTEMPTS.c.ended_ms.is_(None))
                .values(ended_ms=now, state=JobState.INTERRUPTED, reason=_WORKER_STOPPED, is_counted=False)
            )
            if job is not None and _is_current(job, attempt) and not job.is_cancel_asked:
                _queue_again(connection, job.id, _WORKER_STOPPED, now)

        await self._database.write(act)

    async def interrupted_runs(self, attempt: Attempt, *, host: str) -> list[InterruptedRun]:
        """The runs of the job's earlier attempts on this machine that did not end the job, newest first.

        An attempt that ended before its run began has an id of a run, but no record.
        """
        mine = (
            ATTEMPTS.c.job == attempt.job,
            ATTEMPTS.c.number < attempt.number,
            ATTEMPTS.c.host == host,
        )
        states = (JobState.INTERRUPTED.value, JobState.INFRASTRUCTURE.value, JobState.BLOCKED.value)
        query = select(ATTEMPTS.c.run_id, ATTEMPTS.c.state).where(*mine, ATTEMPTS.c.state.in_(states))
        newest_first = query.order_by(ATTEMPTS.c.number.desc())
        rows = await self._database.read(lambda connection: connection.execute(newest_first).all())
        return [InterruptedRun(row.run_id, has_asked=row.state == JobState.BLOCKED) for row in rows]

    async def report(self, attempt: Attempt, spent: Usage) -> bool:
        """Store an attempt's usage so far; False if it is no longer current, or the job is to be cancelled."""

        def act(connection: Connection) -> bool:
            job = get_in(connection, attempt.job, to_change=True)
            if job is None or not _is_current(job, attempt):
                return False
            _store_usage(connection, job, attempt, spent)
            return not job.is_cancel_asked

        return await self._database.write(act)

    async def end(
        self, attempt: Attempt, result: AttemptResult, *, retry_at: datetime | None = None
    ) -> Job | None:
        """End an attempt, and its job with it; None if the attempt is no longer the job's current one.

        A job whose cancellation was requested is cancelled whatever the attempt's result, unless the attempt succeeded.

        Args:
            attempt: The attempt.
            result: Its result, which is stored.
            retry_at: If given, the job is queued again, not to start before this time, instead of ending.
        """

        def act(connection: Connection) -> Job | None:
            job = get_in(connection, attempt.job, to_change=True)
            if job is None or not _is_current(job, attempt):
                return None
            now, reason = now_ms(), result.reason
            _store_usage(connection, job, attempt, result.spent)
            ended = {
                "job_id": attempt.job,
                "of_number": attempt.number,
                "now": now,
                "new_state": result.state,
                "new_reason": reason_of(reason),
                "new_is_counted": result.asked is None,
            }
            connection.execute(_END, ended)
            if result.answer is not None:
                put_blob_in(connection, job.id, "answer", result.answer)
            if result.session is not None:
                set_last_session_in(connection, job.agent, result.session)
            if result.asked is not None and not job.is_cancel_asked:
                add_question_in(connection, job.id, job.agent, attempt.number, attempt.run_id, result.asked)
                after: dict[str, object] = {"state": JobState.WAITING}
            elif retry_at is not None and not job.is_cancel_asked:
                after = {"state": JobState.QUEUED, "not_before_ms": milliseconds(retry_at), "worker": None}
            else:
                is_cancelled = job.is_cancel_asked and result.state is not JobState.SUCCEEDED
                after = {"state": JobState.CANCELLED if is_cancelled else result.state, "ended_ms": now}
                after["is_ready_to_apply"] = result.has_changes and after["state"] in DONE
                if is_cancelled:
                    reason = job.reason or reason  # the reason of the request to cancel is more exact
            connection.execute(
                update(JOBS)
                .where(JOBS.c.id == attempt.job)
                .values(
                    **after, changed_ms=now, reason=reason_of(reason), reserved_tokens=None, reserved_usd=None
                )
            )
            return get_in(connection, attempt.job)

        return await self._database.write(act)


def _remaining_reservation_in(connection: Connection, job: Job) -> dict[str, float | None]:
    """What is left of a job's reservation after an open attempt, whose worker died: None where nothing was reserved."""
    tokens, cost = connection.execute(_OPEN_SUMS, {"job_id": job.id}).one()
    allowed_tokens, allowed_usd = job.allowed_tokens, job.allowed_usd
    return {
        "remaining_tokens": None if allowed_tokens is None else max(0, allowed_tokens - (tokens or 0)),
        "remaining_usd": None if allowed_usd is None else max(0.0, allowed_usd - (cost or 0.0)),
    }


def _queue_again(connection: Connection, job_id: str, reason: str, now: int) -> None:
    queued = {"state": JobState.QUEUED, "worker": None, "reason": reason, "changed_ms": now}
    statement = update(JOBS).where(JOBS.c.id == job_id)
    connection.execute(statement.values(**queued, reserved_tokens=None, reserved_usd=None))


def _is_current(job: Job | None, attempt: Attempt) -> bool:
    return (
        job is not None
        and job.state is JobState.RUNNING
        and (job.attempt, job.worker) == (attempt.number, attempt.worker)
    )


def _of(attempt: Attempt) -> tuple[ColumnElement[bool], ...]:
    return (ATTEMPTS.c.job == attempt.job, ATTEMPTS.c.number == attempt.number)


def _store_usage(connection: Connection, job: Job, attempt: Attempt, spent: Usage) -> None:
    """Store the usage of an attempt so far, and add the difference to the sums of the job and of its agent."""
    here = {"job_id": attempt.job, "of_number": attempt.number}
    before = Usage(*connection.execute(_USAGE, here).one())
    more = Usage(max(0, spent.tokens - before.tokens), max(0.0, spent.cost_usd - before.cost_usd))
    if more == Usage():
        return
    now = now_ms()
    connection.execute(_SET_USAGE, {**here, "new_tokens": spent.tokens, "new_cost_usd": spent.cost_usd})
    tokens, cost = connection.execute(_SUMS, {"job_id": attempt.job}).one()
    sums = {"job_id": attempt.job, "new_tokens": tokens, "new_cost_usd": cost, "now": now}
    connection.execute(_SET_JOB_USAGE, sums)
    add_spend_in(connection, job.agent, more, at_ms=now)

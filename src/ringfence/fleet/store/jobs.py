"""The fleet's jobs: entered, found, cancelled, forgotten."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, Select, bindparam, delete, func, insert, select, update

from ringfence.errors import UsageError
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import DuplicateKey, QueueFull, insert_in, with_key_in
from ringfence.fleet.store.job import (
    ACTIVE,
    BlobKind,
    Job,
    JobUnreadable,
    NewJob,
    job_of,
    milliseconds,
    reason_of,
    workflow_id,
)
from ringfence.fleet.store.tables import ATTEMPTS, BLOBS, INBOX, JOBS
from ringfence.fleet.store.totals import keep_totals
from ringfence.job.state import JobState

# Made once: to make a statement takes longer than to execute it.
_ONE = select(JOBS).where(JOBS.c.id == bindparam("of"))
_ONE_TO_CHANGE = _ONE.with_for_update()
_BESIDE = select(BLOBS.c.kind, BLOBS.c.content).where(
    BLOBS.c.job == bindparam("of"), BLOBS.c.kind.in_(bindparam("kinds", expanding=True))
)
_DROP_BESIDE = delete(BLOBS).where(BLOBS.c.job == bindparam("of"), BLOBS.c.kind == bindparam("called"))
_ADD_BESIDE = insert(BLOBS)
_STATES = [state.value for state in JobState]
_MOST_UNREADABLE = 1000
_ACTIVE = select(JOBS).where(JOBS.c.state.in_([state.value for state in ACTIVE]))


class Jobs:
    """The jobs in a database. Safe to use from several processes and machines.

    Args:
        database: Where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: NewJob) -> tuple[Job, bool]:
        """Enter a job as queued, or find the one with the same dedupe key; returns it, and whether it is new.

        Raises:
            QueueFull: No more of its agent's may wait.
        """

        def act(connection: Connection) -> tuple[Job, bool]:
            return insert_in(connection, new)

        try:
            return await self._database.write(act)
        except DuplicateKey:
            return await self._database.read(lambda connection: (_with_key(connection, new), False))

    async def get(self, job_id: str) -> Job | None:
        """One job."""
        return await self._database.read(lambda connection: get_in(connection, job_id))

    async def resolve(self, reference: str) -> Job:
        """The job whose id is, or ends in, what is given.

        Raises:
            UsageError: There is none, or several.
        """

        def act(connection: Connection) -> list[Job]:
            exact = get_in(connection, reference)
            if exact is not None:
                return [exact]
            ends = JOBS.c.id.endswith(reference, autoescape=True)
            return _jobs(connection, select(JOBS).where(ends).limit(2))

        found = await self._database.read(act) if reference else []
        if not found:
            raise UsageError(f"there is no job {reference!r}; `ringfence job ls` lists them")
        if len(found) > 1:
            raise UsageError(f"several jobs end in {reference!r}; give more of the id")
        return found[0]

    async def list(
        self,
        *,
        agent: str | None = None,
        states: Sequence[JobState] = (),
        before: str | None = None,
        limit: int = 50,
    ) -> list[Job]:
        """Jobs, the newest first.

        Args:
            agent: Only this one's.
            states: Only in these; none means all.
            before: Only older ones than this job: how one pages.
            limit: At most so many.
        """
        query = select(JOBS).order_by(JOBS.c.id.desc()).limit(limit)
        if agent is not None:
            query = query.where(JOBS.c.agent == agent)
        if states:
            query = query.where(JOBS.c.state.in_([state.value for state in states]))
        if before is not None:
            query = query.where(JOBS.c.id < before)
        return await self._database.read(lambda connection: _jobs(connection, query))

    async def active_workflows(self) -> dict[str, str]:
        """The id of the current workflow of each job that is starting or running, with the job's id."""
        query = select(JOBS.c.id, JOBS.c.admissions).where(
            JOBS.c.state.in_([state.value for state in ACTIVE])
        )

        def act(connection: Connection) -> dict[str, str]:
            return {workflow_id(job_id, admission): job_id for job_id, admission in connection.execute(query)}

        return await self._database.read(act)

    async def counts(self) -> dict[str, dict[JobState, int]]:
        """How many jobs there are of each agent in each state that this version knows."""
        query = (
            select(JOBS.c.agent, JOBS.c.state, func.count())
            .where(JOBS.c.state.in_(_STATES))
            .group_by(JOBS.c.agent, JOBS.c.state)
        )

        def act(connection: Connection) -> dict[str, dict[JobState, int]]:
            found: dict[str, dict[JobState, int]] = {}
            for agent, state, count in connection.execute(query):
                found.setdefault(agent, {})[JobState(state)] = count
            return found

        return await self._database.read(act)

    async def unreadable(self) -> Sequence[str]:
        """Ids of jobs whose state this version does not know."""
        query = select(JOBS.c.id).where(JOBS.c.state.not_in(_STATES)).limit(_MOST_UNREADABLE)
        return await self._database.read(lambda connection: connection.execute(query).scalars().all())

    async def blob(self, job_id: str, kind: BlobKind) -> bytes | None:
        """What is stored beside a job."""
        return (await self.blobs(job_id, (kind,))).get(kind)

    async def blobs(self, job_id: str, kinds: Sequence[BlobKind]) -> dict[BlobKind, bytes]:
        """What of these is stored beside a job."""
        asked = {"of": job_id, "kinds": [*kinds]}

        def act(connection: Connection) -> dict[BlobKind, bytes]:
            return {row.kind: row.content for row in connection.execute(_BESIDE, asked)}

        return await self._database.read(act)

    async def put_blob(self, job_id: str, kind: BlobKind, content: bytes) -> None:
        """Store something beside a job, in the place of what was there."""

        def act(connection: Connection) -> None:
            connection.execute(_DROP_BESIDE, {"of": job_id, "called": kind})
            connection.execute(_ADD_BESIDE, {"job": job_id, "kind": kind, "content": content})

        await self._database.write(act)

    async def end(self, job_id: str, state: JobState, *, reason: str) -> bool:
        """End a job that no attempt will end; False if it has ended already. Its attempts are fenced from here on."""

        def act(connection: Connection) -> bool:
            return _end_in(connection, job_id, state, reason)

        return await self._database.write(act)

    async def end_orphaned(self, job_id: str, *, workflow: str, reason: str) -> bool:
        """End a job whose workflow has ended without it; False if the job is not at work, or by a later admission.

        A job that waits for its next attempt is not lost: its last workflow has ended as it should.

        Args:
            job_id: The job.
            workflow: The id of the workflow that has ended.
            reason: Why the job ends, in a line.
        """

        def act(connection: Connection) -> bool:
            now = get_in(connection, job_id, to_change=True)
            if now is None or now.state not in ACTIVE or now.workflow_id != workflow:
                return False
            state = JobState.CANCELLED if now.is_cancel_asked else JobState.INFRASTRUCTURE
            return _end_in(connection, job_id, state, reason)

        return await self._database.write(act)

    async def request_cancel(self, job_id: str, *, reason: str) -> Job:
        """Cancel a job: at once if it is queued, else by its worker, which is told by `report` and by the engine.

        Raises:
            UsageError: There is no such job, or it has ended.
        """

        def act(connection: Connection) -> Job:
            asked = cancel_in(connection, job_id, reason=reason)
            if asked is not None:
                return asked
            job = get_in(connection, job_id)
            if job is None:
                raise UsageError(f"there is no job {job_id!r}; `ringfence job ls` lists them")
            raise UsageError(f"job {job_id!r} has ended: {job.state.value}; there is nothing to cancel")

        return await self._database.write(act)

    async def requeue_starting(self) -> None:
        """Queue again every job that was admitted and that no worker has begun."""

        def act(connection: Connection) -> None:
            waiting = (JOBS.c.state == JobState.STARTING, JOBS.c.is_cancel_asked.is_(False))
            queued = {"state": JobState.QUEUED, "reserved_tokens": None, "reserved_usd": None}
            connection.execute(update(JOBS).where(*waiting).values(**queued, changed_ms=now_ms()))

        await self._database.write(act)

    async def follow(
        self,
        make: Callable[[Job], Sequence[NewJob]],
        *,
        limit: int = 100,
        left_out: Callable[[Job, QueueFull], None] = lambda _ended, _why: None,
        finish: Callable[[Connection, Job], None] = lambda _connection, _ended: None,
    ) -> int:
        """Enter the jobs that follow those that have ended, each once; returns how many ends were looked at.

        A job that finds its agent's queue full is left out for good: an end must not be looked at for ever.

        Args:
            make: What follows a job. It is asked once for each end, and again only if we died before it was kept.
            limit: Ends that are looked at in one go.
            left_out: Is told of an end that somebody's queue had no room for.
            finish: Called within the transaction for each job that ended between two attempts: no worker ran its hooks.
                The job has a new workflow id.
        """

        def act(connection: Connection) -> int:
            query = (
                select(JOBS)
                .where(JOBS.c.is_followed.is_(False), JOBS.c.ended_ms.is_not(None), JOBS.c.state.in_(_STATES))
                .limit(limit)
            )
            ended = _jobs(connection, query)
            if not ended:
                return 0
            for job in ended:
                if job.attempt and job.worker is None:
                    finish(connection, _with_new_workflow(connection, job))
                for new in make(job):
                    try:
                        insert_in(connection, new)
                    except QueueFull as exc:
                        left_out(job, exc)
            ids = [job.id for job in ended]
            connection.execute(update(JOBS).where(JOBS.c.id.in_(ids)).values(is_followed=True))
            return len(ended)

        try:
            return await self._database.write(act)
        except DuplicateKey:
            return limit  # somebody has just entered one of them: it is found the next time

    async def remove(self, job_id: str) -> bool:
        """Forget a job that has ended, and all that is beside it; False if it has not ended, or is not known."""
        return await self.forget([job_id]) == [job_id]

    async def forget(self, ids: Sequence[str]) -> Sequence[str]:
        """Forget jobs, all in one transaction, but for those that have not ended; returns those that are forgotten.

        What they came to stays in the totals.
        """

        def act(connection: Connection) -> Sequence[str]:
            ended = [state.value for state in JobState if state.is_terminal]
            query = select(JOBS.c.id).where(JOBS.c.id.in_(ids), JOBS.c.state.in_(ended)).with_for_update()
            gone = sorted(connection.execute(query).scalars())
            keep_totals(connection, gone)
            for column in (BLOBS.c.job, ATTEMPTS.c.job, INBOX.c.job, JOBS.c.id):
                connection.execute(delete(column.table).where(column.in_(gone)))
            return gone

        return await self._database.write(act)


def _with_new_workflow(connection: Connection, job: Job) -> Job:
    """The job with the id of a workflow that it has not had."""
    connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(admissions=JOBS.c.admissions + 1))
    return replace(job, admissions=job.admissions + 1)


def cancel_in(connection: Connection, job_id: str, *, reason: str) -> Job | None:
    """Cancel a job within a transaction: at once if it is queued. None if it has ended, or is not there."""
    job = get_in(connection, job_id, to_change=True)
    if job is None or job.state.is_terminal:
        return None
    # Who asks first knows why.
    values = {
        "changed_ms": now_ms(),
        "is_cancel_asked": True,
        "reason": job.reason if job.is_cancel_asked else reason_of(reason),
    }
    if job.state in (JobState.QUEUED, JobState.WAITING):
        values |= {"state": JobState.CANCELLED, "ended_ms": now_ms()}
        values["worker"] = None  # none will run its hooks
        withdraw_questions_in(connection, job_id)
    connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(**values))
    return get_in(connection, job_id)


def _end_in(connection: Connection, job_id: str, state: JobState, reason: str) -> bool:
    live = [each.value for each in JobState if not each.is_terminal]
    ended = {"state": state, "ended_ms": now_ms(), "reason": reason_of(reason)}
    done = connection.execute(
        update(JOBS)
        .where(JOBS.c.id == job_id, JOBS.c.state.in_(live))
        .values(**ended, changed_ms=ended["ended_ms"], reserved_tokens=None, reserved_usd=None)
    )
    connection.execute(
        update(ATTEMPTS).where(ATTEMPTS.c.job == job_id, ATTEMPTS.c.ended_ms.is_(None)).values(**ended)
    )
    withdraw_questions_in(connection, job_id)
    return done.rowcount == 1


def withdraw_questions_in(connection: Connection, job_id: str) -> None:
    """Close the open questions of a job that ends otherwise, within a transaction."""
    connection.execute(
        update(INBOX)
        .where(INBOX.c.job == job_id, INBOX.c.answer.is_(None))
        .values(answer="withdrawn", answered_ms=now_ms())
    )


def get_in(connection: Connection, job_id: str, *, to_change: bool = False) -> Job | None:
    """As `Jobs.get`, within a transaction.

    Args:
        connection: The transaction's.
        job_id: Of the job.
        to_change: Nobody else changes it until the transaction has ended.
    """
    found = connection.execute(_ONE_TO_CHANGE if to_change else _ONE, {"of": job_id}).mappings().first()
    return None if found is None else job_of(found)


def _with_key(connection: Connection, new: NewJob) -> Job:
    found = with_key_in(connection, new.dedupe_key or "")
    assert found is not None
    return found


def _jobs(connection: Connection, query: Select[tuple[object, ...]]) -> list[Job]:
    return readable(connection.execute(query).mappings())


def readable(rows: Iterable[RowMapping]) -> list[Job]:
    """Rows of the table of jobs as jobs, without those that this version cannot read."""
    jobs = []
    for row in rows:
        with suppress(JobUnreadable):  # `unreadable` names them
            jobs.append(job_of(row))
    return jobs


def now_ms() -> int:
    """Milliseconds since 1970."""
    return milliseconds(datetime.now(UTC))

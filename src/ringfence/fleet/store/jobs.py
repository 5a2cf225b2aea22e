"""Stores the fleet's jobs: adds, finds, cancels and removes them."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, Select, bindparam, delete, insert, select, update

from ringfence.errors import NotFound, UsageError
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import DuplicateKey, QueueFull, find_by_key_in, insert_in
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

# Built once: building a statement takes longer than executing it.
_ONE = select(JOBS).where(JOBS.c.id == bindparam("of"))
_ONE_TO_CHANGE = _ONE.with_for_update()
_BLOBS_OF = select(BLOBS.c.kind, BLOBS.c.content).where(
    BLOBS.c.job == bindparam("of"), BLOBS.c.kind.in_(bindparam("kinds", expanding=True))
)
_DROP_BLOB = delete(BLOBS).where(BLOBS.c.job == bindparam("of"), BLOBS.c.kind == bindparam("called"))
_ADD_BLOB = insert(BLOBS)
_STATES = [state.value for state in JobState]
_MOST_UNREADABLE = 1000


class Jobs:
    """The jobs in a database. Safe to use from several processes and machines.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: NewJob) -> tuple[Job, bool]:
        """Add a job as queued, or find the job with the same dedupe key; return it, and whether it is new.

        Raises:
            QueueFull: The queue of its agent is full.
        """

        def act(connection: Connection) -> tuple[Job, bool]:
            return insert_in(connection, new)

        try:
            return await self._database.write(act)
        except DuplicateKey:
            return await self._database.read(lambda connection: (_with_key(connection, new), False))

    async def get(self, job_id: str) -> Job | None:
        """The job with an id; None if there is none."""
        return await self._database.read(lambda connection: get_in(connection, job_id))

    async def resolve(self, reference: str) -> Job:
        """The job whose id is, or ends in, a reference.

        Raises:
            NotFound: No job matches.
            UsageError: Several jobs match.
        """

        def act(connection: Connection) -> list[Job]:
            exact = get_in(connection, reference)
            if exact is not None:
                return [exact]
            ends = JOBS.c.id.endswith(reference, autoescape=True)
            return _jobs(connection, select(JOBS).where(ends).limit(2))

        found = await self._database.read(act) if reference else []
        if not found:
            raise NotFound(f"there is no job {reference!r}; `ringfence job ls` lists them")
        if len(found) > 1:
            raise UsageError(f"several jobs end in {reference!r}; give more of the id")
        return found[0]

    async def list(
        self,
        *,
        agent: str | None = None,
        states: Sequence[JobState] = (),
        limit: int = 50,
    ) -> list[Job]:
        """Jobs, newest first.

        Args:
            agent: Only jobs of this agent.
            states: Only jobs in these states; empty: in any state.
            limit: The maximum number of jobs.
        """
        query = select(JOBS).order_by(JOBS.c.id.desc()).limit(limit)
        if agent is not None:
            query = query.where(JOBS.c.agent == agent)
        if states:
            query = query.where(JOBS.c.state.in_([state.value for state in states]))
        return await self._database.read(lambda connection: _jobs(connection, query))

    async def active_workflows(self) -> dict[str, str]:
        """The ids of starting and running jobs, by the id of their current workflow."""
        query = select(JOBS.c.id, JOBS.c.admissions).where(
            JOBS.c.state.in_([state.value for state in ACTIVE])
        )

        def act(connection: Connection) -> dict[str, str]:
            return {workflow_id(job_id, admission): job_id for job_id, admission in connection.execute(query)}

        return await self._database.read(act)

    async def unreadable(self) -> Sequence[str]:
        """The ids of jobs whose state this version does not know."""
        query = select(JOBS.c.id).where(JOBS.c.state.not_in(_STATES)).limit(_MOST_UNREADABLE)
        return await self._database.read(lambda connection: connection.execute(query).scalars().all())

    async def blob(self, job_id: str, kind: BlobKind) -> bytes | None:
        """A blob of a job; None if there is none of this kind."""
        return (await self.blobs(job_id, (kind,))).get(kind)

    async def blobs(self, job_id: str, kinds: Sequence[BlobKind]) -> dict[BlobKind, bytes]:
        """The blobs of these kinds that a job has."""
        asked = {"of": job_id, "kinds": [*kinds]}

        def act(connection: Connection) -> dict[BlobKind, bytes]:
            return {row.kind: row.content for row in connection.execute(_BLOBS_OF, asked)}

        return await self._database.read(act)

    async def end(self, job_id: str, state: JobState, *, reason: str) -> bool:
        """End a job for which no attempt is running; False if it has already ended. This fences its attempts."""

        def act(connection: Connection) -> bool:
            return _end_in(connection, job_id, state, reason)

        return await self._database.write(act)

    async def end_orphaned(self, job_id: str, *, workflow: str, reason: str) -> bool:
        """End a job whose workflow ended without ending it; False if it is not active, or was admitted again since.

        A job that waits for its next attempt is not lost: its last workflow has ended as it should.

        Args:
            job_id: The job.
            workflow: The id of the workflow that has ended.
            reason: The reason of the job's end, in a line.
        """

        def act(connection: Connection) -> bool:
            now = get_in(connection, job_id, to_change=True)
            if now is None or now.state not in ACTIVE or now.workflow_id != workflow:
                return False
            state = JobState.CANCELLED if now.is_cancel_asked else JobState.INFRASTRUCTURE
            return _end_in(connection, job_id, state, reason)

        return await self._database.write(act)

    async def request_cancel(self, job_id: str, *, reason: str) -> Job:
        """Cancel a job: at once unless it runs, otherwise through its worker, which learns of it as it reports usage.

        Raises:
            NotFound: There is no such job.
            UsageError: It has ended.
        """

        def act(connection: Connection) -> Job:
            asked = cancel_in(connection, job_id, reason=reason)
            if asked is not None:
                return asked
            job = get_in(connection, job_id)
            if job is None:
                raise NotFound(f"there is no job {job_id!r}; `ringfence job ls` lists them")
            raise UsageError(f"job {job_id!r} has ended: {job.state.value}; there is nothing to cancel")

        return await self._database.write(act)

    async def requeue_starting(self) -> None:
        """Queue every admitted job again that no worker has started."""

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
        """Add the jobs that follow ended jobs, each once; return how many ended jobs were handled.

        A job whose agent's queue is full is dropped for good, so that no ended job is handled forever.

        Args:
            make: Returns the jobs that follow an ended job. It is called once for each, and again only if the process
                died before the result was stored.
            limit: The maximum number of ended jobs per call.
            left_out: Called with an ended job for which a following job found its queue full.
            finish: Called within the transaction for each job that ended outside an attempt, in the queue or with
                its worker's death, since no worker ran its hooks. The job has a new workflow id.
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
                if job.worker is None:
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
            return limit  # another process has just added one of them: the next call finds it

    async def set_decided(self, job_id: str) -> None:
        """Note that a person has applied or rejected a job's changes."""
        decided = {"is_ready_to_apply": False, "changed_ms": now_ms()}
        statement = update(JOBS).where(JOBS.c.id == job_id).values(**decided)
        await self._database.write(lambda connection: connection.execute(statement))

    async def remove(self, job_id: str) -> bool:
        """Remove a job that has ended, with all its rows; False if it has not ended, or does not exist."""
        return await self.remove_ended([job_id]) == [job_id]

    async def remove_ended(self, ids: Sequence[str]) -> Sequence[str]:
        """Remove jobs in one transaction, except those that have not ended; return the ids of the removed jobs.

        The totals keep counting them.
        """

        def act(connection: Connection) -> Sequence[str]:
            ended = [state.value for state in JobState if state.is_terminal]
            query = select(JOBS.c.id).where(JOBS.c.id.in_(ids), JOBS.c.state.in_(ended)).with_for_update()
            removed = sorted(connection.execute(query).scalars())
            keep_totals(connection, removed)
            for column in (BLOBS.c.job, ATTEMPTS.c.job, INBOX.c.job, JOBS.c.id):
                connection.execute(delete(column.table).where(column.in_(removed)))
            return removed

        return await self._database.write(act)


def _with_new_workflow(connection: Connection, job: Job) -> Job:
    """Give a job a new workflow id."""
    connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(admissions=JOBS.c.admissions + 1))
    return replace(job, admissions=job.admissions + 1)


def cancel_in(connection: Connection, job_id: str, *, reason: str) -> Job | None:
    """Cancel a job within a transaction, at once unless it is running; None if it has ended, or does not exist."""
    job = get_in(connection, job_id, to_change=True)
    if job is None or job.state.is_terminal:
        return None
    # The first request's reason is kept.
    values = {
        "changed_ms": now_ms(),
        "is_cancel_asked": True,
        "reason": job.reason if job.is_cancel_asked else reason_of(reason),
    }
    if job.state is not JobState.RUNNING:
        # Without a worker, `follow` has the job's hooks run.
        released = {"worker": None, "reserved_tokens": None, "reserved_usd": None}
        values |= {"state": JobState.CANCELLED, "ended_ms": now_ms(), **released}
        withdraw_questions_in(connection, job_id)
    connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(**values))
    return get_in(connection, job_id)


def _end_in(connection: Connection, job_id: str, state: JobState, reason: str) -> bool:
    live = [each.value for each in JobState if not each.is_terminal]
    ended = {"state": state, "ended_ms": now_ms(), "reason": reason_of(reason)}
    # Without a worker, `follow` has the job's hooks run.
    released = {"worker": None, "reserved_tokens": None, "reserved_usd": None}
    done = connection.execute(
        update(JOBS)
        .where(JOBS.c.id == job_id, JOBS.c.state.in_(live))
        .values(**ended, **released, changed_ms=ended["ended_ms"])
    )
    connection.execute(
        update(ATTEMPTS).where(ATTEMPTS.c.job == job_id, ATTEMPTS.c.ended_ms.is_(None)).values(**ended)
    )
    withdraw_questions_in(connection, job_id)
    return done.rowcount == 1


def withdraw_questions_in(connection: Connection, job_id: str) -> None:
    """Close the open questions of a job that ends without their answer, within a transaction."""
    connection.execute(
        update(INBOX)
        .where(INBOX.c.job == job_id, INBOX.c.answer.is_(None))
        .values(answer="withdrawn", answered_ms=now_ms())
    )


def get_in(connection: Connection, job_id: str, *, to_change: bool = False) -> Job | None:
    """As `Jobs.get`, within a transaction.

    Args:
        connection: The transaction's connection.
        job_id: The job's id.
        to_change: Whether to lock the row until the end of the transaction.
    """
    found = connection.execute(_ONE_TO_CHANGE if to_change else _ONE, {"of": job_id}).mappings().first()
    return None if found is None else job_of(found)


def put_blob_in(connection: Connection, job_id: str, kind: BlobKind, content: bytes) -> None:
    """Store a blob of a job within a transaction; it replaces an earlier one of the same kind."""
    connection.execute(_DROP_BLOB, {"of": job_id, "called": kind})
    connection.execute(_ADD_BLOB, {"job": job_id, "kind": kind, "content": content})


def _with_key(connection: Connection, new: NewJob) -> Job:
    found = find_by_key_in(connection, new.dedupe_key or "")
    assert found is not None
    return found


def _jobs(connection: Connection, query: Select[tuple[object, ...]]) -> list[Job]:
    return readable(connection.execute(query).mappings())


def readable(rows: Iterable[RowMapping]) -> list[Job]:
    """The jobs of rows of the table of jobs, without those that this version cannot read."""
    jobs = []
    for row in rows:
        with suppress(JobUnreadable):  # `unreadable` names them
            jobs.append(job_of(row))
    return jobs


def now_ms() -> int:
    """The current time in milliseconds since 1970."""
    return milliseconds(datetime.now(UTC))

"""The dispatcher, which starts jobs."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from sqlalchemy import Connection

from ringfence.engine import WorkflowState, WorkflowStatus, open_engine
from ringfence.engine.client import Engine
from ringfence.errors import InfrastructureFault
from ringfence.fleet.daemon.dispatcher import Dispatcher
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job, NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
BOUNDS = Bounds({"a": AgentBounds(concurrency=2000)}, concurrency=2000)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty database."""
    return f"sqlite:///{tmp_path / 'fleet.db'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """The database of jobs, empty."""
    made = Database(url)
    made.create_tables()
    yield made
    made.close()


async def queued(database: Database, count: int) -> list[str]:
    """Add jobs that wait; return their ids."""
    return [(await Jobs(database).add(NewJob("a", "manual", "p")))[0].id for _ in range(count)]


def dispatcher_of(database: Database, engine: Engine, *, is_accepting: bool = True) -> Dispatcher:
    """A dispatcher without followers or log."""
    made = Dispatcher(
        database, engine, bounds=lambda: BOUNDS, followers=lambda _job: [], log=lambda *_a, **_k: None
    )
    made.is_accepting = is_accepting
    return made


class _Late(Engine):
    """An engine in which a worker ends the only attempt while live workflows are listed."""

    worker_ends: Callable[[], Awaitable[object]]

    async def list(self, **_filters: Any) -> list[WorkflowStatus]:
        """Return the list as of that moment: no workflow is live any more."""
        await self.worker_ends()
        return []


@pytest.mark.parametrize(("is_retried", "state"), [(True, JobState.QUEUED), (False, JobState.INFRASTRUCTURE)])
async def test_a_job_that_waits_for_its_next_attempt_is_not_lost(
    database: Database, url: str, is_retried: bool, state: JobState
):
    """A job that is queued for a retry stays queued; a running job whose workflow is gone is ended."""
    attempts = Attempts(database)
    job_id = (await queued(database, 1))[0]

    async with _Late(url) as engine:
        await Admission(database).admit(BOUNDS, now=datetime.now(UTC), day_began=datetime.now(UTC))
        attempt = await attempts.begin(job_id, worker="w", host="h")
        assert attempt is not None
        later = datetime.now(UTC) + timedelta(hours=1)

        async def end() -> None:
            if is_retried:
                await attempts.end(
                    attempt,
                    AttemptResult(JobState.INFRASTRUCTURE, reason="its sandbox was killed"),
                    retry_at=later,
                )

        engine.worker_ends = end
        await dispatcher_of(database, engine, is_accepting=False).round()
    found = await Jobs(database).get(job_id)
    assert found is not None
    assert found.state is state


async def test_a_job_and_its_workflow_are_admitted_together(database: Database, url: str):
    """A transaction that admits a job enqueues its workflow, or does neither."""
    job_id = (await queued(database, 1))[0]
    async with open_engine(url) as engine:

        def fail(connection: Connection, job: Job) -> None:
            engine.enqueue_in(connection, "job", id=job.workflow_id)
            raise InfrastructureFault("the database is full")

        with pytest.raises(InfrastructureFault):
            await Admission(database, enqueue=fail).admit(
                BOUNDS, now=datetime.now(UTC), day_began=datetime.now(UTC)
            )
        refused = (await Jobs(database).list(), await engine.list())
        await dispatcher_of(database, engine).round()
        admitted = (await Jobs(database).list(), await engine.list())
    assert [job.state for job in refused[0]] == [JobState.QUEUED]
    assert refused[1] == []
    assert [(job.id, job.state) for job in admitted[0]] == [(job_id, JobState.STARTING)]
    assert [(each.id, each.state) for each in admitted[1]] == [(f"{job_id}.1", WorkflowState.WAITING)]


async def test_every_orphaned_job_is_ended(database: Database, url: str):
    """However many jobs are active, each whose workflow is gone is ended; the others stay as they are."""
    orphans = await queued(database, 1024)
    await Admission(database).admit(BOUNDS, now=datetime.now(UTC), day_began=datetime.now(UTC))
    live = await queued(database, 2)
    async with open_engine(url) as engine:
        await dispatcher_of(database, engine).round()
    states = {job.id: job.state for job in await Jobs(database).list(limit=5000)}
    assert {states[job] for job in orphans} == {JobState.INFRASTRUCTURE}
    assert {states[job] for job in live} == {JobState.STARTING}


async def test_a_lasting_fault_is_logged_once(database: Database, url: str):
    """A fault that keeps jobs from starting is logged when it begins, changes and ends, not at each attempt."""
    faults = ["away", "away", "away", "full", "full"]
    lines: list[str] = []
    is_past = anyio.Event()

    def bounds() -> Bounds:
        dispatcher.wake()
        if faults:
            raise InfrastructureFault(faults.pop(0))
        return Bounds({}, concurrency=1)

    def log(line: str, /, **_fields: object) -> None:
        lines.append(line)
        if line.endswith("again"):
            is_past.set()

    def nobody(_ended: Job) -> list[NewJob]:
        return []

    async with open_engine(url) as engine, anyio.create_task_group() as tasks:
        dispatcher = Dispatcher(database, engine, bounds=bounds, followers=nobody, log=log)
        tasks.start_soon(dispatcher.run)
        with anyio.fail_after(30):
            await is_past.wait()
        tasks.cancel_scope.cancel()
    assert lines == ["away", "full", "jobs are started again"]

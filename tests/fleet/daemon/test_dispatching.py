"""The loop that has jobs start, among rows that somebody else may have written."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest
from sqlalchemy import Connection
from tests.cases import slow_after
from tests.engine.memory import Memory, MemoryEngine

from ringfence.engine.base import WorkflowState, WorkflowStatus
from ringfence.errors import InfrastructureFault
from ringfence.fleet.daemon.dispatching import Dispatcher
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job, NewJob, SenselessRow
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.totals import census
from ringfence.fleet.worker.workflow import JOB_WORKFLOW
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio


_SENSELESS = {
    "a time beyond all": {"created_ms": 10**18},
    "a time that is a text": {"created_ms": "yesterday"},
    "a priority above all": {"priority": "urgent"},
    "bytes": {"reason": b"\xff"},
    "an unknown trigger": {"trigger": "moon"},
    "tokens": {"tokens": "many"},
    "a count": {"admissions": "often"},
}


def _damage(connection: Connection, job: str, values: dict[str, object]) -> None:
    """Write into a row what SQLite lets anybody write."""
    ((name, value),) = values.items()
    connection.exec_driver_sql(f"UPDATE crew_jobs SET {name} = ? WHERE id = ?", (value, job))


@pytest.mark.parametrize("values", slow_after(2, _SENSELESS.values()), ids=_SENSELESS)
async def test_a_row_that_makes_no_sense_holds_nobody_up(tmp_path: Path, values: dict[str, object]):
    """Rows that are no jobs, at the head of the queue or ended, are told once each; the jobs behind them start."""
    database = Database(f"sqlite:///{tmp_path / 'crew.db'}")
    database.create_tables()
    jobs = Jobs(database)
    senseless = [(await jobs.add(NewJob("a", "manual", "p", priority=9)))[0].id for _ in range(3)]
    good, _ = await jobs.add(NewJob("a", "manual", "p"))
    await jobs.end(senseless[0], JobState.FAILED, reason="it ended")
    for job in senseless:
        await database.write(partial(_damage, job=job, values=values))
    lines: list[str] = []

    def tell(line: str, /, **_fields: object) -> None:
        lines.append(line)

    def nobody(_ended: Job) -> list[NewJob]:
        return []

    async with MemoryEngine(Memory()) as engine:
        bounds = Bounds({"a": AgentBounds(concurrency=9)}, concurrency=9)
        dispatcher = Dispatcher(database, engine, bounds=lambda: bounds, followers=nobody, tell=tell)
        for _ in range(2):
            await dispatcher.round()
    found = await jobs.get(good.id)
    assert found is not None
    assert found.state is JobState.STARTING
    assert [job.id for job in await jobs.list()] == [good.id]
    assert sorted(senseless) == sorted(job for job in senseless for line in lines if job in line)
    assert all("makes no sense, and is passed over" in line for line in lines)
    database.close()


class _Late(MemoryEngine):
    """An engine of which one asks while a worker ends the attempt that the workflow is of."""

    worker_ends: Callable[[], Awaitable[object]]

    async def get(self, id: str) -> WorkflowStatus | None:
        """What it says then: the workflow has ended."""
        await self.worker_ends()
        now = datetime.now(UTC)
        return WorkflowStatus(id, JOB_WORKFLOW, WorkflowState.DONE, None, now)


@pytest.mark.parametrize(("is_retried", "state"), [(True, JobState.QUEUED), (False, JobState.INFRASTRUCTURE)])
async def test_a_job_that_waits_for_its_next_try_is_not_lost(
    tmp_path: Path, is_retried: bool, state: JobState
):
    """The workflow of its last try has ended as it should; one that is still said to be at work is ended."""
    database = Database(f"sqlite:///{tmp_path / 'crew.db'}")
    database.create_tables()
    jobs, attempts = Jobs(database), Attempts(database)
    job, _ = await jobs.add(NewJob("a", "manual", "p"))

    async with _Late(Memory()) as engine:
        bounds = Bounds({"a": AgentBounds()}, concurrency=1)
        dispatcher = Dispatcher(
            database, engine, bounds=lambda: bounds, followers=lambda _job: [], tell=lambda *_a, **_k: None
        )
        dispatcher.is_accepting = False
        await Admission(database).admit(bounds, now=datetime.now(UTC), day_began=datetime.now(UTC))
        attempt = await attempts.begin(job.id, worker="w", host="h")
        assert attempt is not None
        later = datetime.now(UTC) + timedelta(hours=1)

        async def end() -> None:
            if is_retried:
                await attempts.end(
                    attempt, JobState.INFRASTRUCTURE, reason="its sandbox was killed", retry_at=later
                )

        engine.worker_ends = end
        await dispatcher.round()
    found = await jobs.get(job.id)
    assert found is not None
    assert found.state is state
    database.close()


async def test_a_row_of_a_newer_version_is_counted_by_nobody(tmp_path: Path):
    """A state that we do not know keeps neither lists nor figures from what we know."""
    database = Database(f"sqlite:///{tmp_path / 'crew.db'}")
    database.create_tables()
    jobs = Jobs(database)
    newer, _ = await jobs.add(NewJob("a", "manual", "p"))
    good, _ = await jobs.add(NewJob("a", "manual", "p"))
    await database.write(partial(_damage, job=newer.id, values={"state": "hibernating"}))
    assert [job.id for job in await jobs.list()] == [good.id]
    assert await jobs.counts() == {"a": {JobState.QUEUED: 1}}
    assert (await census(database)).states == {("a", JobState.QUEUED): 1}
    with pytest.raises(SenselessRow, match="hibernating"):
        await jobs.get(newer.id)
    database.close()


async def test_a_lasting_fault_is_told_once(tmp_path: Path):
    """What keeps jobs from starting is told when it comes, when it is another, and when it is past: not at each try."""
    database = Database(f"sqlite:///{tmp_path / 'crew.db'}")
    database.create_tables()
    faults = ["away", "away", "away", "full", "full"]
    lines: list[str] = []
    is_past = anyio.Event()

    def bounds() -> Bounds:
        dispatcher.wake()
        if faults:
            raise InfrastructureFault(faults.pop(0))
        return Bounds({}, concurrency=1)

    def tell(line: str, /, **_fields: object) -> None:
        lines.append(line)
        if line.endswith("again"):
            is_past.set()

    def nobody(_ended: Job) -> list[NewJob]:
        return []

    async with MemoryEngine(Memory()) as engine, anyio.create_task_group() as tasks:
        dispatcher = Dispatcher(database, engine, bounds=bounds, followers=nobody, tell=tell)
        tasks.start_soon(dispatcher.run)
        with anyio.fail_after(30):
            await is_past.wait()
        tasks.cancel_scope.cancel()
    assert lines == ["away", "full", "jobs are started again"]
    database.close()

"""The loop that has jobs start."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from tests.engine.memory import Memory, MemoryEngine

from ringfence.engine.base import WorkflowState, WorkflowStatus
from ringfence.errors import InfrastructureFault
from ringfence.fleet.daemon.dispatcher import Dispatcher
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job, NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio


class _Late(MemoryEngine):
    """An engine of which one asks while a worker ends the attempt that the workflow is of."""

    worker_ends: Callable[[], Awaitable[object]]

    async def get(self, id: str) -> WorkflowStatus | None:
        """What it says then: the workflow has ended."""
        await self.worker_ends()
        return WorkflowStatus(id, WorkflowState.DONE, None)


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
            database, engine, bounds=lambda: bounds, followers=lambda _job: [], log=lambda *_a, **_k: None
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

    def log(line: str, /, **_fields: object) -> None:
        lines.append(line)
        if line.endswith("again"):
            is_past.set()

    def nobody(_ended: Job) -> list[NewJob]:
        return []

    async with MemoryEngine(Memory()) as engine, anyio.create_task_group() as tasks:
        dispatcher = Dispatcher(database, engine, bounds=bounds, followers=nobody, log=log)
        tasks.start_soon(dispatcher.run)
        with anyio.fail_after(30):
            await is_past.wait()
        tasks.cancel_scope.cancel()
    assert lines == ["away", "full", "jobs are started again"]
    database.close()

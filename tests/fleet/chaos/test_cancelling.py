"""A job is cancelled at the moment at which it ends."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.postgres import cluster

from ringfence.errors import UsageError
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.job.state import JobState

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
_TIMES = 40


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of each kind."""
    if request.param == "sqlite":
        made = Database(f"sqlite:///{tmp_path / 'crew.db'}")
        made.create_tables()
        yield made
        made.close()
        return
    with cluster() as postgres:
        made = Database(postgres.make_database())
        made.create_tables()
        yield made
        made.close()


async def _race(database: Database) -> tuple[str, JobState]:
    """End a job and cancel it at the same time; return the answer to the cancellation, and the job's state."""
    jobs, attempts = Jobs(database), Attempts(database)
    job, _ = await jobs.add(NewJob(agent="a", trigger="manual", prompt="do it"))
    bounds = Bounds({"a": AgentBounds(concurrency=1000)}, concurrency=1000)
    await Admission(database).admit(bounds, now=datetime.now(UTC), day_began=datetime.now(UTC))
    attempt = await attempts.begin(job.id, worker="w", host="h")
    assert attempt is not None
    told = "accepted"

    async def cancel() -> None:
        nonlocal told
        try:
            await jobs.request_cancel(job.id, reason="enough")
        except UsageError:
            told = "refused"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel)
        tasks.start_soon(lambda: attempts.end(attempt, AttemptResult(JobState.UNVERIFIED)))
    assert await attempts.end(attempt, AttemptResult(JobState.FAILED)) is None
    assert not await jobs.end(job.id, JobState.INFRASTRUCTURE, reason="too late")
    ended = await jobs.get(job.id)
    assert ended is not None
    return told, ended.state


async def test_an_end_is_never_overwritten(database: Database):
    """Either the job is cancelled, or the cancellation is refused because the job has ended; that end stays."""
    found = {await _race(database) for _ in range(_TIMES)}
    assert found <= {("accepted", JobState.CANCELLED), ("refused", JobState.UNVERIFIED)}

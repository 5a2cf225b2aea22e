"""Retention: which ended jobs are kept, and for how long."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select
from tests.engine.conformance.ground import until
from tests.postgres import Cluster, cluster

from ringfence.engine import Context, Json, open_engine
from ringfence.engine.client import Engine
from ringfence.errors import InfrastructureFault
from ringfence.fleet.config.model import RetentionSettings
from ringfence.fleet.record_store import RecordStore
from ringfence.fleet.retention import Retention
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.agents import LastSession, set_last_session_in
from ringfence.fleet.store.attempts import AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job, NewJob, milliseconds
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage, add_spend_in
from ringfence.fleet.store.tables import DELIVERIES, SPEND
from ringfence.job.state import JobState
from ringfence.journal import Journal, run_dir, runs_dir, summarize
from ringfence.removal import remove_tree

pytestmark = pytest.mark.anyio
BOUNDS = Bounds({"mender": AgentBounds(concurrency=100)}, concurrency=100)
NOTHING = RetentionSettings(age=None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres for these tests alone."""
    with cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'crew.db'}"
    running: Cluster = request.getfixturevalue("postgres")
    return running.make_database()


@pytest.fixture
def database(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """An empty database, in a state directory of its own."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "s"))
    made = Database(url)
    made.create_tables()
    yield made
    made.close()


async def ended(database: Database, *, is_sealed: bool = True, is_followed: bool = True) -> Job:
    """Add a job that has ended, with the record of its run."""
    job, _ = await Jobs(database).add(NewJob(agent="mender", trigger="manual", prompt="p"))
    await Admission(database).admit(BOUNDS, now=datetime.now(UTC), day_began=datetime.now(UTC))
    attempt = await Attempts(database).begin(job.id, worker="w", host="h")
    assert attempt is not None
    journal = Journal.create(run_dir(attempt.run_id), attempt.run_id)
    if is_sealed:
        await journal.finish()
    else:
        journal.close()
    done = await Attempts(database).end(attempt, AttemptResult(JobState.SUCCEEDED))
    assert done is not None
    if is_followed:
        await Jobs(database).follow(lambda _: [])
    return done


async def left(database: Database) -> list[str]:
    """Return the remaining jobs, the oldest first."""
    return sorted(job.id for job in await Jobs(database).list(limit=100_000))


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    """The engine of the database, without an executor."""
    async with open_engine(url) as opened:
        yield opened


async def test_the_oldest_go_with_their_records(database: Database, engine: Engine):
    """Beyond an agent's count the oldest jobs are removed with their records; a dry run only names them."""
    jobs = [await ended(database) for _ in range(3)]
    settings = RetentionSettings(age=None, count=1)
    told = await Retention(database, engine).round(settings, dry_run=True)
    assert (told.jobs, len(await left(database))) == ([job.id for job in jobs[:2]], 3)
    done = await Retention(database, engine).round(settings)
    assert (done.jobs, done.runs, done.size_bytes) == (told.jobs, 2, told.size_bytes)
    assert await left(database) == [jobs[2].id]
    assert [run_dir(str(job.run_id)).is_dir() for job in jobs] == [False, False, True]


async def test_records_go_until_they_are_small_enough(database: Database, engine: Engine):
    """With a size limit the oldest jobs are removed, and no more than necessary."""
    jobs = [await ended(database) for _ in range(3)]
    sizes = [
        sum(file.stat().st_size for file in run_dir(str(job.run_id)).rglob("*") if file.is_file())
        for job in jobs
    ]
    assert (await Retention(database, engine).round(RetentionSettings(age=None, size=sum(sizes)))).jobs == []
    done = await Retention(database, engine).round(RetentionSettings(age=None, size=sum(sizes) - 1))
    assert done.jobs == [jobs[0].id]


async def test_stored_copies_go_with_the_job(database: Database, engine: Engine, tmp_path: Path):
    """The stored copy of another machine's record is removed with its job."""
    job = await ended(database)
    store = RecordStore(f"file://{tmp_path}/store", tmp_path / "cache")
    store.upload(str(job.run_id))
    remove_tree(run_dir(str(job.run_id)))
    forgetting = Retention(database, engine, records=store)
    assert (await forgetting.round(RetentionSettings(age=0.001))).jobs == [job.id]
    assert store.fetch(str(job.run_id)) is None


async def test_old_sums_and_deliveries_go(database: Database, engine: Engine):
    """Sums of spend and deliveries are removed after 400 days, whatever is kept of jobs."""
    ages = [milliseconds(datetime.now(UTC) - timedelta(days=days)) for days in (401, 30)]

    def fill(connection: Connection) -> None:
        for at in ages:
            add_spend_in(connection, "mender", Usage(1, 0.0), at_ms=at)
            connection.execute(DELIVERIES.insert().values(key=str(at), job="j", received_ms=at))

    await database.write(fill)
    await Retention(database, engine).round(NOTHING)
    counts = [select(func.count()).select_from(table) for table in (SPEND, DELIVERIES)]
    assert await database.read(lambda link: [link.execute(each).scalar_one() for each in counts]) == [1, 1]


@pytest.mark.parametrize("why", ["unsealed", "not followed", "session", "hooks"])
async def test_what_is_needed_stays(database: Database, engine: Engine, why: str):
    """Jobs stay while their record is unsealed, followers are due, their session is resumable, or their hooks run."""
    job = await ended(database, is_sealed=why != "unsealed", is_followed=why != "not followed")
    if why == "session":
        session = LastSession(job.run_id, "h", datetime.now(UTC))
        await database.write(lambda connection: set_last_session_in(connection, "mender", session))
    if why == "hooks":
        await engine.enqueue("job", id=job.workflow_id)
    done = await Retention(database, engine).round(RetentionSettings(age=0.001))
    assert (done.jobs, await left(database)) == ([], [job.id])
    assert run_dir(str(job.run_id)).is_dir()


class _Broken(Engine):
    async def remove(self, ids):
        """Fail after the records were removed."""
        raise InfrastructureFault("away")


async def test_who_was_interrupted_does_the_rest(database: Database, url: str, engine: Engine):
    """The next round removes a job whose record was already removed when a round failed."""
    job = await ended(database)
    settings = RetentionSettings(age=0.001)
    with pytest.raises(InfrastructureFault):
        async with _Broken(url) as broken:
            await Retention(database, broken).round(settings)
    assert (await left(database), run_dir(str(job.run_id)).is_dir()) == ([job.id], False)
    assert (await Retention(database, engine).round(settings)).jobs == [job.id]


async def test_a_round_is_bounded(database: Database, engine: Engine):
    """A round removes a limited number of jobs, and reports whether more are left."""
    for _ in range(5):
        await ended(database)
    settings = RetentionSettings(age=0.001)
    first = await Retention(database, engine).round(settings, most=3)
    second = await Retention(database, engine).round(settings, most=3)
    assert (len(first.jobs), first.is_all, len(second.jobs), second.is_all) == (3, False, 2, True)


async def test_without_bounds_all_stays(database: Database, engine: Engine):
    """Without limits every job stays."""
    job = await ended(database)
    await Retention(database, engine).round(NOTHING)
    assert await left(database) == [job.id]


async def test_a_waiting_job_keeps_the_session_that_it_goes_on_with(database: Database, engine: Engine):
    """A job that a queued job forks or retries from stays until that one has ended, too."""
    job = await ended(database)
    await Jobs(database).add(NewJob(agent="other", trigger="fork", prompt="p", session_id=job.run_id))
    done = await Retention(database, engine).round(RetentionSettings(age=0.001))
    assert (done.jobs, run_dir(str(job.run_id)).is_dir()) == ([], True)


async def test_nothing_is_left_of_a_job(database: Database, url: str):
    """Removing a job removes its workflow from the engine."""
    job = await ended(database)

    async def work(_: Context, argument: Json) -> Json:
        return argument

    async with open_engine(url, workflows={"job": work}) as executor:
        await executor.enqueue("job", id=job.workflow_id)
        await until(executor, str(job.workflow_id))
        done = await Retention(database, executor).round(RetentionSettings(age=0.001))
        assert (done.jobs, await executor.get(job.workflow_id)) == ([job.id], None)


ROUND = """
import anyio, sys
from ringfence.engine import open_engine
from ringfence.fleet.config.model import RetentionSettings
from ringfence.fleet.record_store import RecordStore
from ringfence.fleet.retention import Retention
from ringfence.fleet.store.database import Database
async def main():
    async with open_engine(sys.argv[1]) as engine:
        await Retention(Database(sys.argv[1]), engine).round(RetentionSettings(age=0.001))
anyio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("left_over", [11, 2])
async def test_a_round_that_is_killed_leaves_whole_records(
    database: Database, engine: Engine, url: str, left_over: int
):
    """A process that dies during a round leaves each record complete or removed, and the next round does the rest."""
    jobs = [await ended(database) for _ in range(12)]
    for job in jobs:
        for number in range(50):
            (run_dir(str(job.run_id)) / f"file-{number}").touch()
    dying = subprocess.Popen(  # noqa: ASYNC220 -- no other task runs here
        [sys.executable, "-c", ROUND, url], env=os.environ.copy()
    )
    try:
        deadline = time.monotonic() + 60
        while sum(path.name[0] != "." for path in runs_dir().iterdir()) > left_over and dying.poll() is None:
            assert time.monotonic() < deadline
    finally:
        dying.send_signal(signal.SIGKILL)
        dying.wait()
    for path in (path for path in runs_dir().iterdir() if path.name[0] != "."):
        assert (summarize(path).is_sealed, len([*path.glob("file-*")])) == (True, 50)
    await Retention(database, engine).round(RetentionSettings(age=0.001))
    assert (await left(database), [*runs_dir().iterdir()]) == ([], [])

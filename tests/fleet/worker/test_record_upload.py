"""The upload of a machine's records after their attempts have ended."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.fleet.store.test_admission import DAY, NOON
from tests.journal.conftest import conversation

from ringfence.fleet.record_store import RecordStore
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.tables import ATTEMPTS
from ringfence.fleet.worker.record_upload import NOT_STORED, RecordUpload
from ringfence.job.state import JobState
from ringfence.journal import Journal, run_dir

pytestmark = pytest.mark.anyio
HOST = socket.gethostname()


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """An empty database, on a machine with its own state directory."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "s"))
    made = Database(f"sqlite:///{tmp_path / 'fleet.db'}")
    made.create_tables()
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    """The record store as another machine sees it."""
    return RecordStore(f"file://{tmp_path}/store", tmp_path / "cache")


async def begin(database: Database, *, host: str = HOST) -> Attempt:
    """Begin an attempt on a machine."""
    job, _ = await Jobs(database).add(NewJob(agent="a", trigger="manual", prompt="p"))
    await Admission(database).admit(Bounds({"a": AgentBounds(concurrency=9)}), now=NOON, day_began=DAY)
    attempt = await Attempts(database).begin(job.id, worker="w", host=host)
    assert attempt is not None
    return attempt


def record(attempt: Attempt) -> None:
    """Write the record of an attempt's run."""
    with Journal.create(run_dir(attempt.run_id), attempt.run_id) as journal:
        for event in conversation():
            journal.append(event)
        journal.seal()


async def stored(database: Database) -> dict[str, str | None]:
    """Return the names of stored records, by run."""
    query = select(ATTEMPTS.c.run_id, ATTEMPTS.c.record)
    return await database.read(
        lambda connection: {row.run_id: row.record for row in connection.execute(query)}
    )


async def test_ended_attempts_of_this_machine_are_uploaded(database: Database, store: RecordStore):
    """Records of this machine's ended attempts are uploaded; an attempt that ended before its run began has none."""
    ended, lost, running, other = [await begin(database) for _ in range(3)] + [
        await begin(database, host="other")
    ]
    for attempt in (ended, running):
        record(attempt)
    for attempt in (ended, lost, other):
        await Attempts(database).end(attempt, AttemptResult(JobState.SUCCEEDED))
    upload = RecordUpload(database, store, host=HOST, log=lambda *_args, **_fields: None)
    assert await upload.sweep() == 2
    assert await stored(database) == {
        ended.run_id: ended.run_id,
        lost.run_id: NOT_STORED,
        running.run_id: None,
        other.run_id: None,
    }
    assert store.fetch(ended.run_id) is not None
    assert await upload.sweep() == 0

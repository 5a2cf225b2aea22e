"""The stream of state changes."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from sqlalchemy import Connection, update
from tests.fleet.daemon.test_api import daemon_of

from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.queries.changes import Change, ChangeFeed, ChangeReader
from ringfence.fleet.store.job import NewJob
from ringfence.fleet.store.tables import JOBS

pytestmark = pytest.mark.anyio


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon whose loop does not run."""
    made = await anyio.to_thread.run_sync(daemon_of, tmp_path)
    yield made
    made.database.close()


def _new(prompt: str = "x") -> NewJob:
    return NewJob(agent="a", trigger="manual", prompt=prompt)


async def test_each_change_is_read_once(daemon: Daemon):
    """Each job, agent and schedule that changed since the last read is named once, and nothing else is."""
    old, _ = await daemon.jobs.add(_new())
    reader = ChangeReader(daemon.database)
    assert await reader.read() == []
    assert await reader.read() == []
    new, _ = await daemon.jobs.add(_new())
    assert await reader.read() == [Change("job", new.id, "queued", "a")]
    await anyio.sleep(0.002)  # times have whole milliseconds
    await daemon.jobs.request_cancel(old.id, reason="x")
    await daemon.agents.enable("a", is_enabled=False)
    await daemon.scheduler.pause("a/daily", is_paused=True)
    found = await reader.read()
    assert found == [
        Change("job", old.id, "cancelled", "a"),
        Change("agent", "a"),
        Change("schedule", "a/daily"),
    ]
    assert await reader.read() == []


async def test_a_late_transaction_is_not_missed(daemon: Daemon):
    """A change that is stamped slightly earlier than the last one read is still reported."""
    job, _ = await daemon.jobs.add(_new())
    late, _ = await daemon.jobs.add(_new())
    reader = ChangeReader(daemon.database)
    await reader.read()
    shown = await daemon.jobs.get(job.id)
    assert shown is not None
    base = round(shown.changed_at.timestamp() * 1000)
    for job_id, ms in ((job.id, base + 1500), (late.id, base + 1000)):
        statement = update(JOBS).where(JOBS.c.id == job_id).values(changed_ms=ms)
        await daemon.database.write(partial(Connection.execute, statement=statement))
        assert [each.id for each in await reader.read()] == [job_id]


async def test_more_changes_than_can_be_listed_are_a_reset(daemon: Daemon, monkeypatch: pytest.MonkeyPatch):
    """When more jobs change at once than can be listed, listeners are told to read everything again."""
    monkeypatch.setattr("ringfence.fleet.queries.changes._MAX_JOBS", 3)
    reader = ChangeReader(daemon.database)
    await reader.read()
    for _ in range(5):
        await daemon.jobs.add(_new())
    assert await reader.read() == [Change("reset")]


async def test_all_listeners_hear_of_a_change(daemon: Daemon):
    """Every listener receives a change; a listener that starts later receives only later ones."""
    await daemon.jobs.add(_new())
    feed = ChangeFeed(daemon.database)
    first, second = feed.listen(), feed.listen()
    assert [await anext(first), await anext(second)] == [None, None]
    job, _ = await daemon.jobs.add(_new())
    with anyio.fail_after(30):
        found = [await anext(first), await anext(second)]
    assert found == [Change("job", job.id, "queued", "a")] * 2
    for listener in (first, second):
        await listener.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
    late = feed.listen()
    assert await anext(late) is None
    last, _ = await daemon.jobs.add(_new())
    with anyio.fail_after(30):
        change = await anext(late)
    assert change is not None
    assert change.id == last.id

"""Due times of many schedules create their jobs in one transaction, with the same result as one after another."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest

from ringfence.fleet.daemon.due_jobs import DueJobs, fire_in
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import QueueFull
from ringfence.fleet.store.job import NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.schedules import ScheduleStates
from ringfence.fleet.submission import Submission
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    made = Database(f"sqlite:///{tmp_path}/crew.db")
    made.create_tables()
    yield made
    made.close()


def due(
    agent: str,
    schedule: str,
    *slots: str,
    overlap: Literal["skip", "queue", "replace"] = "queue",
    most: int | None = None,
) -> DueJobs:
    """Return the due jobs of a schedule."""
    jobs = tuple(
        NewJob(
            agent,
            "schedule",
            "Do it.",
            trigger_name=schedule,
            dedupe_key=f"{agent}/{schedule}/{slot}",
            configuration="{}",
            most_queued=most,
        )
        for slot in slots
    )
    return DueJobs(agent, schedule, AT, jobs, overlap)


async def fired(database: Database, *slots: DueJobs) -> list[list[Submission] | Exception]:
    """Fire these due times; return the results."""
    return await database.write(lambda connection: fire_in(connection, slots))


async def test_all_are_entered_with_what_is_beside_them(database: Database):
    """Each due time creates its job with prompt and configuration, and advances its schedule."""
    answers = await fired(database, due("one", "often", "1", "2"), due("two", "often", "1"))
    jobs = Jobs(database)
    entered = [each for answer in answers if isinstance(answer, list) for each in answer]
    assert [each.job.agent for each in entered if each.job] == ["one", "one", "two"]
    for each in entered:
        assert each.is_new
        assert each.job is not None
        assert await jobs.get(each.job.id) == each.job
        assert await jobs.blob(each.job.id, "prompt") == b"Do it."
        assert await jobs.blob(each.job.id, "configuration") == b"{}"
    states = await ScheduleStates(database).all()
    assert {key: state.last_due for key, state in states.items()} == {
        ("one", "often"): AT,
        ("two", "often"): AT,
    }


async def test_what_is_there_is_not_entered_again(database: Database):
    """A due time that is fired again finds its job."""
    (first,) = await fired(database, due("one", "often", "1"))
    (again,) = await fired(database, due("one", "often", "1"))
    assert isinstance(first, list)
    assert isinstance(again, list)
    assert again[0].job == first[0].job
    assert not again[0].is_new
    assert len(await Jobs(database).list()) == 1


@pytest.mark.parametrize("at_once", [True, False], ids=["in-one-go", "one-after-another"])
async def test_overlap_is_kept_within_one_go(database: Database, at_once: bool):
    """The overlap policy applies to a schedule's live jobs, whether they were created before or in the same batch."""
    asked = [
        due("one", "skips", "1", "2", overlap="skip"),
        due("one", "replaces", "1", "2", overlap="replace"),
        due("one", "queues", "1", "2"),
    ]
    if not at_once:
        alone = [replace(each, jobs=(job,)) for each in asked for job in each.jobs]
        flat = [one for each in alone for one in await fired(database, each)]
        answers = [[*a, *b] for a, b in zip(flat[::2], flat[1::2], strict=True)]  # type: ignore[misc]
    else:
        answers = await fired(database, *asked)  # type: ignore[assignment]
    skips, replaces, queues = answers
    assert [each.is_new for each in skips] == [True, False]
    assert skips[0].job is not None
    assert skips[0].job.id in skips[1].reason
    assert [each.is_new for each in replaces] == [True, True]
    assert replaces[1].replaced == (replaces[0].job,)
    assert replaces[0].job is not None
    old = await Jobs(database).get(replaces[0].job.id)
    assert old is not None
    assert old.state is JobState.CANCELLED
    assert [each.is_new for each in queues] == [True, True]
    assert len(await Jobs(database).list()) == 5


async def test_a_full_queue_holds_back_its_own_agent_alone(database: Database):
    """A schedule whose jobs do not all fit its agent's queue creates none and does not advance; others still do."""
    one, two, other = await fired(
        database,
        due("one", "a", "1", most=2),
        due("one", "b", "1", "2", most=2),
        due("two", "a", "1", most=1),
    )
    assert isinstance(one, list)
    assert isinstance(two, QueueFull)
    assert isinstance(other, list)
    assert len(await Jobs(database).list()) == 2
    assert set(await ScheduleStates(database).all()) == {("one", "a"), ("two", "a")}

"""Creating a job while the last one of the same schedule or trigger is live: the overlap policies."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.postgres import Cluster, cluster

from ringfence.errors import InfrastructureFault
from ringfence.fleet.config.loader import load_fleet
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.deliveries import remove_old_deliveries
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.submission import JobRequest, Submission, new_job, submit, submit_in
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres for these tests alone."""
    with cluster() as running:
        yield running


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """An empty database; the user has no configuration file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = Database(f"sqlite:///{tmp_path}/crew.db")
    made.create_tables()
    yield made
    made.close()


async def _submit(
    database: Database,
    folder: Path,
    overlap: Literal["skip", "queue", "replace"],
    *,
    slot: str,
    name: str = "nightly",
    agent_says: str = "prompt: x",
) -> Submission:
    file = folder / "ringfence.yaml"
    file.write_text(f"agents: {{a: {{{agent_says}}}}}\n")
    agent = load_fleet(file, environ={}).agents["a"]
    return await submit(database, JobRequest(agent, "schedule", name=name, dedupe_key=slot, overlap=overlap))


async def test_skip_leaves_the_new_one_out(database: Database, tmp_path: Path):
    """`skip` creates no job while one is live and names that job; after its end the next one is created."""
    first = await _submit(database, tmp_path, "skip", slot="1")
    second = await _submit(database, tmp_path, "skip", slot="2")
    assert first.job is not None
    assert (second.job, first.job.id in second.reason) == (None, True)
    await Jobs(database).end(first.job.id, JobState.SUCCEEDED, reason="")
    assert (await _submit(database, tmp_path, "skip", slot="3")).is_new


@pytest.mark.slow
@pytest.mark.parametrize("key", ["one for each", "one for all"])
@pytest.mark.parametrize("overlap", ["skip", "replace"])
async def test_many_at_once_leave_one(
    postgres: Cluster, tmp_path: Path, overlap: Literal["skip", "replace"], key: str
):
    """Concurrent requests leave one live job and all succeed, even where several processes write."""
    database = Database(postgres.make_database())
    database.create_tables()
    (tmp_path / "ringfence.yaml").write_text("agents: {a: {prompt: x}}\n")
    agent = load_fleet(tmp_path / "ringfence.yaml", environ={}).agents["a"]

    async def ask(number: int) -> None:
        own = str(number) if key == "one for each" else "same"
        await submit(database, JobRequest(agent, "webhook", name="hook", dedupe_key=own, overlap=overlap))

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(ask, number)
    live = [job for job in await Jobs(database).list() if not job.state.is_terminal]
    assert len(live) == 1
    database.close()


async def test_queue_has_it_wait(database: Database, tmp_path: Path):
    """`queue` creates both jobs and cancels none."""
    for slot in ("1", "2"):
        await _submit(database, tmp_path, "queue", slot=slot)
    assert [job.state for job in await Jobs(database).list()] == [JobState.QUEUED] * 2


async def test_replace_ends_the_old_one(database: Database, tmp_path: Path):
    """`replace` cancels the old job and names the new one; a repeated key cancels nothing."""
    first = await _submit(database, tmp_path, "replace", slot="1")
    second = await _submit(database, tmp_path, "replace", slot="2")
    again = await _submit(database, tmp_path, "replace", slot="2")
    assert first.job is not None
    assert second.job is not None
    old = await Jobs(database).get(first.job.id)
    new = await Jobs(database).get(second.job.id)
    assert old is not None
    assert new is not None
    assert (old.state, second.job.id in old.reason) == (JobState.CANCELLED, True)
    assert (new.state, again.is_new, again.replaced) == (JobState.QUEUED, False, ())


async def test_replace_does_both_or_neither(database: Database, tmp_path: Path):
    """`replace` creates and cancels in one transaction, so that a crash cannot leave the old job live."""
    first = await _submit(database, tmp_path, "replace", slot="1")
    assert first.job is not None
    agent = load_fleet(tmp_path / "ringfence.yaml", environ={}).agents["a"]
    new = new_job(JobRequest(agent, "schedule", name="nightly", dedupe_key="2"))
    await database.write(lambda connection: submit_in(connection, new, "replace"))
    old = await Jobs(database).get(first.job.id)
    assert old is not None
    assert old.state is JobState.CANCELLED


@pytest.mark.parametrize("overlap", ["skip", "replace"])
async def test_another_schedules_jobs_are_not_meant(
    database: Database, tmp_path: Path, overlap: Literal["skip", "replace"]
):
    """Overlap is between jobs of one schedule; those of another are not affected."""
    await _submit(database, tmp_path, overlap, slot="1")
    await _submit(database, tmp_path, overlap, slot="2", name="hourly")
    assert [job.state for job in await Jobs(database).list()] == [JobState.QUEUED] * 2


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_a_queue_has_an_end(database: Database, tmp_path: Path, overlap: Literal["skip", "queue"]):
    """A job beyond the agent's queue limit is refused with advice."""
    await _submit(database, tmp_path, overlap, slot="1", agent_says="prompt: x, queue: 1")
    with pytest.raises(InfrastructureFault, match=r"the maximum; try again later, .* raise its `queue`"):
        await _submit(database, tmp_path, overlap, slot="2", name="hourly", agent_says="prompt: x, queue: 1")


async def test_a_job_of_a_trigger_is_named_by_its_data(database: Database, tmp_path: Path):
    """The title of a job is its prompt's first line with the trigger's data; a prompt by hand is used as it is."""
    file = tmp_path / "ringfence.yaml"
    file.write_text("agents: {a: {prompt: x}}\n")
    agent = load_fleet(file, environ={}).agents["a"]
    prompt, payload = "Mend {{ payload.title }}\nsoon", {"title": "the roof"}
    entered = await submit(database, JobRequest(agent, "source", prompt=prompt, payload=payload))
    by_hand = await submit(database, JobRequest(agent, "manual", prompt=prompt))
    assert entered.job is not None
    assert by_hand.job is not None
    assert (entered.job.title, by_hand.job.title) == ("Mend the roof", "Mend {{ payload.title }}")


async def test_who_takes_the_place_of_another_needs_no_more_room(database: Database, tmp_path: Path):
    """`replace` works with a full queue, which does not grow."""
    for slot in ("1", "2", "3"):
        await _submit(database, tmp_path, "replace", slot=slot, agent_says="prompt: x, queue: 1")
    assert len(await Jobs(database).list(states=[JobState.QUEUED])) == 1


async def _deliver(database: Database, folder: Path, key: str = "webhook/a/push/hash") -> Submission:
    file = folder / "ringfence.yaml"
    file.write_text("agents: {a: {prompt: x}}\n")
    agent = load_fleet(file, environ={}).agents["a"]
    return await submit(database, JobRequest(agent, "webhook", name="push", dedupe_key=key))


async def test_a_delivery_creates_no_other_job_once_its_job_is_removed(database: Database, tmp_path: Path):
    """A delivery that is repeated after its job was removed is refused, with that job's id."""
    first = await _deliver(database, tmp_path)
    assert first.job is not None
    assert (await _deliver(database, tmp_path)).job == first.job
    await Jobs(database).end(first.job.id, JobState.SUCCEEDED, reason="")
    assert await Jobs(database).remove(first.job.id)
    again = await _deliver(database, tmp_path)
    assert (again.job, again.is_new, first.job.id in again.reason) == (None, False, True)
    assert (await _deliver(database, tmp_path, "webhook/a/push/other")).is_new


async def test_a_delivery_is_known_for_400_days(database: Database, tmp_path: Path):
    """A delivery is remembered for 400 days, longer than any sender repeats one."""
    first = await _deliver(database, tmp_path)
    assert first.job is not None
    now = datetime.now(UTC)
    assert await remove_old_deliveries(database, now + timedelta(days=399)) == 0
    await Jobs(database).end(first.job.id, JobState.SUCCEEDED, reason="")
    assert await Jobs(database).remove(first.job.id)
    assert await remove_old_deliveries(database, now + timedelta(days=401)) == 1
    assert (await _deliver(database, tmp_path)).is_new


@pytest.mark.slow
async def test_a_delivery_that_comes_many_times_at_once_is_one_job(postgres: Cluster, tmp_path: Path):
    """Concurrent copies of a delivery create one job, even where several processes write."""
    database = Database(postgres.make_database())
    database.create_tables()
    found: list[Submission] = []

    async def deliver() -> None:
        found.append(await submit(database, wanted))

    file = tmp_path / "ringfence.yaml"
    file.write_text("agents: {a: {prompt: x}}\n")
    agent = load_fleet(file, environ={}).agents["a"]
    wanted = JobRequest(agent, "webhook", name="push", dedupe_key="webhook/a/push/hash")
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(deliver)
    database.close()
    assert len({each.job.id for each in found if each.job is not None}) == 1
    assert sum(each.is_new for each in found) == 1

"""Admission: which jobs may start, whatever created them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import update

from ringfence.errors import UsageError
from ringfence.fleet.store.admission import (
    Admission,
    Admitted,
    AgentBounds,
    Bounds,
    Budget,
    Rate,
    WaitReasons,
)
from ringfence.fleet.store.attempts import AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.store.tables import AGENTS, WORKERS
from ringfence.fleet.store.workers import Workers
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NOON = DAY + timedelta(hours=12)


class Queue:
    """A database with jobs, and its admission."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def add(self, agent: str = "a", **changes: object) -> str:
        """Add a job; return its id."""
        job, _ = await Jobs(self.database).add(
            NewJob(**{"agent": agent, "trigger": "manual", "prompt": "p", **changes})  # type: ignore[arg-type]
        )
        return job.id

    async def admit(
        self,
        agents: Mapping[str, AgentBounds],
        *,
        at: datetime = NOON,
        concurrency: int = 100,
        day: Budget | None = None,
    ) -> Admitted:
        """Admit jobs; return those that start."""
        bounds = Bounds(agents, concurrency=concurrency, day=day or Budget())
        return await Admission(self.database).admit(bounds, now=at, day_began=DAY)

    async def end(self, job: str, **spent: float) -> None:
        """Run a job to its end."""
        attempt = await Attempts(self.database).begin(job, worker="w", host="h")
        assert attempt is not None
        result = AttemptResult(JobState.SUCCEEDED, spent=Usage(**spent))  # type: ignore[arg-type]
        await Attempts(self.database).end(attempt, result)


@pytest.fixture
def queue(database: Database) -> Queue:
    """An empty queue."""
    return Queue(database)


def ids(admitted: Admitted) -> list[str]:
    """Return the ids of the jobs that start."""
    return [job.id for job in admitted.jobs]


async def test_the_urgent_first_then_the_old(queue: Queue):
    """Jobs start by priority, then by age."""
    old = await queue.add()
    young = await queue.add()
    urgent = await queue.add(priority=5)
    started = ids(await queue.admit({"a": AgentBounds(concurrency=3)}))
    assert started == [urgent, old, young]


async def test_one_agent_does_not_hold_back_another(queue: Queue):
    """Jobs of an agent at its limit do not block others; the reason why they wait is given."""
    first = await queue.add("a", priority=9)
    await queue.add("a", priority=9)
    other = await queue.add("b")
    admitted = await queue.admit({"a": AgentBounds(), "b": AgentBounds()})
    assert ids(admitted) == [first, other]
    assert admitted.waiting.agents == {
        "a": "its limit of 1 concurrent job is reached",
        "b": "its limit of 1 concurrent job is reached",
    }


async def test_the_limit_of_the_fleet(queue: Queue):
    """No more jobs run at once than the fleet allows; the next starts when one ends."""
    agents = {name: AgentBounds() for name in "abc"}
    for name in agents:
        await queue.add(name)
    first = ids(await queue.admit(agents, concurrency=2))
    assert len(first) == 2
    assert ids(await queue.admit(agents, concurrency=2)) == []
    await queue.end(first[0])
    assert len(ids(await queue.admit(agents, concurrency=2))) == 1


async def test_one_at_a_time_on_a_workspace(queue: Queue):
    """Jobs of different agents on one workspace run one after another; jobs without a workspace do not wait."""
    agents = {name: AgentBounds(concurrency=9) for name in "ab"}
    one = await queue.add("a", workspace="/w")
    two = await queue.add("b", workspace="/w")
    free = [await queue.add("a"), await queue.add("b")]
    started = ids(await queue.admit(agents))
    assert len(set(started) & {one, two}) == 1
    assert set(free) <= set(started)


async def test_a_workspace_is_held_until_its_job_has_ended(queue: Queue):
    """A running job keeps its workspace to itself, though it was admitted in an earlier round."""
    agents = {name: AgentBounds(concurrency=9) for name in "ab"}
    one = await queue.add("a", workspace="/w")
    assert ids(await queue.admit(agents)) == [one]
    two = await queue.add("b", workspace="/w")
    assert ids(await queue.admit(agents)) == []
    await queue.end(one)
    assert ids(await queue.admit(agents)) == [two]


async def test_a_rate(queue: Queue):
    """No window has more starts than the rate allows, and the time of the next start is known."""
    agents = {"a": AgentBounds(concurrency=9, rate=Rate(2, 60))}
    for _ in range(3):
        await queue.add()
    assert len(ids(await queue.admit(agents))) == 2
    waiting = await queue.admit(agents, at=NOON + timedelta(seconds=30))
    assert (waiting.jobs, waiting.next_at) == ([], NOON + timedelta(seconds=60))
    assert waiting.waiting.agents["a"] == "its limit of 2 starts in 1m is reached"
    assert len(ids(await queue.admit(agents, at=NOON + timedelta(seconds=61)))) == 1


async def test_side_by_side_within_a_budget(queue: Queue):
    """Each starting job reserves what it may spend, so that together they cannot exceed the day's budget."""
    agents = {"a": AgentBounds(concurrency=9, job=Budget(cost_usd=4), day=Budget(cost_usd=10))}
    for _ in range(4):
        await queue.add()
    admitted = await queue.admit(agents)
    assert [job.allowed_usd for job in admitted.jobs] == [4, 4, 2]
    assert "budget for the day" in admitted.waiting.agents["a"]
    assert admitted.next_at == DAY + timedelta(days=1)
    assert ids(await queue.admit(agents)) == []


async def test_what_was_set_aside_and_not_spent_comes_back(queue: Queue):
    """When a job ends, the unspent part of its reservation returns to the day's budget."""
    agents = {"a": AgentBounds(concurrency=9, job=Budget(tokens=100), day=Budget(tokens=100))}
    await queue.add()
    await queue.add()
    first = await queue.admit(agents)
    assert [job.allowed_tokens for job in first.jobs] == [100]
    await queue.end(first.jobs[0].id, tokens=30)
    # The end is dated by the real clock, so the day must have begun before it.
    assert [job.allowed_tokens for job in (await queue.admit(agents)).jobs] == [70]


@pytest.mark.parametrize(
    ("day", "said"),
    [
        (Budget(tokens=100), "(100 tokens)"),
        (Budget(cost_usd=2.5), "($2.50)"),
        (Budget(tokens=100, cost_usd=99), "(100 tokens)"),
        (Budget(tokens=100, cost_usd=2.5), "(100 tokens, $2.50)"),
    ],
    ids=["tokens", "dollars", "one-of-both", "both"],
)
async def test_what_is_used_up_is_told_with_its_end(queue: Queue, day: Budget, said: str):
    """The reason names the used-up budget and the start of the next day, for an agent as for the fleet."""
    bounds = AgentBounds(concurrency=9, job=Budget(tokens=100, cost_usd=2.5))
    await queue.add()
    await queue.add()
    until = f"; the next day begins {DAY + timedelta(days=1):%Y-%m-%d} 00:00 UTC"
    of_all = (await queue.admit({"a": bounds}, day=day)).waiting.fleet
    assert of_all == f"the fleet's budget for the day {said} is spent, or reserved for running jobs{until}"
    own = (await queue.admit({"a": replace(bounds, day=day)})).waiting.agents["a"]
    assert own == f"its budget for the day {said} is spent, or reserved for running jobs{until}"


async def test_a_day_on_which_the_clock_changes_ends_at_midnight(queue: Queue):
    """The day's budget ends at local midnight: in Berlin the 29th of March 2026 has 23 hours."""
    berlin = datetime(2026, 3, 29, tzinfo=ZoneInfo("Europe/Berlin"))
    bounds = Bounds({"a": AgentBounds(concurrency=9, day=Budget(tokens=1))})
    await queue.add()
    await queue.add()
    noon = datetime(2026, 3, 29, 12, tzinfo=UTC)
    await Admission(queue.database).admit(bounds, now=noon, day_began=berlin)
    waiting = await Admission(queue.database).admit(bounds, now=noon, day_began=berlin)
    assert waiting.waiting.agents["a"].endswith("the next day begins 2026-03-29 22:00 UTC")


async def test_the_fleets_budget_is_everybodys(queue: Queue):
    """All agents share the fleet's budget for the day."""
    agents = {name: AgentBounds(job=Budget(cost_usd=3)) for name in "ab"}
    await queue.add("a")
    await queue.add("b")
    admitted = await queue.admit(agents, day=Budget(cost_usd=5))
    assert [job.allowed_usd for job in admitted.jobs] == [3, 2]


async def test_a_retry_has_what_its_job_has_left(queue: Queue):
    """A retry may spend what the first attempt left of the job's own budget."""
    agents = {"a": AgentBounds(job=Budget(tokens=100))}
    job = await queue.add()
    await queue.admit(agents)
    attempt = await Attempts(queue.database).begin(job, worker="w", host="h")
    assert attempt is not None
    lost = AttemptResult(JobState.INFRASTRUCTURE, spent=Usage(tokens=60))
    await Attempts(queue.database).end(attempt, lost, retry_at=NOON - timedelta(hours=1))
    assert [each.allowed_tokens for each in (await queue.admit(agents)).jobs] == [40]


async def test_an_attempt_after_a_workers_death_has_the_rest(queue: Queue):
    """An attempt that follows a worker's death may spend what the lost attempts left of the job's reservation."""
    agents = {"a": AgentBounds(job=Budget(tokens=100, cost_usd=2))}
    job = await queue.add()
    await queue.admit(agents)
    attempts = Attempts(queue.database)
    for usage in (Usage(30, 0.5), Usage(50, 1.75), Usage()):
        attempt = await attempts.begin(job, worker="w", host="h")
        assert attempt is not None
        await attempts.report(attempt, usage)
    found = await Jobs(queue.database).get(job)
    assert found is not None
    assert (found.allowed_tokens, found.allowed_usd) == (20, 0.0)


async def test_unknown_and_disabled_agents_wait(queue: Queue):
    """Jobs of an agent that is disabled, or no longer configured, stay queued."""
    await queue.add("gone")
    await queue.add("off")
    await queue.database.write(lambda c: c.execute(AGENTS.insert().values(name="off", is_enabled=False)))
    admitted = await queue.admit({"off": AgentBounds()})
    assert admitted.jobs == []
    assert admitted.waiting.agents == {"off": "the agent is disabled"}


async def test_agents_of_equal_priority_share_the_fleet(queue: Queue):
    """Of agents with equal priority the one with fewer running jobs comes first; each agent's jobs start by age."""
    many = [await queue.add("a") for _ in range(6)]
    few = [await queue.add("b") for _ in range(3)]
    agents = {name: AgentBounds(concurrency=9) for name in "ab"}
    assert ids(await queue.admit(agents, concurrency=4)) == [many[0], few[0], many[1], few[1]]
    await queue.end(many[0])
    await queue.end(many[1])
    assert ids(await queue.admit(agents, concurrency=4)) == [many[2], many[3]]


async def test_a_day_s_budget_is_not_given_back_by_retention(queue: Queue):
    """What was spent today still counts after the jobs that spent it are removed."""
    budget = {"a": AgentBounds(day=Budget(tokens=100))}
    job = await queue.add()
    await queue.admit(budget)
    await queue.end(job, tokens=100)
    assert await Jobs(queue.database).remove_ended([job]) == [job]
    await queue.add()
    admitted = await queue.admit(budget)
    assert ids(admitted) == []
    assert "its budget for the day (100 tokens) is spent" in admitted.waiting.agents["a"]


async def test_spend_counts_on_the_day_on_which_it_was_reported(queue: Queue):
    """A job that ran over midnight uses of each day's budget only what it spent on that day."""
    budget = {"a": AgentBounds(day=Budget(tokens=100))}
    job = await queue.add()
    await queue.admit(budget)
    await queue.end(job, tokens=100)
    await queue.add()
    bounds = Bounds(budget)
    tomorrow = DAY + timedelta(days=1)
    admitted = await Admission(queue.database).admit(
        bounds, now=tomorrow + timedelta(hours=1), day_began=tomorrow
    )
    assert len(ids(admitted)) == 1


async def _register(queue: Queue, name: str, **changes: object) -> None:
    """Register a worker with a capacity of two jobs."""
    values = {"host": "h", "pid": 1, "version": "1", "labels": (), "capacity": 2, **changes}
    await Workers(queue.database).register(name, **values)  # type: ignore[arg-type]


async def _admit_with_workers(queue: Queue) -> Admitted:
    bounds = Bounds({"a": AgentBounds(concurrency=9)}, needs_workers=True)
    return await Admission(queue.database).admit(bounds, now=datetime.now(UTC), day_began=DAY)


async def test_without_a_worker_nothing_starts(queue: Queue):
    """Without a worker no job starts, and the reason is given."""
    job = await queue.add()
    admitted = await _admit_with_workers(queue)
    assert (ids(admitted), admitted.waiting) == ([], WaitReasons(fleet="no worker is connected"))
    await _register(queue, "w")
    assert ids(await _admit_with_workers(queue)) == [job]


async def test_no_more_jobs_start_than_workers_have_room_for(queue: Queue):
    """No more jobs start than the workers have capacity for, whatever the fleet allows."""
    await _register(queue, "w")
    jobs = [await queue.add() for _ in range(3)]
    admitted = await _admit_with_workers(queue)
    assert ids(admitted) == jobs[:2]
    assert admitted.waiting.fleet == "the workers' limit of 2 concurrent jobs is reached"


async def test_a_job_waits_for_a_worker_with_its_label(queue: Queue):
    """A job that waits for a labelled worker blocks no other; a machine's name is a label of its workers."""
    await _register(queue, "w", labels=["gpu"], host="one", capacity=9)
    missing = await queue.add(placement="arm")
    found = [await queue.add(placement="gpu"), await queue.add(placement="one"), await queue.add()]
    admitted = await _admit_with_workers(queue)
    assert ids(admitted) == found
    assert admitted.waiting.labels["arm"] == "no worker with the label 'arm' takes jobs"
    await _register(queue, "v", labels=["arm"])
    assert ids(await _admit_with_workers(queue)) == [missing]


async def test_workers_that_drain_take_no_more_jobs(queue: Queue):
    """A draining worker takes no jobs, and its running ones use no capacity of others; it may take jobs again later."""
    await _register(queue, "w")
    job = await queue.add()
    assert ids(await _admit_with_workers(queue)) == [job]
    assert await Attempts(queue.database).begin(job, worker="w", host="h")
    await Workers(queue.database).drain("h", is_draining=True)
    assert not await Workers(queue.database).refresh("w")
    waiting = await queue.add()
    admitted = await _admit_with_workers(queue)
    assert (ids(admitted), "all workers are draining" in (admitted.waiting.fleet or "")) == ([], True)
    await _register(queue, "v", host="other")
    assert ids(await _admit_with_workers(queue)) == [waiting]
    assert (
        await Attempts(queue.database).begin(waiting, worker="w", host="h") is None
    )  # it is not up to date yet
    assert ids(await _admit_with_workers(queue)) == [waiting]
    assert await Attempts(queue.database).begin(waiting, worker="v", host="other")
    await Workers(queue.database).drain("w", is_draining=False)
    assert await Workers(queue.database).refresh("w")


async def test_only_dead_workers_are_removed(queue: Queue):
    """Removing a worker that is alive or unknown is refused with its name."""
    await _register(queue, "w")
    for reference, problem in (("w", "is alive"), ("x", "there is no worker or machine 'x'")):
        with pytest.raises(UsageError, match=problem):
            await Workers(queue.database).remove(reference)
    await queue.database.write(lambda connection: connection.execute(update(WORKERS).values(seen_ms=1)))
    assert [worker.id for worker in await Workers(queue.database).remove("w")] == ["w"]
    assert await Workers(queue.database).all() == []

"""Jobs in the database: created once, with fenced attempts, and ended once."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import update
from tests.cases import examples

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import QueueFull
from ringfence.fleet.store.job import Job, NewJob
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.store.tables import ATTEMPTS
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
BOUNDS = Bounds({"mender": AgentBounds(concurrency=100)}, concurrency=100)


def new(**changes: object) -> NewJob:
    """Return a new job of the agent `mender`."""
    return NewJob(**{"agent": "mender", "trigger": "manual", "prompt": "mend it", **changes})  # type: ignore[arg-type]


async def started(database: Database, **changes: object) -> Job:
    """Add a job and admit it."""
    job, _ = await Jobs(database).add(new(**changes))
    await Admission(database).admit(BOUNDS, now=datetime.now(UTC), day_began=NOW)
    return job


async def test_the_same_trigger_twice_is_one_job(database: Database):
    """A deduplication key creates one job; later requests with it receive that job."""
    jobs = Jobs(database)
    first, is_new = await jobs.add(new(dedupe_key="slot-1"))
    again, is_new_again = await jobs.add(new(dedupe_key="slot-1", prompt="another"))
    assert (is_new, is_new_again, again.id) == (True, False, first.id)
    assert await jobs.blob(first.id, "prompt") == b"mend it"


@pytest.mark.parametrize("written", ["\ud800", "\0"])
async def test_no_reason_keeps_a_job_from_its_end(database: Database, written: str):
    """Characters in an agent's reason that a database does not accept are replaced."""
    job = await started(database)
    attempt = await Attempts(database).begin(job.id, worker="w", host="h")
    assert attempt is not None
    ended = await Attempts(database).end(attempt, AttemptResult(JobState.FAILED, f"<{written}>"))
    assert ended is not None
    assert (ended.state, ended.reason) == (JobState.FAILED, "<\ufffd>")


async def test_a_full_queue_takes_no_more(database: Database):
    """A job beyond its agent's queue limit is refused; a known key and other agents are not affected."""
    jobs = Jobs(database)
    first, _ = await jobs.add(new(dedupe_key="k", most_queued=2))
    await jobs.add(new(most_queued=2))
    with pytest.raises(QueueFull, match="agent 'mender' has 2 queued jobs, the maximum"):
        await jobs.add(new(most_queued=2))
    assert (await jobs.add(new(dedupe_key="k", most_queued=2)))[0].id == first.id
    await jobs.add(new(agent="other", most_queued=2))
    await jobs.request_cancel(first.id, reason="x")
    await jobs.add(new(most_queued=2))
    assert len(await jobs.list(agent="mender", states=[JobState.QUEUED])) == 2


async def test_a_full_queue_stops_nothing_that_follows(database: Database):
    """A follow-up job whose agent's queue is full is left out and reported; the others are created."""
    jobs = Jobs(database)
    ended, _ = await jobs.add(new())
    await jobs.end(ended.id, JobState.SUCCEEDED, reason="")
    follow = [
        new(agent="slow", most_queued=1),
        new(agent="slow", most_queued=1),
        new(agent="quick", most_queued=1),
    ]
    told: list[tuple[str, str]] = []
    looked = await jobs.follow(lambda _job: follow, left_out=lambda job, why: told.append((job.id, str(why))))
    assert (looked, await jobs.follow(lambda _job: follow)) == (1, 0)
    assert sorted(job.agent for job in await jobs.list(states=[JobState.QUEUED])) == ["quick", "slow"]
    assert [(job, "agent 'slow'" in why) for job, why in told] == [(ended.id, True)]


@pytest.mark.parametrize("was", ["queued", "starting", "running"])
async def test_a_job_that_ends_outside_an_attempt_is_finished(database: Database, was: str):
    """A job that is cancelled in the queue, or lost by its workflow, is finished once, as a worker would do it."""
    jobs = Jobs(database)
    if was == "queued":
        job, _ = await jobs.add(new())
        await jobs.request_cancel(job.id, reason="by hand")
    else:
        job = replace(await started(database), admissions=1)
        if was == "running":
            await Attempts(database).begin(job.id, worker="w", host="h")
        assert await jobs.end_orphaned(job.id, workflow=job.workflow_id, reason="lost")
    finished: list[str] = []
    for _ in range(2):
        await jobs.follow(
            lambda _job: [], finish=lambda _connection, ended: finished.append(ended.workflow_id)
        )
    assert finished == [f"{job.id}.{job.admissions + 1}"]


async def test_many_at_once_enter_one(database: Database):
    """Of many concurrent requests with one key, one creates the job."""
    jobs = Jobs(database)
    found: list[tuple[Job, bool]] = []

    async def submit() -> None:
        found.append(await jobs.add(new(dedupe_key="k")))

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(submit)
    assert len({job.id for job, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


async def test_a_fenced_attempt_changes_nothing(database: Database):
    """Reports of an attempt are refused once a later attempt has begun."""
    attempts = Attempts(database)
    job = await started(database)
    old = await attempts.begin(job.id, worker="a", host="h")
    young = await attempts.begin(job.id, worker="b", host="h")
    assert old is not None
    assert young is not None
    assert await attempts.end(old, AttemptResult(JobState.SUCCEEDED)) is None
    assert not await attempts.report(old, Usage(tokens=5))
    ended = await attempts.end(young, AttemptResult(JobState.FAILED, reason="no"))
    assert ended is not None
    assert (ended.state, ended.attempt, ended.reason) == (JobState.FAILED, 2, "no")


async def test_an_attempt_that_has_ended_changes_nothing(database: Database):
    """A job keeps its end, whatever is reported about its attempt later."""
    attempts = Attempts(database)
    job = await started(database)
    attempt = await attempts.begin(job.id, worker="a", host="h")
    assert attempt is not None
    assert await attempts.end(attempt, AttemptResult(JobState.FAILED, reason="no")) is not None
    assert await attempts.end(attempt, AttemptResult(JobState.SUCCEEDED)) is None
    assert not await attempts.report(attempt, Usage(tokens=5))
    (kept,) = await Jobs(database).list()
    assert (kept.state, kept.reason, kept.tokens) == (JobState.FAILED, "no", 0)


async def test_what_all_attempts_used_is_the_jobs(database: Database):
    """A job's tokens and cost are the sum over its attempts, including interrupted ones."""
    attempts = Attempts(database)
    job = await started(database)
    first = await attempts.begin(job.id, worker="a", host="h")
    assert first is not None
    assert await attempts.report(first, Usage(tokens=10, cost_usd=0.5))
    second = await attempts.begin(job.id, worker="b", host="h")
    assert second is not None
    ended = await attempts.end(
        second, AttemptResult(JobState.UNVERIFIED, spent=Usage(tokens=3, cost_usd=0.25))
    )
    assert ended is not None
    assert (ended.tokens, ended.cost_usd) == (13, 0.75)


async def test_cancelled_while_it_runs(database: Database):
    """A job whose cancellation was requested ends as cancelled, unless its attempt succeeded."""
    jobs, attempts = Jobs(database), Attempts(database)
    for said, kept in ((JobState.FAILED, JobState.CANCELLED), (JobState.SUCCEEDED, JobState.SUCCEEDED)):
        job = await started(database)
        attempt = await attempts.begin(job.id, worker="a", host="h")
        assert attempt is not None
        assert (await jobs.request_cancel(job.id, reason="by hand")).state is JobState.RUNNING
        assert not await attempts.report(attempt, Usage())
        ended = await attempts.end(attempt, AttemptResult(said), retry_at=NOW + timedelta(hours=1))
        assert ended is not None
        assert ended.state is kept


async def test_attempts_of_an_earlier_version_count_as_before(database: Database):
    """Attempts that were stored without `is_counted` count, unless their worker was stopped or they asked a question."""
    job = await started(database)
    for state, reason in (
        ("interrupted", "its worker was stopped"),
        ("blocked", ""),
        ("interrupted", "died"),
    ):
        attempt = await Attempts(database).begin(job.id, worker="w", host="h")
        assert attempt is not None
        changed = update(ATTEMPTS).where(ATTEMPTS.c.number == attempt.number)
        values = changed.values(state=state, reason=reason, ended_ms=1)
        await database.write(lambda connection, values=values: connection.execute(values))  # type: ignore[misc]
    await database.write(
        lambda connection: connection.exec_driver_sql("ALTER TABLE fleet_attempts DROP COLUMN is_counted")
    )
    database.create_tables()
    attempt = await Attempts(database).begin(job.id, worker="w", host="h")
    assert attempt is not None
    assert (attempt.number, attempt.counted_number) == (4, 2)


async def test_who_cancels_first_is_told_as_the_reason(database: Database):
    """A second cancellation does not replace the reason of the first."""
    jobs, attempts = Jobs(database), Attempts(database)
    job = await started(database)
    attempt = await attempts.begin(job.id, worker="a", host="h")
    assert attempt is not None
    for reason in ("by hand", "replaced by job x"):
        await jobs.request_cancel(job.id, reason=reason)
    ended = await attempts.end(attempt, AttemptResult(JobState.FAILED))
    assert ended is not None
    assert ended.reason == "by hand"


async def test_cancelled_before_it_ran(database: Database):
    """A queued job is cancelled at once, and can then be neither begun nor cancelled again."""
    jobs = Jobs(database)
    job, _ = await jobs.add(new())
    assert (await jobs.request_cancel(job.id, reason="by hand")).state is JobState.CANCELLED
    assert await Attempts(database).begin(job.id, worker="a", host="h") is None
    with pytest.raises(UsageError, match="has ended: cancelled"):
        await jobs.request_cancel(job.id, reason="again")


async def test_cancelled_before_a_worker_began_it(database: Database):
    """A job that is cancelled after its admission ends at once, and is not begun."""
    job = await started(database)
    assert (await Jobs(database).request_cancel(job.id, reason="by hand")).state is JobState.CANCELLED
    assert await Attempts(database).begin(job.id, worker="a", host="h") is None


async def test_a_job_whose_worker_was_stopped_is_queued_again(database: Database):
    """The job of a stopped worker is queued again without losing an attempt; its old workflow cannot begin it again."""
    attempts, jobs = Attempts(database), Jobs(database)
    job = await jobs.get((await started(database)).id)
    assert job is not None
    attempt = await attempts.begin(job.id, worker="a", host="h", workflow_id=job.workflow_id)
    assert attempt is not None
    await attempts.leave(attempt)
    queued = await jobs.get(job.id)
    assert queued is not None
    assert (queued.state, queued.worker) == (JobState.QUEUED, None)
    await Admission(database).admit(BOUNDS, now=datetime.now(UTC), day_began=NOW)
    assert await attempts.begin(job.id, worker="b", host="h", workflow_id=job.workflow_id) is None
    admitted = await jobs.get(job.id)
    assert admitted is not None
    again = await attempts.begin(job.id, worker="b", host="h", workflow_id=admitted.workflow_id)
    assert again is not None
    assert (again.number, again.counted_number) == (2, 1)


async def test_a_job_that_is_to_be_cancelled_is_not_queued_again(database: Database):
    """A worker that stops leaves a job with a requested cancellation to the next worker, which ends it."""
    attempts, jobs = Attempts(database), Jobs(database)
    job = await started(database)
    attempt = await attempts.begin(job.id, worker="a", host="h")
    assert attempt is not None
    await jobs.request_cancel(job.id, reason="by hand")
    await attempts.leave(attempt)
    found = await jobs.get(job.id)
    assert found is not None
    assert (found.state, found.reason) == (JobState.RUNNING, "by hand")


async def test_a_retry_waits_for_its_time(database: Database):
    """A retry is queued until its time."""
    attempts = Attempts(database)
    job = await started(database)
    attempt = await attempts.begin(job.id, worker="a", host="h")
    assert attempt is not None
    later = datetime.now(UTC) + timedelta(hours=1)
    back = await attempts.end(attempt, AttemptResult(JobState.INFRASTRUCTURE, reason="gone"), retry_at=later)
    assert back is not None
    assert back.state is JobState.QUEUED
    admission = Admission(database)
    early = await admission.admit(BOUNDS, now=later - timedelta(minutes=1), day_began=NOW)
    assert early.jobs == []
    assert early.next_at is not None
    assert abs((early.next_at - later).total_seconds()) < 0.01
    due = await admission.admit(BOUNDS, now=later + timedelta(seconds=1), day_began=NOW)
    assert [each.id for each in due.jobs] == [job.id]


async def test_found_by_the_end_of_its_id(database: Database):
    """The last digits of an id name a job; a reference that matches none is refused."""
    jobs = Jobs(database)
    job, _ = await jobs.add(new())
    assert (await jobs.resolve(job.id[-6:])).id == job.id
    with pytest.raises(UsageError, match="no job '%'"):
        await jobs.resolve("%")
    with pytest.raises(UsageError, match="no job ''"):
        await jobs.resolve("")


async def test_several_with_one_end(database: Database):
    """A reference that matches several jobs is refused."""
    jobs = Jobs(database)
    for _ in range(17):  # more than there are hexadecimal digits
        await jobs.add(new())
    endings = [job.id[-1] for job in await jobs.list()]
    shared = max(endings, key=endings.count)
    with pytest.raises(UsageError, match="several jobs end in"):
        await jobs.resolve(shared)


async def test_forgotten_only_after_its_end(database: Database):
    """A live job cannot be removed; an ended one is removed with all stored data."""
    jobs = Jobs(database)
    job, _ = await jobs.add(new())
    assert not await jobs.remove(job.id)
    await jobs.request_cancel(job.id, reason="by hand")
    assert await jobs.remove(job.id)
    assert await jobs.get(job.id) is None
    assert await jobs.blob(job.id, "prompt") is None


@contextmanager
def a_database() -> Iterator[Database]:
    """A database that exists while the context lasts."""
    with TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{folder}/crew.db")
        database.create_tables()
        yield database
        database.close()


@pytest.mark.slow
@given(st.text(max_size=200))
@settings(max_examples=examples(60))
async def test_prompts_come_back(text: str):
    """Any prompt is stored unchanged."""
    with a_database() as database:
        jobs = Jobs(database)
        job, _ = await jobs.add(new(prompt=text))
        kept = await jobs.blob(job.id, "prompt")
        assert kept is not None
        assert kept.decode("utf-8", "surrogateescape") == text


def test_a_database_that_cannot_be_had():
    """The error of an unusable database names it without its password, and the cause."""
    with pytest.raises(InfrastructureFault, match=r"//u:\*\*\*@127\.0\.0\.1:1/x.*cannot be used"):
        Database("postgresql://u:hidden-word@127.0.0.1:1/x").create_tables()
    with pytest.raises(UsageError, match="cannot be 'mysql'"):
        Database("mysql://x/y")
    with pytest.raises(UsageError, match="URL is invalid"):
        Database("hello")


class Life(RuleBasedStateMachine):
    """Workers, the daemon and a person act on jobs in any order."""

    jobs_known = Bundle("jobs_known")
    attempts_known = Bundle("attempts_known")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.database = self.stack.enter_context(a_database())
        self.ended: dict[str, JobState] = {}

    @rule(target=jobs_known, key=st.sampled_from([None, "x", "y"]))
    def submit(self, key: str | None) -> str:
        job, _ = anyio.run(Jobs(self.database).add, new(dedupe_key=key))
        return job.id

    @rule()
    def admit(self) -> None:
        async def act() -> None:
            await Admission(self.database).admit(BOUNDS, now=datetime.now(UTC), day_began=NOW)

        anyio.run(act)

    @rule(target=attempts_known, job=jobs_known, worker=st.sampled_from("ab"))
    def begin(self, job: str, worker: str) -> Attempt | None:
        async def act() -> Attempt | None:
            return await Attempts(self.database).begin(job, worker=worker, host="h")

        return anyio.run(act)

    @rule(
        attempt=attempts_known,
        state=st.sampled_from([s for s in JobState if s.is_terminal]),
        again=st.booleans(),
    )
    def end(self, attempt: Attempt | None, state: JobState, *, again: bool) -> None:
        if attempt is None:
            return

        async def act() -> Job | None:
            return await Attempts(self.database).end(
                attempt, AttemptResult(state), retry_at=datetime.now(UTC) if again else None
            )

        ended = anyio.run(act)
        assert ended is None or attempt.job not in self.ended
        assert ended is None or ended.attempt == attempt.number

    @rule(job=jobs_known)
    def cancel(self, job: str) -> None:
        async def act() -> None:
            await Jobs(self.database).request_cancel(job, reason="by hand")

        try:
            anyio.run(act)
        except UsageError:
            assert job in self.ended

    @invariant()
    def an_end_stays(self) -> None:
        """An ended job never changes its state, and has no open attempt."""
        for job in anyio.run(Jobs(self.database).list):
            if job.id in self.ended:
                assert job.state is self.ended[job.id]
            elif job.state.is_terminal:
                assert job.ended_at is not None
                self.ended[job.id] = job.state

    def teardown(self) -> None:
        self.stack.close()


@pytest.mark.slow
def test_one_end_whatever_happens():
    """In any order of actions by workers, daemon and people, a job ends once and stays ended."""
    run_state_machine_as_test(
        Life, settings=settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
    )

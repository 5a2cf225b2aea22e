"""Questions in the database: added when an attempt ends, answered once, closed by their deadline."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from tests.fleet.store.test_jobs import new, started

from ringfence.errors import PolicyRefused, UsageError
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds, Budget
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.grants import Grants
from ringfence.fleet.store.inbox import AlreadyAnswered, AskedQuestion, Entry, Inbox
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.store.tables import INBOX
from ringfence.job.question import Question
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
RULE = {"host": "api.example.com", "port": 443}


async def _began(database: Database, job: Job) -> Attempt:
    attempt = await Attempts(database).begin(job.id, worker="w", host="h")
    assert attempt is not None
    return attempt


async def _asked(
    database: Database,
    *,
    deadline_s: float = 60,
    spent: Usage = Usage(),  # noqa: B008 -- it is frozen
) -> tuple[Job, Entry]:
    """Return a job that waits, and its question."""
    job = await started(database)
    asked = AskedQuestion(Question("host", RULE, "why not"), deadline_s)
    result = AttemptResult(JobState.BLOCKED, "it asks", spent, asked)
    ended = await Attempts(database).end(await _began(database, job), result)
    assert ended is not None
    (entry,) = [each for each in await Inbox(database).list(is_open=True) if each.job == job.id]
    return ended, entry


async def _state(database: Database, job: Job) -> JobState:
    found = await Jobs(database).get(job.id)
    assert found is not None
    return found.state


async def test_a_waiting_job_holds_no_budget_and_its_attempt_has_ended(database: Database):
    """A waiting job's reservation is released; the job has not ended, and no worker can begin it."""
    job, entry = await _asked(database)
    assert (job.state, job.ended_at, job.allowed_tokens, job.allowed_usd) == (
        JobState.WAITING,
        None,
        None,
        None,
    )
    assert (entry.kind, entry.rule, entry.text, entry.answer) == ("host", RULE, "why not", None)
    assert not await Jobs(database).remove(job.id)
    assert await Attempts(database).begin(job.id, worker="w", host="h") is None


async def test_an_allowed_job_is_queued_with_its_grant(database: Database):
    """The next attempt of an allowed job has the run that asked, and the answer."""
    job, entry = await _asked(database)
    answered = await Inbox(database).answer(entry.id, "allow", by="ann", reply="go\0")
    assert (answered.answer, answered.scope, answered.answered_by) == ("allow", "run", "ann")
    assert await _state(database, job) is JobState.QUEUED
    (grant,), _ = await Grants(database).of_job(job)
    assert (grant.question, grant.run, grant.rule, grant.by, grant.reply) == (
        entry.id, entry.run_id, RULE, "ann", "go\ufffd",
    )  # fmt: skip
    assert await Grants(database).of_agents() == []
    await Admission(database).admit(
        Bounds({"mender": AgentBounds()}), now=datetime.now(UTC), day_began=datetime.now(UTC)
    )
    attempt = await _began(database, job)
    assert (attempt.number, attempt.counted_number) == (2, 1)
    (found,) = await Attempts(database).interrupted_runs(attempt, host="h")
    assert (found.id, found.has_asked) == (entry.run_id, True)
    assert await Attempts(database).interrupted_runs(attempt, host="another") == []


async def test_the_run_that_asked_is_found_behind_an_attempt_without_a_run(database: Database):
    """The runs of all earlier attempts of a job can be resumed, the newest first: the last one may have no record."""
    job, entry = await _asked(database)
    await Inbox(database).answer(entry.id, "allow", by="ann")
    bounds = Bounds({"mender": AgentBounds()})
    now = datetime.now(UTC)
    await Admission(database).admit(bounds, now=now, day_began=now)
    second = await _began(database, job)
    no_clone = AttemptResult(JobState.INFRASTRUCTURE, "the repository was not reached")
    await Attempts(database).end(second, no_clone, retry_at=now)
    await Admission(database).admit(bounds, now=datetime.now(UTC), day_began=now)
    third = await _began(database, job)
    found = await Attempts(database).interrupted_runs(third, host="h")
    assert [(run.id, run.has_asked) for run in found] == [(second.run_id, False), (entry.run_id, True)]


async def test_a_question_takes_one_answer(database: Database):
    """A second answer is refused with the name of who answered, and changes nothing."""
    job, entry = await _asked(database)
    await Inbox(database).answer(entry.id, "deny", by="ann")
    for by, decision in (("bob", "allow"), ("ann", "deny")):
        with pytest.raises(AlreadyAnswered, match="was denied by ann at "):
            await Inbox(database).answer(entry.id, decision, by=by)  # type: ignore[arg-type]
    ended = await Jobs(database).get(job.id)
    assert ended is not None
    assert (ended.state, ended.reason) == (JobState.BLOCKED, "denied by ann")
    assert await Grants(database).of_job(job) == ([], [])


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("host", '{"host": "127.0.0.1", "port": 80}'),
        ("host", '{"host": "169.254.169.254", "port": 80}'),
        ("host", '{"host": "*.com", "port": 443}'),
        ("tool", '{"tool": "Bash,Write(/etc/*)"}'),
        ("protect", '{"path": ".git/hooks"}'),
    ],
)
async def test_a_stored_rule_is_read_again_before_it_is_granted(database: Database, kind: str, rule: str):
    """A rule in the database is validated again before it is granted."""
    job, entry = await _asked(database)

    def act(connection: Any) -> None:
        connection.execute(update(INBOX).values(kind=kind, rule=rule))

    await database.write(act)
    with pytest.raises(PolicyRefused, match="cannot be granted"):
        await Inbox(database).answer(entry.id, "allow", by="ann", scope="agent")
    assert (await Inbox(database).get(entry.id)).asks == "for something that no answer can grant"
    assert await _state(database, job) is JobState.WAITING
    assert await Grants(database).of_agents() == []
    await Inbox(database).answer(entry.id, "deny", by="ann")


async def test_a_grant_for_an_agent_is_kept_once_and_can_be_revoked(database: Database):
    """A repeated grant for an agent is stored once, applies to no other agent, and can be revoked."""
    for _ in range(2):
        _, entry = await _asked(database)
        await Inbox(database).answer(entry.id, "allow", by="ann", scope="agent")
    (grant,) = await Grants(database).of_agents()
    assert (grant.agent, grant.kind, grant.rule) == ("mender", "host", RULE)
    assert await Grants(database).of_agents("other") == []
    assert await Grants(database).revoke(grant.id) == grant
    assert await Grants(database).of_agents() == []
    with pytest.raises(UsageError, match="there is no grant"):
        await Grants(database).revoke(grant.id)


async def test_the_deadline_closes_a_question(database: Database):
    """A question closes at its deadline, not before, and its job ends as blocked."""
    job, entry = await _asked(database, deadline_s=60)
    now = datetime.now(UTC)
    assert await Inbox(database).expire(now) == ()
    assert await Inbox(database).expire(now + timedelta(seconds=61)) == [job.id]
    assert await _state(database, job) is JobState.BLOCKED
    with pytest.raises(AlreadyAnswered, match="was expired"):
        await Inbox(database).answer(entry.id, "allow", by="ann")


async def test_a_job_that_is_cancelled_while_it_works_asks_nothing(database: Database):
    """A job that is cancelled while it runs asks no question."""
    job = await started(database)
    attempt = await _began(database, job)
    await Jobs(database).request_cancel(job.id, reason="by hand")
    asked = AskedQuestion(Question("host", RULE, ""), 60)
    ended = await Attempts(database).end(attempt, AttemptResult(JobState.BLOCKED, asked=asked))
    assert ended is not None
    assert (ended.state, await Inbox(database).list()) == (JobState.CANCELLED, [])


async def test_a_removed_job_takes_its_questions_with_it(database: Database):
    """Removing a job removes its questions."""
    job, entry = await _asked(database)
    await Inbox(database).answer(entry.id, "deny", by="ann")
    await Jobs(database).remove(job.id)
    with pytest.raises(UsageError, match="there is no question"):
        await Inbox(database).get(entry.id)


@pytest.mark.parametrize("scope", ["run", "agent"])
async def test_a_granted_limit_is_what_admission_goes_by(database: Database, scope: Any):
    """Admission uses a granted limit for the job, and with scope `agent` for the agent's later jobs."""
    job = await started(database)
    question = Question("budget", {"limit": "tokens", "to": 250}, "")
    attempt = await _began(database, job)
    asked = AskedQuestion(question, 60)
    result = AttemptResult(JobState.BLOCKED, spent=Usage(120, 0.0), asked=asked)
    await Attempts(database).end(attempt, result)
    (entry,) = await Inbox(database).list(is_open=True)
    await Inbox(database).answer(entry.id, "allow", by="ann", scope=scope)
    later = (await Jobs(database).add(new()))[0]
    bounds = Bounds({"mender": AgentBounds(concurrency=9, job=Budget(tokens=100))})
    now = datetime.now(UTC)
    admitted = await Admission(database).admit(bounds, now=now, day_began=now)
    allowed = {each.id: each.allowed_tokens for each in admitted.jobs}
    assert allowed == {job.id: 130, later.id: 100 if scope == "run" else 250}

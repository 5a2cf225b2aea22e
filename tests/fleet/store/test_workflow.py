"""The workflow of a job that starts again: what has ended is not executed twice."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import pytest
from tests.fleet.store.test_jobs import started

from ringfence.engine import Context, Json
from ringfence.fleet.config.model import RetrySettings
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.inbox import AskedQuestion, Inbox
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.worker.workflow import FollowUp, JobWorkflow
from ringfence.job.question import Question
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
_HOST = {"host": "api.example.com", "port": 443}


class _Steps(Context):
    """The steps of a workflow: those whose results are stored are not called again, and must come in the same order."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.results: list[tuple[str, Json]] = []
        self._next = 0

    def start_again(self, stored: int | None = None) -> Self:
        """Begin again at the first step; only the results of the first `stored` steps were stored, by default all."""
        self.results, self._next = self.results[:stored], 0
        return self

    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: object) -> Json:
        """Call it, or return the stored result."""
        if self._next == len(self.results):
            self.results.append((name, await function(*arguments)))
        known, result = self.results[self._next]
        assert known == name
        self._next += 1
        return result


class _Executor:
    """Ends each attempt with one result, and counts attempts and follow-ups."""

    def __init__(self, result: AttemptResult, *names: str) -> None:
        self.result = result
        self.attempts = 0
        self.names = names or ("hook",)
        self.followed: list[JobState] = []
        self.then: Callable[[], Awaitable[object]] | None = None

    async def retry_of(self, job: Job) -> RetrySettings:
        """None."""
        return RetrySettings()

    async def clean_up(self, attempt: Attempt) -> None:
        """Nothing."""

    async def run_attempt(
        self, job: Job, attempt: Attempt, alive: Callable[[Usage], Awaitable[bool]]
    ) -> AttemptResult:
        """Count it."""
        self.attempts += 1
        return self.result

    async def after(self, job: Job) -> Sequence[FollowUp]:
        """Follow-ups that always succeed."""

        async def act(_number: int) -> bool:
            self.followed.append(job.state)
            if self.then is not None:
                await self.then()
            return False

        return [FollowUp(name, 1, act) for name in self.names]

    def release(self, job_id: str) -> None:
        """Nothing."""


def _workflow(database: Database, executor: _Executor) -> JobWorkflow:
    return JobWorkflow(Jobs(database), Attempts(database), executor, worker=lambda: "w", host="h")


_ASKED = AskedQuestion(Question("host", _HOST, ""), 60)


@pytest.mark.parametrize(
    "result",
    [AttemptResult(JobState.SUCCEEDED), AttemptResult(JobState.BLOCKED, asked=_ASKED)],
    ids=["ended", "asked"],
)
async def test_a_workflow_that_starts_again_runs_the_follow_ups(database: Database, result: AttemptResult):
    """A workflow whose worker died after the attempt's end executes no second attempt, only the follow-ups."""
    job = await started(database)
    executor = _Executor(result)
    admitted = await Jobs(database).get(job.id)
    assert admitted is not None
    steps = _Steps(admitted.workflow_id)
    for _ in range(2):
        state = await _workflow(database, executor)(steps.start_again(stored=0), {"job": job.id})
    ended = await Jobs(database).get(job.id)
    assert ended is not None
    assert (state, executor.attempts, executor.followed) == (ended.state.value, 1, [ended.state] * 2)


async def test_an_earlier_workflow_of_a_job_does_nothing(database: Database):
    """A workflow of an earlier admission, which starts again after the job has ended, runs no follow-ups."""
    job = await started(database)
    executor = _Executor(AttemptResult(JobState.SUCCEEDED))
    admitted = await Jobs(database).get(job.id)
    assert admitted is not None
    await _workflow(database, executor)(_Steps(admitted.workflow_id), {"job": job.id})
    assert await _workflow(database, executor)(_Steps(f"{job.id}.0"), {"job": job.id}) is None
    assert (executor.attempts, executor.followed) == (1, [JobState.SUCCEEDED])


async def test_the_follow_ups_of_a_job_that_was_ended_for_its_worker_are_left_to_another_workflow(
    database: Database,
):
    """A job that was ended outside an attempt, since its worker was lost, has its follow-ups in a new workflow."""
    job = await started(database)
    executor = _Executor(AttemptResult(JobState.SUCCEEDED))
    await Jobs(database).end(job.id, JobState.INFRASTRUCTURE, reason="its worker was lost")
    ended = await Jobs(database).get(job.id)
    assert ended is not None
    assert await _workflow(database, executor)(_Steps(ended.workflow_id), {"job": job.id}) is None
    assert (executor.attempts, executor.followed) == (0, [])


async def test_messages_about_a_question_end_with_its_answer(database: Database):
    """Once a question is answered, no more is said about it: another workflow has the job."""
    job = await started(database)
    executor = _Executor(AttemptResult(JobState.BLOCKED, asked=_ASKED), "first", "second")
    admitted = await Jobs(database).get(job.id)
    assert admitted is not None

    async def answer() -> None:
        (entry,) = await Inbox(database).list(is_open=True)
        await Inbox(database).answer(entry.id, "allow", by="ann")

    executor.then = answer
    await _workflow(database, executor)(_Steps(admitted.workflow_id), {"job": job.id})
    assert executor.followed == [JobState.WAITING]


async def test_a_workflow_that_starts_again_has_the_follow_ups_of_the_first_time(database: Database):
    """If a job needs fewer follow-ups after a restart, the remaining ones of the first time are still executed."""
    job = await started(database)
    executor = _Executor(AttemptResult(JobState.SUCCEEDED), "on_inbox.1", "claim", "message")
    admitted = await Jobs(database).get(job.id)
    assert admitted is not None
    steps = _Steps(admitted.workflow_id)
    await _workflow(database, executor)(steps, {"job": job.id})
    executor.names = ("claim", "message")
    await _workflow(database, executor)(steps.start_again(stored=2), {"job": job.id})
    assert [name for name, _ in steps.results] == ["follow_ups", "on_inbox.1.1", "claim.1", "message.1"]

"""Defines the workflow of one admission of a job: an attempt, then the hooks and messages that follow its end.

When its worker dies, the workflow starts again: it makes a new attempt, which is counted, and first cleans up what the
dead worker left. A result is written only through its attempt: if two workers both believe that they have the job, only
the later one can write.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

import anyio

from ringfence.engine import Context, Json
from ringfence.errors import InfrastructureFault
from ringfence.fleet.config.model import RetrySettings
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage
from ringfence.frozen import frozen
from ringfence.job.state import JobState

_LEAVE_S = 5.0
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 600.0
JOB_WORKFLOW = "job"
"""The name by which workers know the workflow of a job."""


@frozen
class FollowUp:
    """An action after a job ended or asked a question, executed at least once, and retried while a retry may succeed."""

    name: str
    max_tries: int
    act: Callable[[int], Awaitable[bool]]
    """Receives the number of the try, starting at 1; returns whether the action is to be tried again."""


class AttemptExecutor(Protocol):
    """Executes attempts, in the worker that calls it."""

    def retry_of(self, job: Job) -> Awaitable[RetrySettings]:
        """The retry settings of a job, from its agent's configuration."""

    def clean_up(self, attempt: Attempt) -> Awaitable[None]:
        """Kill and remove what earlier attempts at the job left on this machine."""

    def run_attempt(
        self, job: Job, attempt: Attempt, alive: Callable[[Usage], Awaitable[bool]]
    ) -> Awaitable[AttemptResult]:
        """Run the agent to its end.

        Args:
            job: The job.
            attempt: The attempt; it names the run that holds the record.
            alive: To be called every second with the usage so far; False means that the attempt must stop, since
                the job is cancelled or another worker has it.
        """

    def after(self, job: Job) -> Awaitable[Sequence[FollowUp]]:
        """What is to be done after a job ended or asked a question: hooks and messages."""

    def release(self, job_id: str) -> None:
        """Release what was kept of a job for its follow-ups."""


class JobWorkflow:
    """The engine's workflow `job`.

    Args:
        jobs: The store of jobs.
        attempts: The store of attempts.
        attempt_executor: Executes the attempts.
        worker: Returns the executor's name.
        host: This machine's name.
        on_not_begun: Called when no attempt was begun, since the worker may be draining.
    """

    def __init__(
        self,
        jobs: Jobs,
        attempts: Attempts,
        attempt_executor: AttemptExecutor,
        *,
        worker: Callable[[], str],
        host: str,
        on_not_begun: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs = jobs
        self._attempts = attempts
        self._attempt_executor = attempt_executor
        self._worker = worker
        self._host = host
        self._on_not_begun = on_not_begun
        self._workflows: dict[str, str] = {}
        """The workflow that executes each job in this process, by job."""

    async def __call__(self, context: Context, argument: Json) -> Json:
        """Run one admission of a job to its end."""
        job_id = str(argument["job"])
        try:
            if argument.get("has_ended"):
                return await self._follow_up_only(context, job_id)
            return await self._run_to_end(context, job_id)
        finally:
            # The workflow of an earlier admission, left by another worker, may end while the current one runs.
            if self._workflows.get(job_id) == context.id:
                del self._workflows[job_id]
                self._attempt_executor.release(job_id)

    async def _run_to_end(self, context: Context, job_id: str) -> Json:
        """Execute an attempt at a job, and its follow-ups if the attempt ended the job or asked a question."""
        job = await self._attempt(job_id, context.id)
        if job is None:
            return None
        if _needs_follow_up(job):
            await self._follow_up(context, job)
        return job.state.value

    async def _follow_up_only(self, context: Context, job_id: str) -> Json:
        """Execute the follow-ups of a job that ended outside an attempt: denied, cancelled, or lost with its worker."""
        job = await self._jobs.get(job_id)
        if job is None:
            return None
        await self._follow_up(context, job)
        return job.state.value

    async def _follow_up(self, context: Context, job: Job) -> None:
        """Execute the follow-ups of a job as long as nothing has changed its state since."""
        self._workflows[job.id] = context.id
        follow_ups = await self._attempt_executor.after(job)
        if not follow_ups:
            return

        async def plan() -> Json:
            return [[follow_up.name, follow_up.max_tries] for follow_up in follow_ups]

        # When the workflow starts again, the job may need other follow-ups, as a person has applied its changes. The
        # steps stay those of the first time, since the engine finds their results by their order.
        for name, max_tries in await context.step("follow_ups", plan):
            needed = next((each for each in follow_ups if each.name == name), None)
            for number in range(1, max_tries + 1):
                if not await context.step(f"{name}.{number}", self._try, needed, job, number):
                    break
                if number < max_tries:
                    await context.sleep(pause_after(number))

    async def _try(self, follow_up: FollowUp | None, job: Job, number: int) -> bool:
        """Execute a follow-up if it is still needed; return whether it is to be tried again."""
        now = await self._jobs.get(job.id)
        # A question may have been answered meanwhile, and another worker may execute the job.
        is_current = now is not None and (now.state, now.workflow_id) == (job.state, job.workflow_id)
        return follow_up is not None and is_current and await follow_up.act(number)

    async def _attempt(self, job_id: str, workflow_id: str) -> Job | None:
        """Execute an attempt; return the job afterwards, or None if this workflow has nothing more to do.

        That is so if another workflow or worker has the job, if the worker drains, or if the job was cancelled. When the
        workflow starts again after the end of its attempt, nothing is executed, and the job is returned.
        """
        attempt = await self._attempts.begin(
            job_id, worker=self._worker(), host=self._host, workflow_id=workflow_id
        )
        if attempt is None:
            self._on_not_begun()
            return await self._resume_after_end(job_id, workflow_id)
        self._workflows[job_id] = workflow_id
        try:
            job = await self._jobs.get(job_id)
            return None if job is None else await self._execute(job, attempt)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LEAVE_S, shield=True), suppress(InfrastructureFault):
                await self._attempts.leave(attempt)
            raise

    async def _execute(self, job: Job, attempt: Attempt) -> Job | None:
        retry = await self._attempt_executor.retry_of(job)
        await self._attempt_executor.clean_up(attempt)
        if attempt.counted_number > retry.attempts:
            result = AttemptResult(
                JobState.INTERRUPTED, f"its worker died in each of {retry.attempts} attempts"
            )
        else:
            result = await self._attempt_executor.run_attempt(
                job, attempt, lambda spent: self._attempts.report(attempt, spent)
            )
        next_attempt_at = retry_at(retry, result.state, attempt.counted_number)
        ended = await self._attempts.end(attempt, result, retry_at=next_attempt_at)
        return ended or await self._read_end_of(attempt)

    async def _read_end_of(self, attempt: Attempt) -> Job | None:
        """The job, if this attempt did end it: the connection broke after the commit, before the reply."""
        job = await self._jobs.get(attempt.job)
        is_ours = job is not None and (job.attempt, job.worker) == (attempt.number, attempt.worker)
        return job if job is not None and is_ours and _needs_follow_up(job) else None

    async def _resume_after_end(self, job_id: str, workflow_id: str) -> Job | None:
        """The job, if an attempt of this workflow ended it or asked; a job that is to be cancelled is cancelled."""
        job = await self._jobs.get(job_id)
        if job is None or job.workflow_id != workflow_id:
            return None
        if job.is_cancel_asked and not job.state.is_terminal:
            await self._jobs.end(job.id, JobState.CANCELLED, reason=job.reason or "cancelled")
            return None
        # A job that ended outside an attempt has no worker. Another workflow runs its follow-ups.
        return job if job.worker is not None and _needs_follow_up(job) else None


def _needs_follow_up(job: Job) -> bool:
    return job.state.is_terminal or job.state is JobState.WAITING


def pause_after(number: int) -> float:
    """Seconds from try `number` of a follow-up to the next one."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (number - 1))


def retry_at(retry: RetrySettings, state: JobState, number: int) -> datetime | None:
    """When a job is tried again after its attempt `number` ended in `state`; None if it is not."""
    if state.value not in retry.on or number >= retry.attempts:
        return None
    pause_s = min(retry.most_backoff, retry.backoff * 2 ** (number - 1))
    return datetime.now(UTC) + timedelta(seconds=pause_s)

"""Executes attempts at jobs: runs the agent, and stops it when the job is cancelled or another worker has it."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ringfence.errors import RecordError, RingfenceError, UsageError
from ringfence.events import QuestionAnswered
from ringfence.fleet.config.model import (
    AgentSettings,
    RetrySettings,
)
from ringfence.fleet.log import Log
from ringfence.fleet.store.agents import AgentStates, LastSession
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts, InterruptedRun
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.grants import Grants
from ringfence.fleet.store.inbox import Inbox
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.worker.job_settings import (
    agent_settings,
    asked_of,
    effective_of,
    prompt_of,
    reason_within,
    session_to_resume,
    task_of,
)
from ringfence.fleet.worker.job_workspace import JobWorkspaces, apply_private_copy
from ringfence.fleet.worker.lifecycle_hooks import LifecycleHooks
from ringfence.fleet.worker.workflow import FollowUp
from ringfence.frozen import frozen
from ringfence.job.interrupted_runs import recover_runs
from ringfence.job.outcome import Outcome, RunResult, outcome_of, root_cause
from ringfence.job.question import Rule, read_rule, with_rules
from ringfence.job.recorder import View
from ringfence.job.request import RunRequest
from ringfence.job.resolution import resolved_agent_request
from ringfence.job.resumed_run import ResumeRequest
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.journal import run_dir
from ringfence.sandbox.workspace.record import has_record, load_record
from ringfence.tool.text import replace_surrogates

if TYPE_CHECKING:
    from ringfence.fleet.tracing.traces import Traces

Alive = Callable[[Usage], Awaitable[bool]]
_POLL_S = 1.0
_GRACE_S = 20.0
_WORKER_STOPPED = Outcome(
    JobState.INTERRUPTED, "the worker was stopped before the run had ended; the fleet repeats the job"
)
_FENCED_REASON = "the job was cancelled, or another worker executes it"
_WORKSPACE_WAIT_S = 30.0
_RESUMABLE_STATES = (
    JobState.SUCCEEDED,
    JobState.UNVERIFIED,
    JobState.CHECK_RED,
    JobState.LIMIT,
    JobState.BLOCKED,
)


@frozen
class _Granted:
    """What people granted to a job and to its agent."""

    answers: tuple[QuestionAnswered, ...]
    """The answers to the job's questions, the first one first."""
    rules: tuple[Rule, ...]
    """All rules that hold for the job."""
    origins: tuple[tuple[str, str], ...]
    """The rules of the agent, each with the person who granted it, for the record."""


@frozen
class _Work:
    """An attempt, with everything it needs."""

    job: Job
    attempt: Attempt
    settings: AgentSettings
    granted: _Granted
    workspace: Path
    resumed: InterruptedRun | None
    """The run that the attempt resumes."""
    alive: Alive


class JobExecutor:
    """Runs agents' jobs in this process.

    Args:
        database: The database of the jobs.
        workspaces: The workspaces of the agents.
        host: This machine's name.
        log: Reports what a person should know about a job.
        traces: Exports traces of jobs.
        on_ended: Called when this process is done with a job, its follow-ups included.
    """

    def __init__(
        self,
        database: Database,
        workspaces: JobWorkspaces,
        *,
        host: str,
        log: Log,
        traces: "Traces | None" = None,
        on_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_ended = on_ended
        self._jobs = Jobs(database)
        self._attempts = Attempts(database)
        self._agents = AgentStates(database)
        self._grants = Grants(database)
        self._inbox = Inbox(database)
        self._workspaces = workspaces
        self._host = host
        self._log = log
        self._traces = traces
        self._hooks = LifecycleHooks(self._jobs, workspaces, log, traces, inbox=self._inbox)
        self._cached_settings: dict[str, AgentSettings] = {}
        """The agent's settings of each job that this process executes, by job."""

    def _log_of(self, job_id: str) -> Callable[[str], None]:
        """A function that logs lines about a job which have no event name of their own."""
        return partial(self._log, event="job.noted", job=job_id)

    async def retry_of(self, job: Job) -> RetrySettings:
        """The retry settings of a job."""
        return (await self._settings(job)).retry

    async def clean_up(self, attempt: Attempt) -> None:
        """Close the runs of workers that died on this machine, and remove what their sandboxes left."""
        if attempt.number > 1:
            log = self._log_of(attempt.job)
            try:
                await recover_runs(log)
            except RingfenceError as exc:  # it does not prevent this attempt; the next clean-up tries again
                log(f"the runs of dead workers could not be cleaned up: {exc}")

    def release(self, job_id: str) -> None:
        """Drop the job's cached settings and release its clone."""
        self._cached_settings.pop(job_id, None)
        self._on_ended()
        self._hooks.release(job_id)

    async def run_attempt(self, job: Job, attempt: Attempt, alive: Alive) -> AttemptResult:
        """Run the agent to its end. A failure does not raise: it is the result."""
        about = {"job": job.id, "agent": job.agent, "attempt": attempt.number, "run": attempt.run_id}
        self._log(
            f"attempt {attempt.number}, run {attempt.run_id}", event="job.started", level="info", **about
        )
        result = await self._result(job, attempt, alive)
        line = f"{result.state.value}: {result.reason}" if result.reason else result.state.value
        self._log(line, event="job.ended", level="info", state=result.state.value, **about)
        return result

    async def _result(self, job: Job, attempt: Attempt, alive: Alive) -> AttemptResult:
        try:
            settings = await self._settings(job)
            granted = await self._read_grants(job)
            resumed = await self._interrupted_run(job, attempt, settings, granted)
            has_clone = settings.repository is not None
            reserved_for_jobs = await self._inbox.unfinished_jobs() if has_clone else frozenset()
            async with self._workspaces.of(
                job, settings, keep_files=resumed is not None, reserved_for_jobs=reserved_for_jobs
            ) as workspace:
                refusal = await self._hooks.before(job, settings)
                if refusal is not None:
                    return AttemptResult(JobState.FAILED, refusal)
                work = _Work(job, attempt, settings, granted, workspace, resumed, alive)
                return await self._run_with_session(work)
        except Exception as exc:  # noqa: BLE001 -- the boundary of an attempt: becomes its outcome
            outcome = outcome_of(root_cause(exc))
            return AttemptResult(outcome.state, outcome.reason)

    async def _read_grants(self, job: Job) -> _Granted:
        """What people granted to a job and to its agent, checked again.

        Raises:
            PolicyRefused: A rule cannot be granted.
        """
        answers, of_agent = await self._grants.of_job(job)
        rules = [
            *(grant.granted for grant in of_agent),
            *(read_rule(each.kind, each.rule) for each in answers),
        ]
        origins = [
            (f"the agent may {grant.granted}", f"{grant.granted_by}, for all jobs of agent {job.agent}")
            for grant in of_agent
        ]
        return _Granted(tuple(answers), tuple(rule for rule in rules if rule is not None), tuple(origins))

    async def _run_with_session(self, work: _Work) -> AttemptResult:
        job, settings = work.job, work.settings
        blobs = await self._jobs.blobs(job.id, ("prompt", "payload"))
        task = task_of(blobs.get("prompt"), blobs.get("payload"))
        answers = work.granted.answers
        if work.resumed is not None:
            resume: ResumeRequest | None = ResumeRequest(work.resumed.id)
        else:
            resume = session_to_resume(settings, await self._agents.get(job.agent), job, host=self._host)
        try:
            return await self._run(work, prompt_of(task, answers, work.resumed), resume)
        except (UsageError, RecordError) as exc:
            if resume is None or (job.session_id is not None and not answers):
                raise
            # A session that the request names must be resumed; only an automatic choice may be dropped.
            self._log(f"it begins a new session: {exc}", event="session.renewed", job=job.id)
            return await self._run(work, prompt_of(task, answers, None), None)

    async def _interrupted_run(
        self, job: Job, attempt: Attempt, settings: AgentSettings, granted: _Granted
    ) -> InterruptedRun | None:
        """The last run of an earlier attempt at the job, which is resumed instead of the agent's last session.

        A run that ended with a question is resumed whatever the agent's session policy is.
        """
        is_new = settings.session.policy == "fresh" or job.session_id is not None
        if is_new and not granted.answers:
            return None
        runs = await self._attempts.interrupted_runs(attempt, host=self._host)
        return next((run for run in runs if run_dir(run.id).is_dir()), None)

    async def _run(self, work: _Work, prompt: str, resume: ResumeRequest | None) -> AttemptResult:
        job, attempt, settings, granted = work.job, work.attempt, work.settings, work.granted
        effective = effective_of(settings, job, granted.rules)
        log = self._log_of(job.id)
        async with resolved_agent_request(
            prompt, work.workspace, effective, resume=resume, notify=log
        ) as request:
            request = replace(
                request,
                wait_s=_WORKSPACE_WAIT_S,
                answers=granted.answers,
                loosenings=(*request.loosenings, *granted.origins),
            )
            with self._traced(job, attempt, settings, request) as (request, observe, end_trace):
                run = JobRun(request, run_id=attempt.run_id, view=observe, when_cancelled=_WORKER_STOPPED)
                result = await _run_until_unwanted(run, work.alive)
                end_trace(result)
        for problem in result.problems:
            log(problem)
        if settings.repository is not None:
            await apply_private_copy(result.run_dir, log)
        spent = Usage(*run.spent)
        answer = replace_surrogates(result.final_text).encode()
        if result.question is not None:
            asked = asked_of(result.question, settings, job, granted.rules, spent)
            reason = f"{asked.question.reason}, and waits for an answer"
            return AttemptResult(result.state, reason, spent, asked, answer=answer)
        return AttemptResult(
            result.state,
            reason_within(with_rules(settings, granted.rules).limits, job, result.reason),
            spent,
            has_changes=settings.repository is None and _has_private_changes(result),
            answer=answer,
            session=self._last_session(job, attempt, settings, result),
        )

    def _last_session(
        self, job: Job, attempt: Attempt, settings: AgentSettings, result: RunResult
    ) -> LastSession | None:
        """The session that the agent's next job may resume; None if this result leaves none."""
        if result.state not in _RESUMABLE_STATES:
            return None
        is_full = result.cause == "context_full"
        if is_full and settings.session.policy != "fresh":
            self._log_of(job.id)("its session is too long to resume; the agent's next job begins a new one")
        return LastSession(None if is_full else attempt.run_id, self._host, datetime.now(UTC))

    @contextmanager
    def _traced(
        self, job: Job, attempt: Attempt, settings: AgentSettings, request: RunRequest
    ) -> Iterator[tuple[RunRequest, View | None, Callable[[RunResult], None]]]:
        """Trace a run: its request, with the trace in the environment, and functions for its events and its result."""
        if self._traces is None:
            yield request, None, lambda _result: None
            return
        trace = self._traces.run(job, attempt, settings, log=self._log_of(job.id))
        ends: list[JobState] = []
        environment = {**trace.environment, **request.spec.env}
        try:
            spec = request.spec.model_copy(update={"env": environment})
            yield replace(request, spec=spec), trace.see, lambda result: ends.append(result.state)
        finally:
            trace.end(ends[0] if ends else None)

    async def after(self, job: Job) -> list[FollowUp]:
        """What is to be done after a job's end."""
        if self._traces is not None and job.state.is_terminal:
            self._traces.ended(job)
        return await self._hooks.after(job, await self._settings(job))

    async def _settings(self, job: Job) -> AgentSettings:
        """The settings stored with the job. They never change, so they are read once while a worker executes it."""
        settings = self._cached_settings.get(job.id)
        if settings is None:
            settings = self._cached_settings[job.id] = agent_settings(
                await self._jobs.blob(job.id, "configuration"), job
            )
        return settings


def _has_private_changes(result: RunResult) -> bool:
    """Whether a run left changes in a private copy of its workspace."""
    work = result.work
    if work is None or not (work.files_changed or work.files_changed_by_commits):
        return False
    return has_record(result.run_dir) and load_record(result.run_dir).mode == "clone"


async def _run_until_unwanted(run: JobRun, alive: Alive) -> RunResult:
    """Execute a run, and cancel it when the attempt is no longer valid: first gracefully, then at once."""

    async def watch() -> None:
        await anyio.sleep(_POLL_S)  # the attempt was valid when it began
        while await _is_wanted(run, alive):  # noqa: ASYNC110 -- another process ends it, in the database
            await anyio.sleep(_POLL_S)
        run.cancel(_FENCED_REASON)
        await anyio.sleep(_GRACE_S)
        run.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await run.run()
        tasks.cancel_scope.cancel()
    return result


async def _is_wanted(run: JobRun, alive: Alive) -> bool:
    try:
        return await alive(Usage(*run.spent))
    except RingfenceError:
        return True  # an unreachable database decides nothing; the engine stops this worker if it must

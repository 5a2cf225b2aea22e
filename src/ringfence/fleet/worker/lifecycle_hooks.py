"""Runs the hooks before and after a job's run, and reports the job's end to the source of its work."""

import json
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from ringfence.config.paths import state_dir
from ringfence.config.units import format_duration
from ringfence.fleet.config.model import (
    AgentSettings,
    CommandHook,
    DirectoryTrigger,
    GithubTrigger,
    Hook,
    HookPoint,
)
from ringfence.fleet.log import Log
from ringfence.fleet.store.inbox import Inbox
from ringfence.fleet.store.job import DONE, Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.trigger.source.base import Claim, Outcome
from ringfence.fleet.trigger.source.registry import claim_of, open_source
from ringfence.fleet.worker.hook import HookResult, run_hook
from ringfence.fleet.worker.hook_event import facts_of, need_of, points_of
from ringfence.fleet.worker.job_settings import effective_of
from ringfence.fleet.worker.job_workspace import JobWorkspaces, apply_private_copy
from ringfence.fleet.worker.workflow import FollowUp, pause_after
from ringfence.job.outcome import outcome_of, root_cause
from ringfence.journal import run_dir

if TYPE_CHECKING:
    from ringfence.fleet.tracing.traces import Traces

_CLAIM_ATTEMPTS = 8


class LifecycleHooks:
    """Runs the hooks of the jobs of this process.

    Args:
        jobs: The store of jobs.
        workspaces: The workspaces of the agents.
        log: Reports what a person should know about a job.
        traces: Exports traces of jobs.
        inbox: The store of questions.
    """

    def __init__(
        self,
        jobs: Jobs,
        workspaces: JobWorkspaces,
        log: Log,
        traces: "Traces | None" = None,
        *,
        inbox: Inbox | None = None,
    ) -> None:
        self._jobs = jobs
        self._inbox = inbox
        self._workspaces = workspaces
        self._log = log
        self._traces = traces
        self._hook_runs: dict[str, str] = {}
        """The last run of a hook of each job."""

    def release(self, job_id: str) -> None:
        """Release the clone that a job worked on, for other jobs."""
        self._workspaces.release(job_id)
        self._hook_runs.pop(job_id, None)

    async def before(self, job: Job, settings: AgentSettings) -> str | None:
        """Run the hooks before a run; return why the run must not begin if a required hook failed."""
        for number, hook in enumerate(settings.hooks.get("before_run", ()), start=1):
            result = await self._run_once(job, settings, ("before_run", number), hook, None)
            if not result.is_ok:
                line = f"hook before_run {number}: {result.detail}"
                self._log(line, event="hook.failed", job=job.id, hook="before_run")
                if isinstance(hook, CommandHook) and hook.is_required:
                    return f"hook {number} before the run failed: {result.detail}"
        return None

    async def after(self, job: Job, settings: AgentSettings) -> list[FollowUp]:
        """The follow-ups of a job's end: first commands, in the job's workspace, which is released after them."""
        commands, messages = list[FollowUp](), list[FollowUp]()
        points = points_of(job.state)
        if need_of(job.state, has_changes=job.is_ready_to_apply) is not None:
            points = (*points, "on_inbox")
        for point in points:
            for number, hook in enumerate(settings.hooks.get(point, ()), start=1):
                act = partial(self._hook, job, settings, point, hook, number)
                if isinstance(hook, CommandHook):
                    commands.append(FollowUp(f"{point}.{number}", 1, act))
                else:
                    messages.append(FollowUp(f"{point}.{number}", hook.attempts, act))
        if not commands:
            self.release(job.id)
        return commands + await self._claims(job, settings) + messages

    async def _claims(self, job: Job, settings: AgentSettings) -> list[FollowUp]:
        """The follow-up that reports the job's end to the source of its work."""
        trigger = settings.triggers.get(job.trigger_name)
        if (
            not job.state.is_terminal
            or job.trigger != "source"
            or not isinstance(trigger, DirectoryTrigger | GithubTrigger)
        ):
            return []
        payload = json.loads(await self._jobs.blob(job.id, "payload") or b"{}")
        answer = (await self._jobs.blob(job.id, "answer") or b"").decode("utf-8", "replace")
        act = partial(self._end_claim, job, settings, trigger, claim_of(payload["claim"]), answer)
        return [FollowUp("claim", _CLAIM_ATTEMPTS, act)]

    async def _end_claim(
        self,
        job: Job,
        settings: AgentSettings,
        trigger: DirectoryTrigger | GithubTrigger,
        claim: Claim,
        answer: str,
        tried: int,
    ) -> bool:
        text = f"{job.state.value}: {job.reason}\n\n{answer}".strip()
        try:
            async with AsyncExitStack() as stack:
                source = await open_source(trigger, settings, stack=stack, state=state_dir())
                if job.state in DONE:
                    await source.complete(claim, Outcome.DONE, text)
                else:  # if the claim were released instead, the same work would be taken again at once, endlessly
                    await source.complete(claim, Outcome.FAILED, text)
        except Exception as exc:  # noqa: BLE001 -- the boundary of a follow-up: the later ones are still executed
            reason = outcome_of(root_cause(exc)).reason
            line = f"its end could not be reported to the source: {reason}{_then(tried, _CLAIM_ATTEMPTS)}"
            self._log(line, event="source.untold", job=job.id)
            return True
        return False

    async def _hook(
        self, job: Job, settings: AgentSettings, point: HookPoint, hook: Hook, number: int, tried: int
    ) -> bool:
        """Run a hook once; return whether it is to be tried again. A command is never retried, nor is that logged."""
        answer = await self._jobs.blob(job.id, "answer")
        if not isinstance(hook, CommandHook) and job.state.is_terminal:
            self.release(job.id)
        try:
            text = None if answer is None else answer.decode("utf-8", "replace")
            result = await self._run_once(job, settings, (point, number), hook, text)
        except Exception as exc:  # noqa: BLE001 -- the boundary of a follow-up: the later ones are still executed
            result = HookResult(is_ok=False, detail=outcome_of(root_cause(exc)).reason, may_be_repeated=True)
        if not result.is_ok:
            then = ""
            if not isinstance(hook, CommandHook):
                then = _then(tried, hook.attempts if result.may_be_repeated else tried)
            line = f"hook {point} {number}: {result.detail}{then}"
            self._log(line, event="hook.failed", job=job.id, hook=point)
        return not result.is_ok and result.may_be_repeated

    async def _run_once(
        self, job: Job, settings: AgentSettings, which: tuple[HookPoint, int], hook: Hook, answer: str | None
    ) -> HookResult:
        """Run a hook once, and trace it."""
        began_ns, result = time.time_ns(), None
        is_before = which[0] == "before_run"
        need = None if is_before else need_of(job.state, has_changes=job.is_ready_to_apply)
        question = None
        if self._inbox is not None and need == "question":
            question = await self._inbox.open_of(job.id)
        facts = facts_of(job, which[0], answer, need=need, question=question)
        try:
            if isinstance(hook, CommandHook):
                result = await self._command(job, settings, hook, facts)
            else:
                result = await run_hook(hook, facts, effective=effective_of(settings, job))
            return result
        finally:
            if self._traces is not None:
                run_id = None if result is None or result.run_dir is None else result.run_dir.name
                is_ok = result is not None and result.is_ok
                self._traces.hook(job, which, hook.type, began_ns=began_ns, run_id=run_id, is_ok=is_ok)

    async def _command(
        self, job: Job, settings: AgentSettings, hook: CommandHook, facts: Mapping[str, Any]
    ) -> HookResult:
        if job.state.is_terminal and not self._workspaces.is_there(job, settings):
            line = "the changes of its run are no longer here: the hook has a new clone"
            self._log(line, event="clone.lost", job=job.id)
        async with self._workspaces.of(job, settings) as workspace:
            after = self._last_run(job) if settings.repository is None else None
            result = await run_hook(
                hook, facts, effective=effective_of(settings, job), workspace=workspace, after=after
            )
        if result.run_dir is not None:
            self._hook_runs[job.id] = result.run_dir.name
            if settings.repository is not None:
                await apply_private_copy(result.run_dir, partial(self._log, event="job.noted", job=job.id))
        return result

    def _last_run(self, job: Job) -> str | None:
        """The run of an ended job whose private copy of the workspace the next hook continues."""
        last = self._hook_runs.get(job.id, job.run_id) if job.state.is_terminal else None
        return last if last is not None and run_dir(last).is_dir() else None


def _then(tried: int, attempts: int) -> str:
    """The end of a log line about a failed attempt: whether and when it is tried again."""
    if tried >= attempts:
        return "; it is not tried again"
    return f"; it is tried again in {format_duration(pause_after(tried))} (try {tried + 1} of {attempts})"

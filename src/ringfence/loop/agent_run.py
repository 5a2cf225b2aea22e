"""Runs the agent of a role on a story, and retries a run that fails through no fault of the attempt."""

from collections.abc import Callable
from typing import Any

from ringfence.errors import Unparseable
from ringfence.frozen import frozen
from ringfence.job.state import JobState
from ringfence.journal import new_run_id
from ringfence.loop.exceptions import Fault, LoopStopped
from ringfence.loop.loop import Loop
from ringfence.loop.role import ROLES
from ringfence.loop.role.run_settings import effective_for
from ringfence.loop.rows import StepKey, StepRow
from ringfence.loop.runs import AgentEnd
from ringfence.loop.settings import RoleName
from ringfence.loop.state import ENDS_LOOP, FAULTS, LoopEnd, LoopState
from ringfence.loop.steps import run_once
from ringfence.loop.story_commits import StoryCommits
from ringfence.sandbox.workspace.snapshot.diff import Diff


@frozen
class Task:
    """One task of a role."""

    role: RoleName
    attempt: int
    """The attempt's number, from 1."""
    commit: str
    """The commit that is checked out for the role."""
    prompt: str
    read: Callable[[AgentEnd], Any]
    """Returns the answer as JSON values; raises `Unparseable`."""
    version: str = ""
    """The version of the prompt's template."""
    cuts: tuple[str, ...] = ()
    """The sections of the prompt that were shortened."""
    must_answer: bool = False
    """Whether a run without a readable answer is a fault, which is retried without spending an attempt."""

    @property
    def schema(self) -> dict[str, Any] | None:
        """The answer's schema, if an answer is required. Otherwise changed files count even without an answer."""
        return ROLES[self.role].schema if self.must_answer else None


@frozen
class AgentResult:
    """The result of a role's run."""

    run_id: str
    complaint: str | None
    """Why the run failed, so that the attempt is rejected; None: it did not fail."""
    answer: Any
    """The answer, as `Task.read` returned it."""
    at_s: int
    """When the run ended, in whole seconds since the epoch."""
    model: str
    diff: Diff | None = None
    """What the agent changed in files; None: only the run's checkpoints say it, as another process did the run."""


class AgentRuns:
    """Runs the agents of roles on a story.

    Args:
        loop: The loop.
        commits: The commits that are checked out for the roles.
    """

    def __init__(self, loop: Loop, commits: StoryCommits) -> None:
        self._loop = loop
        self._commits = commits
        self._diffs: dict[str, Diff | None] = {}
        """What the last run changed in files, by the run's id."""

    async def run(self, key: StepKey, task: Task) -> AgentResult:
        """Run a role's agent on its task, or return the result of the step if it was completed before.

        Raises:
            LoopStopped: The loop ends.
        """
        step = await run_once(
            self._loop, key, lambda: self._try(key, task), what=f"the {task.role} of story {key.story}"
        )
        assert step.run_id is not None
        assert step.ended_ms is not None
        complaint, answer = step.result.get("complaint"), step.result.get("answer")
        diff = self._diffs.get(step.run_id)
        return AgentResult(step.run_id, complaint, answer, step.ended_ms // 1000, step.model, diff)

    async def _try(self, key: StepKey, task: Task) -> StepRow:
        loop, store = self._loop, self._loop.store
        loop.check_agent_may_run()
        spent = store.spent
        effective = effective_for(loop.effective, loop.settings, task.role, attempt=task.attempt, spent=spent)
        workspace = await self._commits.checkout(task.commit)
        run_id, model = new_run_id(), effective.settings.run.model
        step = store.begin_step(key, run_id=run_id, role=task.role, attempt=task.attempt, model=model)
        end = await loop.runs.agent(
            task.prompt,
            workspace,
            effective,
            run_id=run_id,
            schema=task.schema,
            keeps_work=not task.must_answer,
        )
        self._diffs = {run_id: end.diff}
        fault, result = _classify_end(end, task)
        used_up = loop.used_up(spent.and_more(end.tokens, end.cost_usd))
        hit_loop_limit = end.state is JobState.LIMIT and used_up is not None  # not the attempt's fault
        if fault is None and not hit_loop_limit:
            result = {**loop.redactor.redact(result), "prompt": task.version, "cuts": list(task.cuts)}
            return store.end_step(
                key, outcome=end.state.value, result=result, tokens=end.tokens, cost_usd=end.cost_usd
            )
        store.add_spent(step, tokens=end.tokens, cost_usd=end.cost_usd)
        if hit_loop_limit and used_up is not None:
            raise LoopStopped(used_up)
        ends = _ends_loop(end)
        if ends is not None:
            raise LoopStopped(loop.why_stopped() or LoopEnd(ends, end.reason))
        raise Fault(fault or end.reason)


def _ends_loop(end: AgentEnd) -> LoopState | None:
    """Return the state in which the run's end ends the loop, if it does: an unknown model would fail every story."""
    return LoopState.CONFIGURATION if end.is_misconfigured else ENDS_LOOP.get(end.state)


def _classify_end(end: AgentEnd, task: Task) -> tuple[str | None, dict[str, Any]]:
    """Return why the run is a fault, or None; and the step's result."""
    why = f"the {task.role}'s run ended {end.state.value}: {end.reason}"
    if _ends_loop(end) is not None or end.state in FAULTS:
        return why, {}
    if end.state not in (JobState.UNVERIFIED, JobState.SUCCEEDED):
        return (why, {}) if task.must_answer else (None, {"complaint": why, "answer": None})
    try:
        return None, {"complaint": None, "answer": task.read(end)}
    except Unparseable as exc:
        return f"the {task.role} gave no readable answer: {exc}", {}

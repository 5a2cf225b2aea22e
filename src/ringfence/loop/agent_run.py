"""The work of one role on a story: one run of its agent, tried again when that fails at no fault of the attempt."""

from collections.abc import Callable
from typing import Any

from ringfence.errors import Unparseable
from ringfence.frozen import frozen
from ringfence.job.state import JobState
from ringfence.journal import new_run_id
from ringfence.loop.loop import Loop
from ringfence.loop.outcome import ENDS_LOOP, IS_FAULT, Fault, Stop
from ringfence.loop.role import ROLES
from ringfence.loop.role.run_settings import effective_for
from ringfence.loop.rows import StepKey, StepRow
from ringfence.loop.runs import AgentEnd
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopState
from ringfence.loop.steps import run_once
from ringfence.loop.trees import Trees


@frozen
class Task:
    """What a role is asked."""

    role: RoleName
    attempt: int
    """From 1."""
    commit: str
    """What it finds."""
    prompt: str
    read: Callable[[AgentEnd], Any]
    """Makes JSON of how it ended; raises `Unparseable`."""
    version: str = ""
    """Of the words in which it is asked."""
    cuts: tuple[str, ...] = ()
    """What of the prompt is not shown whole."""
    must_answer: bool = False
    """Whether a run without a readable answer is a fault, and nobody's attempt."""

    @property
    def schema(self) -> dict[str, Any] | None:
        """Of its answer, where there must be one: who works is not to lose its work for want of a last word."""
        return ROLES[self.role].schema if self.must_answer else None


@frozen
class AgentResult:
    """What a role's run came to."""

    run_id: str
    complaint: str | None
    """Why it spends the attempt; None: it came to its end."""
    answer: Any
    """As it was read."""
    at_s: int
    """When it ended, in whole seconds since the epoch."""
    model: str


class AgentRuns:
    """Has roles work on a story.

    Args:
        loop: The loop.
        trees: The trees that the roles are shown.
    """

    def __init__(self, loop: Loop, trees: Trees) -> None:
        self._loop = loop
        self._trees = trees

    async def run(self, key: StepKey, task: Task) -> AgentResult:
        """Have a role do its task; what came of an earlier run of the step is not done again.

        Raises:
            Stop: The loop ends.
        """
        step = await run_once(
            self._loop, key, lambda: self._try(key, task), what=f"the {task.role} of story {key.story}"
        )
        assert step.run_id is not None
        assert step.ended_ms is not None
        complaint, answer = step.result.get("complaint"), step.result.get("answer")
        return AgentResult(step.run_id, complaint, answer, step.ended_ms // 1000, step.model)

    async def _try(self, key: StepKey, task: Task) -> StepRow:
        loop, store = self._loop, self._loop.store
        loop.check_agent_may_run()
        spent = store.spent
        effective = effective_for(loop.effective, loop.settings, task.role, attempt=task.attempt, spent=spent)
        workspace = await self._trees.checkout(task.commit)
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
        fault, result = _weigh(end, task)
        used_up = loop.used_up(spent.and_more(end.tokens, end.cost_usd))
        is_of_loop = end.state is JobState.LIMIT and used_up is not None  # it is not the attempt's fault
        if fault is None and not is_of_loop:
            result = {**loop.redactor.redact(result), "prompt": task.version, "cuts": list(task.cuts)}
            return store.end_step(
                key, outcome=end.state.value, result=result, tokens=end.tokens, cost_usd=end.cost_usd
            )
        store.add_spent(step, tokens=end.tokens, cost_usd=end.cost_usd)
        if is_of_loop and used_up is not None:
            raise used_up
        ends = _ends_loop(end)
        if ends is not None:
            raise loop.why_stopped() or Stop(ends, end.reason)
        raise Fault(fault or end.reason)


def _ends_loop(end: AgentEnd) -> LoopState | None:
    """How the loop ends with it, if it does: a model that nobody knows would fail each story alike."""
    return LoopState.CONFIGURATION if end.is_misconfigured else ENDS_LOOP.get(end.state)


def _weigh(end: AgentEnd, task: Task) -> tuple[str | None, dict[str, Any]]:
    """Whose fault it is, if anybody's; and what came out."""
    told = f"the {task.role}'s run ended {end.state.value}: {end.reason}"
    if _ends_loop(end) is not None or end.state in IS_FAULT:
        return told, {}
    if end.state not in (JobState.UNVERIFIED, JobState.SUCCEEDED):
        return (told, {}) if task.must_answer else (None, {"complaint": told, "answer": None})
    try:
        return None, {"complaint": None, "answer": task.read(end)}
    except Unparseable as exc:
        return f"the {task.role} gave no answer that can be read: {exc}", {}

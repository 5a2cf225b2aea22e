"""Turns of roles as steps: done once, tried again when nobody was to blame, their answers read."""

from collections.abc import Callable
from typing import Any

import anyio

from ringfence.errors import Unparseable
from ringfence.frozen import frozen
from ringfence.job.recorder import spent_by
from ringfence.job.state import JobState
from ringfence.journal import new_run_id, run_dir
from ringfence.loop.machine.clones import Clones
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.stop import ENDS_LOOP, IS_FAULT, Stop
from ringfence.loop.machine.turn import Runs, TurnEnd
from ringfence.loop.role import ROLES
from ringfence.loop.role.run_settings import effective_for
from ringfence.loop.rows import StepRow, StoryRow
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopState

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


async def pause_before(number: int, runs: Runs) -> None:
    """Wait before a try, ever longer; not before the first (0), and not when all is to stop."""
    if number:
        await runs.pause(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (number - 1)))


@frozen
class Task:
    """What a role is asked."""

    role: RoleName
    attempt: int
    """From 1."""
    commit: str
    """What it finds."""
    prompt: str
    read: Callable[[TurnEnd], Any]
    """Makes JSON of how it ended; raises `Unparseable`."""
    version: str = ""
    """Of the words in which it is asked."""
    cuts: tuple[str, ...] = ()
    """What of the prompt is not shown whole."""
    must_answer: bool = False
    """Whether a turn without a readable answer is a fault, and nobody's attempt."""

    @property
    def schema(self) -> dict[str, Any] | None:
        """Of its answer, where there must be one: who works is not to lose its work for want of a last word."""
        return ROLES[self.role].schema if self.must_answer else None


@frozen
class Turn:
    """What a role's turn came to."""

    run_id: str
    complaint: str | None
    """Why it spends the attempt; None: it came to its end."""
    answer: Any
    """As it was read."""
    at_s: int
    """When it ended, in whole seconds since the epoch."""
    model: str


class Turns:
    """Has roles work.

    Args:
        loop: Whose.
        clones: Where they work.
    """

    def __init__(self, loop: Loop, clones: Clones) -> None:
        self._loop = loop
        self._clones = clones

    async def take(self, row: StoryRow, name: str, task: Task) -> Turn:
        """A role's turn; one that is known under the step's name is not done again.

        Raises:
            Stop: The loop ends.
        """
        why = ""
        for number in range(self._loop.settings.limits.faults):
            known = self._loop.store.step(row, name)
            if known is not None and known.outcome is not None:
                return _turn_of(known)
            if known is not None and not known.is_counted:
                await self._count(known)
            await pause_before(number, self._loop.runs)
            fault = await self._try(row, name, task)
            if fault is None:
                ended = self._loop.store.step(row, name)
                assert ended is not None
                return _turn_of(ended)
            why = fault
        tries = self._loop.settings.limits.faults
        raise Stop(LoopState.INFRASTRUCTURE, f"story {row.id}: {tries} tries, the last one: {why}")

    async def _count(self, step: StepRow) -> None:
        """Count what a run used whose process died, with us or before us: it was paid for."""
        assert step.run_id is not None
        tokens, cost_usd = await anyio.to_thread.run_sync(spent_by, run_dir(step.run_id))
        self._loop.store.add_spent(step, tokens=tokens, cost_usd=cost_usd)

    async def _try(self, row: StoryRow, name: str, task: Task) -> str | None:
        """One run; what went wrong that is nobody's attempt."""
        store = self._loop.store
        spent = self._loop.left()
        settings = self._loop.settings
        effective = effective_for(
            self._loop.effective, settings, task.role, attempt=task.attempt, spent=spent
        )
        slot, run_id = await self._clones.put_at(row, task.commit), new_run_id()
        model = effective.settings.run.model
        step = store.begin_step(row, name, run_id=run_id, role=task.role, attempt=task.attempt, model=model)
        end = await self._loop.runs.agent(
            task.prompt, slot.inside, effective, run_id=run_id, schema=task.schema
        )
        fault, result = _weighed(end, task)
        used_up = self._loop.used_up(spent.and_more(end.tokens, end.cost_usd))
        if end.state is JobState.LIMIT and used_up is not None:  # of the loop: it is not the attempt's fault
            store.add_spent(step, tokens=end.tokens, cost_usd=end.cost_usd)
            raise used_up
        if fault is None:
            result = {**self._loop.redactor.redact(result), "prompt": task.version, "cuts": list(task.cuts)}
            store.end_step(
                row, name, outcome=end.state.value, result=result, tokens=end.tokens, cost_usd=end.cost_usd
            )
            return None
        store.add_spent(step, tokens=end.tokens, cost_usd=end.cost_usd)
        ends = _ends_loop(end)
        if ends is not None:
            raise self._loop.why_stopped() or Stop(ends, end.reason)
        return fault


def _ends_loop(end: TurnEnd) -> LoopState | None:
    """How the loop ends with it, if it does: a model that nobody knows would fail each story alike."""
    return LoopState.CONFIGURATION if end.is_misconfigured else ENDS_LOOP.get(end.state)


def _weighed(end: TurnEnd, task: Task) -> tuple[str | None, dict[str, Any]]:
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


def _turn_of(step: StepRow) -> Turn:
    assert step.run_id is not None
    assert step.ended_ms is not None
    return Turn(
        step.run_id,
        step.result.get("complaint"),
        step.result.get("answer"),
        step.ended_ms // 1000,
        step.model,
    )

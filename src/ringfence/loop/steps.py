"""Executes durable steps: each is completed once, and a resumed loop uses its stored result."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio.to_thread

from ringfence.job.recorder import spent_by
from ringfence.journal import run_dir
from ringfence.loop.exceptions import Fault, LoopStopped
from ringfence.loop.loop import Loop
from ringfence.loop.rows import StepKey, StepRow
from ringfence.loop.state import LoopEnd, LoopState

_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0


async def run_once(
    loop: Loop, key: StepKey, try_once: Callable[[], Awaitable[StepRow]], *, what: str
) -> StepRow:
    """Execute a step that needs a run in a sandbox, with retries, unless the step was completed before.

    Args:
        loop: The loop.
        key: The step's key.
        try_once: Begins the step with a new run, and ends it; raises `Fault` if a retry may succeed.
        what: The subject of the loop's reason if all tries fail.

    Raises:
        LoopStopped: The loop ends.
    """
    fault = Fault("it was not tried", LoopState.INFRASTRUCTURE)
    for number in range(loop.settings.limits.faults):
        known = loop.store.step(key)
        if known is not None and known.outcome is not None:
            return known
        if known is not None and not known.is_counted:
            await _count_interrupted(loop, known)
        if number:
            await loop.runs.pause(min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** (number - 1)))
        try:
            return await try_once()
        except Fault as exc:
            fault = exc
    tries = loop.settings.limits.faults
    raise LoopStopped(LoopEnd(fault.state, f"{what}: {tries} tries, the last one: {fault.reason}"))


async def _count_interrupted(loop: Loop, step: StepRow) -> None:
    """Count the usage of a run whose process died, as it was paid for."""
    assert step.run_id is not None
    tokens, cost_usd = await anyio.to_thread.run_sync(spent_by, run_dir(step.run_id))
    loop.store.add_spent(step, tokens=tokens, cost_usd=cost_usd)


async def keep_once(
    loop: Loop, key: StepKey, make: Callable[[], Awaitable[Mapping[str, Any]]], *, outcome: str, attempt: int
) -> Mapping[str, Any]:
    """Return the result of a step without a run; `make` produces it unless the step was completed before."""
    known = loop.store.step(key)
    if known is not None and known.outcome is not None:
        return known.result
    return loop.store.keep_step(key, outcome=outcome, result=await make(), attempt=attempt).result

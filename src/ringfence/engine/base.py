"""The context of workflows, their states, and JSON. DBOS is imported on first use, since that takes 0.4 s."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ringfence.errors import UsageError

Json = Any
"""A JSON value. Steps return ids and small facts; large data is stored elsewhere and named."""
ERROR_LIMIT = 4000
"""Characters of an error that are stored."""


class WorkflowState(StrEnum):
    """The state of a workflow."""

    WAITING = "waiting"
    """In the queue: no executor has claimed it."""
    RUNNING = "running"
    """Claimed by an executor; by a dead one, until another executor takes it over."""
    DONE = "done"
    """It returned."""
    FAILED = "failed"
    """It raised, was cancelled, or killed too many executors."""

    @property
    def is_end(self) -> bool:
        """Whether it is a final state."""
        return self in (WorkflowState.DONE, WorkflowState.FAILED)


@dataclass(frozen=True)
class WorkflowStatus:
    """A workflow as the engine stores it."""

    id: str
    state: WorkflowState
    executor: str | None
    """The executor that runs it, or ran it last."""
    result: Json = None
    """What it returned, if it is done."""
    error: str | None = None
    """Why it failed, if it has."""


class StepFailed(Exception):
    """A step of a workflow raised; the text is that of its exception."""


class Context:
    """The durable operations of a workflow. A workflow is an async function of a context and its argument.

    A workflow may be interrupted anywhere; it then starts again from its beginning, on this executor or another. Results
    of steps and sleeps are stored and not repeated; everything else in a workflow must have no effects and must do the
    same things in the same order.

    Args:
        id: Of the workflow.
    """

    def __init__(self, id: str) -> None:
        self.id = id

    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        """Call a function and store its result; a workflow that starts again gets the stored result.

        The function is called again if the executor died before the result was stored, so it must be safe to repeat.

        Raises:
            StepFailed: The function raised, or its result is not JSON; raised again on every repetition.
        """
        from dbos import DBOS

        async def call() -> dict[str, Json]:
            try:
                return {"value": as_json(await function(*arguments), what=f"the result of step {name!r}")}
            except Exception as error:  # noqa: BLE001 -- every exception of a step is stored as its outcome
                return {"error": f"{type(error).__name__}: {error}"[:ERROR_LIMIT]}

        outcome = await DBOS.run_step_async({"name": name}, call)
        if "error" in outcome:
            raise StepFailed(outcome["error"])
        return outcome["value"]

    async def sleep(self, seconds: float) -> None:
        """Sleep. A workflow that starts again sleeps only for the rest of the time."""
        from dbos import DBOS

        await DBOS.sleep_async(seconds)


Workflow = Callable[[Context, Json], Awaitable[Json]]


def as_json(value: Any, *, what: str) -> Json:
    """A value as it is read back from JSON.

    Raises:
        UsageError: It is not JSON, or is read back as another value: a tuple, a number as a key, NaN.
    """
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be JSON: {error}") from error
    if back != value:
        raise UsageError(f"{what} must be JSON: {str(value)[:100]!r} comes back as {str(back)[:100]!r}")
    return back

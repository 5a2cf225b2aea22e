"""Defines the context and states of workflows, and their JSON values. Imports DBOS on first use: that takes 0.4 s."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ringfence.errors import UsageError

Json = Any
"""A JSON value. Steps return ids and small facts; large data is stored elsewhere and referred to by name."""
ERROR_LIMIT = 4000
"""The maximum length of a stored error, in characters."""
HIGHEST_PRIORITY = 1000
"""The priority of workflows that are run first; the lowest priority is 0."""


class WorkflowState(StrEnum):
    """The state of a workflow."""

    WAITING = "waiting"
    """In the queue; no executor has claimed it."""
    RUNNING = "running"
    """Claimed by an executor; stays so if it dies, until another takes over."""
    DONE = "done"
    """The workflow returned."""
    FAILED = "failed"
    """The workflow raised, was cancelled, or its executors died too often."""

    @property
    def is_end(self) -> bool:
        """Whether this is a final state."""
        return self in (WorkflowState.DONE, WorkflowState.FAILED)


@dataclass(frozen=True)
class WorkflowStatus:
    """The stored status of a workflow."""

    id: str
    state: WorkflowState
    executor: str | None
    """The executor that runs the workflow, or ran it last."""
    result: Json = None
    """The returned value of a workflow that is done."""
    error: str | None = None
    """The error of a workflow that failed."""


class StepFailed(Exception):
    """A step of a workflow raised an exception, whose text this exception carries."""


class Context:
    """The durable operations of a workflow. A workflow is an async function of a context and its argument.

    After an interruption a workflow restarts from the top, on this executor or another; stored results of steps and
    sleeps are reused, so code outside steps must be deterministic and without side effects.

    Args:
        id: The id of the workflow.
    """

    def __init__(self, id: str) -> None:
        self.id = id

    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        """Call a function and store its result; when the workflow starts again, return the stored result.

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
        """Sleep. A workflow that starts again sleeps only for the remaining time."""
        from dbos import DBOS

        await DBOS.sleep_async(seconds)


Workflow = Callable[[Context, Json], Awaitable[Json]]


def as_json(value: Any, *, what: str) -> Json:
    """A value as it is read back from JSON.

    Raises:
        UsageError: The value is not JSON, as NaN is not, or is read back as another value: a tuple, a number as a key.
    """
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be JSON: {error}") from error
    if back != value:
        raise UsageError(f"{what} must be JSON: {str(value)[:100]!r} comes back as {str(back)[:100]!r}")
    return back

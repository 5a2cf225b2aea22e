"""Executes workflows durably: they survive the death of their executor.

Importing this package imports neither DBOS nor SQLAlchemy; `open_engine` does.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, overload

from ringfence.engine.base import (
    HIGHEST_PRIORITY,
    Context,
    Json,
    StepFailed,
    Workflow,
    WorkflowState,
    WorkflowStatus,
)

if TYPE_CHECKING:
    from ringfence.engine.client import Engine
    from ringfence.engine.executor import Executor

__all__ = [
    "HIGHEST_PRIORITY",
    "Context",
    "Json",
    "StepFailed",
    "Workflow",
    "WorkflowState",
    "WorkflowStatus",
    "open_engine",
]


@overload
def open_engine(url: str) -> "Engine": ...
@overload
def open_engine(
    url: str,
    *,
    workflows: Mapping[str, Workflow],
    concurrency: int = 8,
    recoveries: int = 5,
    labels: Sequence[str] = (),
) -> "Executor": ...
@overload
def open_engine(
    url: str, *, workflows: Mapping[str, Workflow] | None, concurrency: int = 8, recoveries: int = 5
) -> "Engine": ...
def open_engine(
    url: str,
    *,
    workflows: Mapping[str, Workflow] | None = None,
    concurrency: int = 8,
    recoveries: int = 5,
    labels: Sequence[str] = (),
) -> "Engine":
    """The engine of a database, to be entered as an async context.

    Args:
        url: `sqlite:///FILE`, or `postgresql://user@host/database`.
        workflows: The workflows to run, by name, which makes the engine an executor. None: it only controls workflows.
        concurrency: How many workflows an executor runs at once. All executors of a database share one number: that of
            the executor that started last.
        labels: The labels whose workflows the executor runs, in addition to workflows without a label.
        recoveries: How often a workflow is taken over from dead executors before it fails.

    Raises:
        UsageError: The URL has neither form; on entering: this process already has an executor.
        InfrastructureFault: On entering: the database cannot be reached, or is on a file system without locks.
    """
    if workflows is None:
        from ringfence.engine.client import Engine

        return Engine(url)
    from ringfence.engine.executor import Executor

    return Executor(url, workflows=workflows, concurrency=concurrency, recoveries=recoveries, labels=labels)

"""Tasks beside the body of a context."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks(*, wait: bool = False) -> AsyncIterator[TaskGroup]:
    """A task group whose body's own error is raised as it is: one of anyio's would wrap it in an `ExceptionGroup`.

    An error of a task cancels the body and is raised in a group.

    Args:
        wait: When the body is left, wait for the tasks; else they are cancelled.
    """
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group
            error = exc
        if not wait:
            tasks.cancel_scope.cancel()
    if error is not None:
        raise error

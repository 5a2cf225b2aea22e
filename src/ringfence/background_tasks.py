"""Tasks beside the body of a context, and beside each other."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

_First = TypeVar("_First")
_Second = TypeVar("_Second")


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


async def run_both(
    first: Callable[[], Awaitable[_First]], second: Callable[[], Awaitable[_Second]]
) -> tuple[_First, _Second]:
    """Do two things at once; the first error ends both and is raised as it is."""
    results: dict[int, Any] = {}

    async def run(number: int, work: Callable[[], Awaitable[Any]]) -> None:
        results[number] = await work()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, 0, first)
            tasks.start_soon(run, 1, second)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return results[0], results[1]

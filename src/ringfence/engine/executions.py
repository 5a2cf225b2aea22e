"""Runs and interrupts the workflows of this executor."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import anyio

from ringfence.engine.base import Context, Json, Workflow, as_json
from ringfence.errors import UsageError


class Execution:
    """One execution of a workflow, until it ends or is interrupted."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()

    async def interrupt(self) -> None:
        """Cancel the execution, and wait until it has cleaned up."""
        self.scope.cancel()
        await self.ended.wait()


class Executions:
    """All executions of this executor.

    Args:
        workflows: The workflows that the executor can run, by name.
        concurrency: How many run at once. DBOS limits each queue only by itself.
        release_claim: Enqueues a workflow again that cannot start here.
    """

    def __init__(
        self,
        workflows: Mapping[str, Workflow],
        *,
        concurrency: int,
        release_claim: Callable[[str], Awaitable[None]],
    ) -> None:
        self._workflows = workflows
        self._concurrency = concurrency
        self._release_claim = release_claim
        self._running: dict[str, Execution] = {}
        self._is_open = False
        self._idle_since = 0.0
        self.is_draining = False
        """Whether workflows are enqueued again instead of started."""

    @property
    def running(self) -> list[Execution]:
        """All executions that have not ended."""
        return [*self._running.values()]

    def open(self) -> None:
        """Allow workflows to start."""
        self._is_open = True
        self._idle_since = anyio.current_time()

    def idle_s(self) -> float:
        """The time in seconds since the last execution ended; 0 while one runs."""
        return 0.0 if self._running else anyio.current_time() - self._idle_since

    async def run(self, id: str, name: str, argument: Json) -> Json:
        """Run a workflow. If it is interrupted, its result is not stored, whatever it returns."""
        if id in self._running:  # claimed again while it was still running: the older execution has lost it
            await self._running[id].interrupt()
        if not self._is_open:
            raise asyncio.CancelledError
        if self.is_draining or len(self._running) >= self._concurrency:
            await self._release_claim(id)
            raise asyncio.CancelledError
        execution = self._running[id] = Execution(id)
        try:
            with execution.scope:
                result = await self._result(id, name, argument)
            if execution.scope.cancel_called:
                raise asyncio.CancelledError
            return result
        finally:
            execution.ended.set()
            self._idle_since = anyio.current_time()
            if self._running.get(id) is execution:
                del self._running[id]

    async def _result(self, id: str, name: str, argument: Json) -> Json:
        if name not in self._workflows:
            raise UsageError(f"there is no workflow {name!r}")
        result = await self._workflows[name](Context(id), argument)
        return as_json(result, what=f"the result of workflow {name!r}")

    async def close(self, *, grace_s: float) -> None:
        """Start no more workflows, interrupt all, and wait at most `grace_s` seconds until they have cleaned up."""
        self._is_open = False
        with anyio.move_on_after(grace_s):
            async with anyio.create_task_group() as tasks:
                for execution in self.running:
                    tasks.start_soon(execution.interrupt)

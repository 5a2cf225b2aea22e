"""The engine on DBOS: control by a client, and an executor where there are workflows."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import sqlalchemy as sa

from ringfence.engine.base import Engine, Json, Workflow, WorkflowState, WorkflowStatus
from ringfence.engine.dbos.control import LOWEST, Control
from ringfence.engine.dbos.executor import Executor
from ringfence.engine.dbos.launch import silence
from ringfence.engine.json_value import plain
from ringfence.engine.liveness import Database, RecoveryCounter, liveness_of
from ringfence.errors import UsageError

Result = TypeVar("Result")


class DbosEngine(Engine):
    """See `open_engine`."""

    def __init__(
        self,
        url: str,
        *,
        workflows: Mapping[str, Workflow] | None,
        concurrency: int,
        recoveries: int,
    ) -> None:
        silence()
        self._database = Database(url)
        self.executor = None if workflows is None else uuid.uuid4().hex
        self._liveness = liveness_of(self._database, self.executor)
        self._recoveries = RecoveryCounter(self._database, limit=recoveries)
        self._workflows = workflows
        self._concurrency = concurrency
        self._control: Control | None = None
        self._work: Executor | None = None

    async def __aenter__(self) -> Self:
        self._threads = anyio.CapacityLimiter(8)
        try:
            await self._block(self._database.prepare)
            self._control = await self._block(Control, self._database, self._liveness, self._recoveries)
            if self._workflows is not None and self.executor is not None:
                work = Executor(
                    self._database,
                    self._control,
                    self._liveness,
                    recoveries=self._recoveries,
                    executor=self.executor,
                    workflows=self._workflows,
                )
                with self._database.translated_errors():
                    await work.start(concurrency=self._concurrency)
                self._work = work
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        if self._work is not None:
            await self._work.stop()
        await self._close()

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._control is not None:
                await anyio.to_thread.run_sync(self._control.close)
            await anyio.to_thread.run_sync(self._liveness.leave)
            await anyio.to_thread.run_sync(self._database.close)

    async def _block(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Call what blocks, in a thread."""
        with self._database.translated_errors():
            return await anyio.to_thread.run_sync(
                partial(function, *arguments, **options), limiter=self._threads
            )

    @property
    def _client(self) -> Control:
        if self._control is None:
            raise UsageError("the engine is not open: use `async with`")
        return self._control

    async def enqueue(self, workflow: str, *, id: str, argument: Json = None, priority: int = 0) -> bool:
        """See `Engine.enqueue`."""
        argument = _checked(argument, priority)
        return await self._block(self._client.enqueue, workflow, id, argument, priority)

    def enqueue_in(
        self, connection: sa.Connection, workflow: str, *, id: str, argument: Json = None, priority: int = 0
    ) -> None:
        """See `Engine.enqueue_in`."""
        self._client.enqueue_in(connection, workflow, id, _checked(argument, priority), priority)

    async def list(
        self,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[WorkflowState] | None = None,
        limit: int = 1000,
    ) -> list[WorkflowStatus]:
        """See `Engine.list`."""
        return await self._block(self._client.find, ids=ids, states=states, limit=limit)

    async def forget(self, ids: Sequence[str]) -> int:
        """See `Engine.forget`."""
        return len(await self._block(self._client.forget, ids))

    async def live_executors(self) -> Sequence[str]:
        """See `Engine.living`."""
        return await self._block(self._liveness.live_executors)

    async def stopped(self) -> str:
        """See `Engine.stopped`."""
        if self._work is None:
            await anyio.sleep_forever()
        assert self._work is not None
        await self._work.stopped.wait()
        return str(self._work.lost)


def _checked(argument: Json, priority: int) -> Json:
    if not 0 <= priority <= LOWEST:
        raise UsageError(f"a priority is 0 to {LOWEST}, not {priority}")
    return plain(argument, what="the argument of a workflow")

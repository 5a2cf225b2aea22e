"""Batches concurrent writes into one transaction, for example when a thousand schedules are due in one second."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from sqlalchemy import Connection

from ringfence.fleet.store.database import Database

Request = TypeVar("Request")
Result = TypeVar("Result")
Act = Callable[[Connection, Sequence[Request]], Sequence[Result | Exception]]
"""Executes the requests, in order. An exception in place of a result means that the request changed nothing."""
_MAX_REQUESTS = 500
"""How many requests one transaction executes: other writers wait for it."""


@dataclass(eq=False)
class _QueuedRequest(Generic[Request, Result]):
    """A request in the queue, with its result."""

    value: Request
    is_done: bool = False
    results: list[Result] = field(default_factory=list)
    """The result, if the request was executed."""
    error: Exception | None = None


class BatchWriter(Generic[Request, Result]):
    """A queue of writes of one process.

    Each request takes effect completely or not at all, independently of the others. None may wait for a resource that
    another process holds, since all the others would wait with it.

    Args:
        database: The database.
        act: Executes many requests at once. If it raises, each request is executed alone.
    """

    def __init__(self, database: Database, act: Act[Request, Result]) -> None:
        self._database = database
        self._act = act
        self._queue: list[_QueuedRequest[Request, Result]] = []
        self._lock = anyio.Lock()

    async def write(self, value: Request) -> Result:
        """As `Database.write`.

        Raises:
            InfrastructureFault: As `Database.write`: nothing was done.
        """
        request = _QueuedRequest[Request, Result](value)
        self._queue.append(request)
        try:
            async with self._lock:
                while not request.is_done:
                    await self._write_next()
        finally:
            if request in self._queue:  # otherwise it is being executed, or has been
                self._queue.remove(request)
        if request.error is not None:
            raise request.error
        return request.results[0]

    async def _write_next(self) -> None:
        """Execute the requests that have waited longest."""
        queued, self._queue = self._queue[:_MAX_REQUESTS], self._queue[_MAX_REQUESTS:]
        try:
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: self._execute(connection, queued))
        except Exception as exc:  # noqa: BLE001 -- `write` raises it for each request
            for request in queued:
                request.error = exc
        for request in queued:
            request.is_done = True

    def _execute(self, connection: Connection, queued: Sequence[_QueuedRequest[Request, Result]]) -> None:
        try:
            with connection.begin_nested():
                results = self._act(connection, [request.value for request in queued])
        except Exception as exc:  # noqa: BLE001 -- `write` raises it for this request
            if len(queued) == 1:
                queued[0].error = exc
                return
            for request in queued:
                self._execute(connection, [request])
            return
        for request, result in zip(queued, results, strict=True):
            if isinstance(result, Exception):
                request.error = result
            else:
                request.results = [result]

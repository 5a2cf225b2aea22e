"""Batches concurrent writes into one transaction, for example when a thousand schedules are due in one second."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from sqlalchemy import Connection

from ringfence.fleet.store.database import Database

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Act = Callable[[Connection, Sequence[Asked]], Sequence[Answer | Exception]]
"""Executes the requests, in order. An exception in place of an answer means that the request changed nothing."""
_MOST = 500
"""How many requests one transaction executes: other writers wait for it."""


@dataclass(eq=False)
class _Place(Generic[Asked, Answer]):
    """A request in the queue, with its result."""

    asked: Asked
    is_done: bool = False
    answers: list[Answer] = field(default_factory=list)
    """The answer, if the request was executed."""
    error: Exception | None = None


class BatchWriter(Generic[Asked, Answer]):
    """A queue of writes of one process.

    Each request takes effect completely or not at all, independently of the others. None may wait for a resource that
    another process holds, since all the others would wait with it.

    Args:
        database: The database.
        act: Executes many requests at once. If it raises, each request is executed alone.
    """

    def __init__(self, database: Database, act: Act[Asked, Answer]) -> None:
        self._database = database
        self._act = act
        self._queue: list[_Place[Asked, Answer]] = []
        self._turn = anyio.Lock()

    async def write(self, asked: Asked) -> Answer:
        """As `Database.write`.

        Raises:
            InfrastructureFault: As `Database.write`: nothing was done.
        """
        place = _Place[Asked, Answer](asked)
        self._queue.append(place)
        try:
            async with self._turn:
                while not place.is_done:
                    await self._write_next()
        finally:
            if place in self._queue:  # otherwise it is being executed, or has been
                self._queue.remove(place)
        if place.error is not None:
            raise place.error
        return place.answers[0]

    async def _write_next(self) -> None:
        """Execute the requests that have waited longest."""
        places, self._queue = self._queue[:_MOST], self._queue[_MOST:]
        try:
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: self._do(connection, places))
        except Exception as exc:  # noqa: BLE001 -- `write` raises it for each request
            for place in places:
                place.error = exc
        for place in places:
            place.is_done = True

    def _do(self, connection: Connection, places: Sequence[_Place[Asked, Answer]]) -> None:
        try:
            with connection.begin_nested():
                answers = self._act(connection, [place.asked for place in places])
        except Exception as exc:  # noqa: BLE001 -- `write` raises it for this request
            if len(places) == 1:
                places[0].error = exc
                return
            for place in places:
                self._do(connection, [place])
            return
        for place, answer in zip(places, answers, strict=True):
            if isinstance(answer, Exception):
                place.error = answer
            else:
                place.answers = [answer]

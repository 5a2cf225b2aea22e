"""Writes that come at the same time, done in one transaction: a thousand schedules are due in one second."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from sqlalchemy import Connection

from ringfence.fleet.store.database import Database

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Act = Callable[[Connection, Sequence[Asked]], Sequence[Answer | Exception]]
"""Does what was asked for, in order; an exception in an answer's place: that one was not done, and left nothing."""
_MOST = 500
"""Of them in one transaction, which others wait for."""


@dataclass(eq=False)
class _Place(Generic[Asked, Answer]):
    asked: Asked
    is_done: bool = False
    answers: list[Answer] = field(default_factory=list)
    """One, if it was done."""
    error: Exception | None = None


class BatchWriter(Generic[Asked, Answer]):
    """A queue of writes of one process.

    Each is done whole or not at all, whatever becomes of the others. None may wait for what another process holds: all
    wait with it.

    Args:
        database: Where.
        act: Does many of them in one go. Where it raises, each is tried alone.
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
            if place in self._queue:  # else somebody is at it, or has been
                self._queue.remove(place)
        if place.error is not None:
            raise place.error
        return place.answers[0]

    async def _write_next(self) -> None:
        """Do those that have waited longest."""
        places, self._queue = self._queue[:_MOST], self._queue[_MOST:]
        try:
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: self._do(connection, places))
        except Exception as exc:  # noqa: BLE001 -- it is raised where each was asked for
            for place in places:
                place.error = exc
        for place in places:
            place.is_done = True

    def _do(self, connection: Connection, places: Sequence[_Place[Asked, Answer]]) -> None:
        try:
            with connection.begin_nested():
                answers = self._act(connection, [place.asked for place in places])
        except Exception as exc:  # noqa: BLE001 -- it is raised where this one was asked for
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

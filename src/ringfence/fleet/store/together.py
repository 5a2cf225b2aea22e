"""Writes that come at the same time, done in one transaction: a thousand schedules are due in one second."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from sqlalchemy import Connection

from ringfence.fleet.store.database import Database

Answer = TypeVar("Answer")
_MOST = 100
"""Acts in one transaction, which others wait for."""


@dataclass(eq=False)
class _Place:
    act: Callable[[Connection], Any]
    is_done: bool = False
    answer: Any = None
    error: Exception | None = None


class Together:
    """A queue of writes of one process.

    Each is done whole or not at all, whatever becomes of the others. None may wait for what another process holds: all
    wait with it.

    Args:
        database: Where.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queue: list[_Place] = []
        self._turn = anyio.Lock()

    async def write(self, act: Callable[[Connection], Answer]) -> Answer:
        """As `Database.write`.

        Raises:
            InfrastructureFault: As `Database.write`: nothing was done.
        """
        place = _Place(act)
        self._queue.append(place)
        try:
            async with self._turn:
                while not place.is_done:
                    await self._write_next()
        finally:
            if not place.is_done:
                self._queue.remove(place)
        if place.error is not None:
            raise place.error
        answer: Answer = place.answer
        return answer

    async def _write_next(self) -> None:
        """Do those that have waited longest."""
        places, self._queue = self._queue[:_MOST], self._queue[_MOST:]
        try:
            with anyio.CancelScope(shield=True):
                await self._database.write(lambda connection: _do(connection, places))
        except Exception as exc:  # noqa: BLE001 -- it is raised where each was asked for
            for place in places:
                place.error = exc
        for place in places:
            place.is_done = True


def _do(connection: Connection, places: list[_Place]) -> None:
    for place in places:
        try:
            with connection.begin_nested():
                place.answer = place.act(connection)
        except Exception as exc:  # noqa: BLE001 -- it is raised where this one was asked for
            place.error = exc

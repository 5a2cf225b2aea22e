"""Distributes state changes to listeners. The database is read once for all of them, and only while there are any."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio

from ringfence.errors import InfrastructureFault
from ringfence.fleet.queries.changes import Change, ChangeReader
from ringfence.fleet.store.database import Database

_POLL_S = 0.1
_UNREACHABLE_S = 1.0
_ALIVE_S = 15.0
"""How often None is yielded while nothing changes, so that a listener that went away is noticed."""
_MAX_PENDING = 1000


@dataclass(eq=False)
class _Listener:
    pending: deque[Change] = field(default_factory=deque)
    is_behind: bool = False
    """Whether changes were lost because the listener was too slow."""

    def add(self, change: Change) -> None:
        if len(self.pending) < _MAX_PENDING:
            self.pending.append(change)
        else:
            self.is_behind = True

    def take(self) -> list[Change]:
        taken = [*self.pending]
        self.pending.clear()
        if self.is_behind:
            self.is_behind = False
            taken.append(Change("reset"))
        return taken


class ChangeFeed:
    """The changes of a fleet's database.

    Args:
        database: The database; None: there is no fleet, and nothing changes.
    """

    def __init__(self, database: Database | None) -> None:
        self._database = database
        self._reader: ChangeReader | None = None
        self._listeners: set[_Listener] = set()
        self._lock = anyio.Lock()
        self._read_at = float("-inf")

    async def listen(self) -> AsyncIterator[Change | None]:
        """Yield changes within 0.3 s, and None at first and after every 15 s without a change.

        The change `reset` means that some changes were lost.
        """
        listener = _Listener()
        if not self._listeners and self._database is not None:
            self._reader = ChangeReader(self._database)  # earlier changes do not matter
            self._read_at = float("-inf")
        self._listeners.add(listener)
        try:
            pause_s = await self._poll()
            quiet_since = anyio.current_time()
            yield None
            while True:
                for change in listener.take():
                    quiet_since = anyio.current_time()
                    yield change
                if anyio.current_time() - quiet_since > _ALIVE_S:
                    quiet_since = anyio.current_time()
                    yield None
                await anyio.sleep(pause_s)
                pause_s = await self._poll()
        finally:
            self._listeners.discard(listener)

    async def _poll(self) -> float:
        """Read the database, unless another listener has just done so; return the seconds until the next time."""
        if self._reader is None:
            return _UNREACHABLE_S
        async with self._lock:
            if anyio.current_time() - self._read_at < _POLL_S / 2:
                return _POLL_S / 2
            try:
                found = await self._reader.read()
            except InfrastructureFault:  # it may be back soon; routes that read report the error
                return _UNREACHABLE_S
            self._read_at = anyio.current_time()
            for change in found:
                for listener in self._listeners:
                    listener.add(change)
        return _POLL_S

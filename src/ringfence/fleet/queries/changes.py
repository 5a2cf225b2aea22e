"""Detects which jobs, agents, workers and questions have changed, and distributes the changes to listeners."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from sqlalchemy import Connection, Select, func, select

from ringfence.errors import InfrastructureFault
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import AGENTS, INBOX, JOBS, SCHEDULES, WORKERS

Noun = Literal["job", "agent", "schedule", "worker", "inbox", "reset"]
_MAX_JOBS = 1000
_OVERLAP_MS = 2000
"""A transaction that began before the last read may commit after it, with an older time of change."""
_POLL_S = 0.1
_UNREACHABLE_S = 1.0
_ALIVE_S = 15.0
"""How often None is yielded while nothing changes, so that a listener that went away is noticed."""
_MAX_PENDING = 1000


@dataclass(frozen=True)
class Change:
    """An object that was changed, created or removed. `reset`: more changes than can be listed."""

    noun: Noun
    id: str = ""
    state: str = ""
    agent: str = ""


@dataclass
class ChangeReader:
    """Compares the database with its state at the last call.

    Args:
        database: The fleet's database.
    """

    database: Database
    _jobs: dict[str, int] = field(default_factory=dict)
    """The time of change of each job that was reported last."""
    _last_ms: int = -1
    _rows: dict[tuple[Noun, str], tuple[Any, ...]] = field(default_factory=dict)

    async def read(self) -> list[Change]:
        """The changes since the last call; the first call returns none.

        Raises:
            InfrastructureFault: The database cannot be read.
        """
        return await self.database.read(lambda connection: [*self._changes(connection)])

    def _changes(self, connection: Connection) -> Iterator[Change]:
        if self._last_ms < 0:
            self._last_ms = connection.execute(select(func.max(JOBS.c.changed_ms))).scalar() or 0
            known = connection.execute(_changed_since(self._last_ms - _OVERLAP_MS)).all()
            self._jobs = {row.id: row.changed_ms for row in known}  # at most _MAX_JOBS + 1
            self._rows = dict(_rows_in(connection))
            return
        yield from self._job_changes(connection)
        rows = dict(_rows_in(connection))
        for noun, name in sorted(rows.keys() | self._rows.keys()):
            if rows.get((noun, name)) != self._rows.get((noun, name)):
                yield Change(noun, name)
        self._rows = rows

    def _job_changes(self, connection: Connection) -> Iterator[Change]:
        since = self._last_ms - _OVERLAP_MS
        rows = connection.execute(_changed_since(since)).all()
        if len(rows) > _MAX_JOBS:
            self._last_ms = connection.execute(select(func.max(JOBS.c.changed_ms))).scalar() or 0
            self._jobs = {}
            yield Change("reset")
            return
        for row in rows:
            if self._jobs.get(row.id) != row.changed_ms:
                yield Change("job", row.id, row.state, row.agent)
        self._jobs = {row.id: row.changed_ms for row in rows}
        self._last_ms = max([self._last_ms, *self._jobs.values()])


def _changed_since(ms: int) -> Select[Any]:
    return (
        select(JOBS.c.id, JOBS.c.state, JOBS.c.agent, JOBS.c.changed_ms)
        .where(JOBS.c.changed_ms >= ms)
        .order_by(JOBS.c.changed_ms)
        .limit(_MAX_JOBS + 1)
    )


def _rows_in(connection: Connection) -> Iterator[tuple[tuple[Noun, str], tuple[Any, ...]]]:
    """The rows of the small tables, by noun and name, without columns that change all the time."""
    for name, *values in connection.execute(select(AGENTS.c.name, AGENTS.c.is_enabled)):
        yield ("agent", name), tuple(values)
    columns = (SCHEDULES.c.agent, SCHEDULES.c.name, SCHEDULES.c.is_paused, SCHEDULES.c.last_slot_ms)
    for agent, name, *values in connection.execute(select(*columns)):
        yield ("schedule", f"{agent}/{name}"), tuple(values)
    for name, *values in connection.execute(select(WORKERS.c.id, WORKERS.c.is_draining, WORKERS.c.capacity)):
        yield ("worker", name), tuple(values)
    for name in connection.execute(select(INBOX.c.id).where(INBOX.c.answer.is_(None))).scalars():
        yield ("inbox", name), ()


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
    """The changes of a fleet's database, which is read once for all listeners, and only while there are any.

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

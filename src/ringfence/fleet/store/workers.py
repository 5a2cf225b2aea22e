"""Stores the workers of a fleet on all machines: their host, labels and capacity, and whether they take more jobs.

A worker registers when it starts and refreshes its row every few seconds. Whether it is alive is decided by its lock
(`ringfence.engine.liveness`), not by its row: the row holds what the lock cannot express.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from ringfence.errors import NotFound, UsageError
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import moment
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import WORKERS

REFRESH_S = 5.0
"""How often a worker refreshes its row."""
SILENT_S = 20.0
"""A worker whose row was not refreshed for this long has died, or cannot reach the database."""


@dataclass(frozen=True)
class WorkerState:
    """A worker as it registered, and when it was last seen."""

    id: str
    """The name of the worker's executor."""
    host: str
    pid: int
    version: str
    labels: tuple[str, ...]
    capacity: int
    """The number of jobs at once."""
    started_at: datetime
    seen_at: datetime
    is_draining: bool
    """Whether the worker takes no more jobs."""

    @property
    def is_alive(self) -> bool:
        """Whether the worker's row was refreshed recently."""
        return now_ms() - self.seen_at.timestamp() * 1000 < SILENT_S * 1000


class Workers:
    """The workers in a database. Safe to use from several processes and machines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(
        self, worker: str, *, host: str, pid: int, version: str, labels: Sequence[str], capacity: int
    ) -> None:
        """Add a worker, and remove the rows of workers that died long ago."""

        def act(connection: Connection) -> None:
            now = now_ms()
            connection.execute(delete(WORKERS).where(WORKERS.c.seen_ms < now - _FORGOTTEN_MS))
            connection.execute(delete(WORKERS).where(WORKERS.c.id == worker))
            row = {"id": worker, "host": host, "pid": pid, "version": version, "capacity": capacity}
            times = {"started_ms": now, "seen_ms": now, "is_draining": False}
            connection.execute(insert(WORKERS).values(**row, **times, labels=json.dumps(sorted(labels))))

        await self._database.write(act)

    async def refresh(self, worker: str) -> bool | None:
        """Refresh a worker's row; return whether it may take jobs: False if it drains, None if its row was removed."""

        def act(connection: Connection) -> bool | None:
            mine = WORKERS.c.id == worker
            connection.execute(update(WORKERS).where(mine).values(seen_ms=now_ms()))
            is_draining = connection.execute(select(WORKERS.c.is_draining).where(mine)).scalar()
            return None if is_draining is None else not is_draining

        return await self._database.write(act)

    async def leave(self, worker: str) -> None:
        """Remove a worker that is stopping."""
        await self._database.write(
            lambda connection: connection.execute(delete(WORKERS).where(WORKERS.c.id == worker))
        )

    async def all(self) -> list[WorkerState]:
        """All workers, ordered by machine."""
        return await self._database.read(workers_in)

    async def drain(self, reference: str, *, is_draining: bool) -> list[WorkerState]:
        """Drain workers, so that they take no more jobs, or make them take jobs again. Their running jobs continue.

        Args:
            reference: The name of a machine, or a worker's id or its beginning.
            is_draining: Whether the workers drain.

        Raises:
            NotFound: There is no such worker or machine.
            UsageError: Several workers' ids begin with the reference.
        """

        def act(connection: Connection) -> list[WorkerState]:
            ids = _ids_in(connection, reference)
            connection.execute(update(WORKERS).where(WORKERS.c.id.in_(ids)).values(is_draining=is_draining))
            rows = connection.execute(
                select(WORKERS).where(WORKERS.c.id.in_(ids)).order_by(WORKERS.c.id)
            ).mappings()
            return [_worker_of(row) for row in rows]

        return await self._database.write(act)

    async def remove(self, reference: str) -> list[WorkerState]:
        """Remove dead workers. Live ones are stopped by `fleet down` on their own machine, or by SIGTERM.

        Raises:
            NotFound: There is no such worker or machine.
            UsageError: It is alive.
        """

        def act(connection: Connection) -> list[WorkerState]:
            ids = _ids_in(connection, reference)
            rows = connection.execute(
                select(WORKERS).where(WORKERS.c.id.in_(ids)).order_by(WORKERS.c.id)
            ).mappings()
            found = [_worker_of(row) for row in rows]
            alive = [worker for worker in found if worker.is_alive]
            if alive:
                raise UsageError(
                    f"worker {alive[0].id[:8]} on {alive[0].host!r} is alive; `ringfence fleet workers drain` lets it "
                    "take no more jobs, SIGTERM to its process ends it"
                )
            connection.execute(delete(WORKERS).where(WORKERS.c.id.in_(ids)))
            return found

        return await self._database.write(act)


_FORGOTTEN_MS = 7 * 24 * 3600 * 1000


def workers_in(connection: Connection) -> list[WorkerState]:
    """As `Workers.all`, within a transaction."""
    query = select(WORKERS).order_by(WORKERS.c.host, WORKERS.c.started_ms, WORKERS.c.id)
    return [_worker_of(row) for row in connection.execute(query).mappings()]


def labels_in(workers: Collection[WorkerState]) -> frozenset[str]:
    """The labels, including the names of machines, for which a live worker takes jobs."""
    open_workers = [worker for worker in workers if worker.is_alive and not worker.is_draining]
    return frozenset(label for worker in open_workers for label in (*worker.labels, worker.host))


def _ids_in(connection: Connection, reference: str) -> list[str]:
    rows = connection.execute(select(WORKERS.c.id, WORKERS.c.host)).all()
    of_host = [row.id for row in rows if row.host == reference]
    if of_host:
        return of_host
    found = [row.id for row in rows if reference and row.id.startswith(reference)]
    if not found:
        raise NotFound(
            f"there is no worker or machine {reference!r}; `ringfence fleet workers ls` lists them"
        )
    if len(found) > 1:
        raise UsageError(f"{len(found)} workers have ids that begin with {reference!r}; give more of the id")
    return found


def _worker_of(row: RowMapping) -> WorkerState:
    started, seen = moment(row["started_ms"]), moment(row["seen_ms"])
    assert started is not None
    assert seen is not None
    return WorkerState(
        row["id"], row["host"], row["pid"], row["version"], tuple(json.loads(row["labels"])), row["capacity"],
        started, seen, bool(row["is_draining"]),
    )  # fmt: skip

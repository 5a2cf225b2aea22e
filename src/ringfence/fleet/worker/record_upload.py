"""Uploads the records of this machine's attempts to the fleet's record store, soon after they end."""

from functools import partial

import anyio
import anyio.lowlevel
from sqlalchemy import Connection, select, update

from ringfence.errors import RingfenceError
from ringfence.fleet.log import Log
from ringfence.fleet.record_store import TRANSFER_LIMIT_S, RecordStore, call_store
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import ATTEMPTS
from ringfence.journal import is_alive, run_dir

_SWEEP_S = 60.0
_AT_ONCE = 20
NOT_STORED = "-"
"""The record name of an attempt that has no record because it ended before its run began."""


class RecordUpload:
    """Uploads every record once, and retries failed uploads in the next sweep. Several workers of a machine may run it.

    Args:
        database: The fleet's database.
        store: The store for the records.
        host: The name of this machine.
        log: Reports why records could not be stored, once for each reason.
    """

    def __init__(self, database: Database, store: RecordStore, *, host: str, log: Log) -> None:
        self._database = database
        self._store = store
        self._host = host
        self._log = log
        self._wanted = anyio.Event()
        self._reported = ""

    def wake(self) -> None:
        """Sweep at once: an attempt has ended."""
        self._wanted.set()

    async def run(self) -> None:
        """Sweep whenever an attempt has ended, and every minute, until cancelled."""
        while True:
            self._wanted = anyio.Event()
            try:
                await self.sweep_all()
                self._reported = ""
            except RingfenceError as exc:
                if str(exc) != self._reported:
                    self._reported = str(exc)
                    self._log(f"{exc}; tried again each minute", event="record.not_stored")
            with anyio.move_on_after(_SWEEP_S):
                await self._wanted.wait()

    async def sweep_all(self) -> None:
        """Upload every record of an ended attempt that is not stored yet.

        Raises:
            InfrastructureFault: The store or the database cannot be used.
        """
        while await self.sweep() == _AT_ONCE:
            await anyio.lowlevel.checkpoint()

    async def sweep(self) -> int:
        """Upload records of ended attempts that are not stored yet, oldest first; return how many were examined.

        Raises:
            InfrastructureFault: The store or the database cannot be used.
        """

        def unstored(connection: Connection) -> list[tuple[str, int, str]]:
            mine = (
                ATTEMPTS.c.host == self._host,
                ATTEMPTS.c.record.is_(None),
                ATTEMPTS.c.ended_ms.is_not(None),
            )
            query = select(ATTEMPTS.c.job, ATTEMPTS.c.number, ATTEMPTS.c.run_id).where(*mine)
            rows = connection.execute(query.order_by(ATTEMPTS.c.started_ms).limit(_AT_ONCE))
            return [(row.job, row.number, row.run_id) for row in rows]

        found = await self._database.read(unstored)
        for job, number, run_id in found:
            directory = run_dir(run_id)
            if directory.is_dir() and is_alive(directory):
                continue
            is_there = directory.is_dir()
            if is_there:
                await call_store(partial(self._store.upload, run_id), limit_s=TRANSFER_LIMIT_S)
            name = run_id if is_there else NOT_STORED
            this = (ATTEMPTS.c.job == job, ATTEMPTS.c.number == number)
            await self._database.write(partial(_set_record, this, name))
        return len(found)


def _set_record(this: tuple[object, ...], name: str, connection: Connection) -> None:
    connection.execute(update(ATTEMPTS).where(*this).values(record=name))  # type: ignore[arg-type]

"""Ensures that one daemon, across all machines, admits the jobs of a database's fleet and follows their ends.

On SQLite the lock on the state directory is enough. On Postgres, daemons with other state directories and on other
machines see the same jobs: the daemon that runs them holds an advisory lock for as long as its connection lasts.
"""

import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
import sqlalchemy as sa

from ringfence.engine.liveness import Database
from ringfence.errors import InfrastructureFault

KEY = 0x72696E69
"""Key of the advisory lock."""
_RETRY_FOR_S = 3.0
"""How long to retry: the connection of a daemon that was just killed may exist for a moment longer."""
_RETRY_PAUSE_S = 0.2
_CHECK_S = 2.0
_STANDBY_S = 1.0
_NAME_LENGTH = 63
"""Characters of a connection's name that Postgres keeps."""
_KEEPALIVE = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000"
"""Makes the server, too, notice within some ten seconds that a machine is gone, and free its lock."""
_TRY = sa.select(sa.func.pg_try_advisory_lock(KEY))
_HOLDER = sa.text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' "
    "AND l.granted AND l.objsubid = 1 AND l.classid = 0 AND l.objid = :key "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class AnotherLeader(InfrastructureFault):
    """Another daemon runs the database's fleet. It may be about to end, so a standby daemon retries."""


class LeaderLock:
    """The lock of a database's daemon. `hold` acquires and holds it; `wait_until_lost` watches it.

    Args:
        url: The URL of the database.
        fleet: The name of the fleet.
    """

    def __init__(self, url: str, *, fleet: str) -> None:
        self._database = Database(url)
        self._name = f"{socket.gethostname()[:20]}, process {os.getpid()}, fleet {fleet}"[:_NAME_LENGTH]
        self._connection: sa.Connection | None = None
        self.lost_reason: str | None = None
        """Why the lock is lost for good; None: it is not, as far as `wait_until_lost` knows."""

    @property
    def is_local(self) -> bool:
        """Whether the database is a file of this machine, which no other daemon can share."""
        return self._database.file is not None

    @asynccontextmanager
    async def hold(self, *, on_wait: Callable[[str], None] | None = None) -> AsyncIterator[None]:
        """Hold the lock.

        Args:
            on_wait: Called each second, with the reason, while another daemon holds the lock or the database cannot be
                reached; an exception that it raises ends the wait. None: do not wait.

        Raises:
            AnotherLeader: Another daemon holds the lock.
            InfrastructureFault: The database cannot be reached.
        """
        if self._database.file is not None:
            yield
            return
        try:
            await self._acquire_or_wait(on_wait)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._release)

    async def _acquire_or_wait(self, on_wait: Callable[[str], None] | None) -> None:
        while True:
            try:
                await anyio.to_thread.run_sync(self._acquire)
            except InfrastructureFault as exc:  # AnotherLeader among them
                if on_wait is None:
                    raise
                on_wait(str(exc))
                await anyio.sleep(_STANDBY_S)
            else:
                return

    async def wait_until_lost(self) -> None:
        """Watch the lock and acquire it again after a lost connection, until that fails; sets `lost_reason`."""
        if self._database.file is not None:
            await anyio.sleep_forever()
        while True:
            await anyio.sleep(_CHECK_S)
            try:
                await anyio.to_thread.run_sync(self._check)
            except AnotherLeader as exc:
                self.lost_reason = str(exc)
                return
            except InfrastructureFault:
                continue  # no daemon can run the fleet without its database; the dispatcher logs that

    def _check(self) -> None:
        try:
            if self._connection is not None:
                self._connection.execute(sa.select(1))
                return
        except sa.exc.DBAPIError:
            self._release()
        self._acquire()

    def _acquire(self) -> None:
        settings = {"application_name": self._name, "options": _KEEPALIVE}
        engine = sa.create_engine(
            self._database.url.update_query_dict(settings),
            poolclass=sa.NullPool,
            isolation_level="AUTOCOMMIT",
        )
        with self._database.translated_errors():
            connection = engine.connect()
            give_up_at = time.monotonic() + _RETRY_FOR_S
            try:
                while not connection.execute(_TRY).scalar_one():
                    if time.monotonic() > give_up_at:
                        raise AnotherLeader(self._held_by(connection))
                    time.sleep(_RETRY_PAUSE_S)
            except BaseException:
                connection.close()
                raise
        self._connection = connection

    def _held_by(self, connection: sa.Connection) -> str:
        holder = connection.execute(_HOLDER, {"key": KEY}).scalar() or "another daemon"
        return (
            f"the database {self._database.shown!r} already has a daemon: {holder}; stop it "
            "(`ringfence fleet down` there), stand by for it with `ringfence fleet up --standby`, let this machine join "
            "it with `ringfence fleet worker`, or give this fleet its own database"
        )

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sa.exc.DBAPIError):
                connection.invalidate()
            with suppress(sa.exc.DBAPIError):
                connection.close()

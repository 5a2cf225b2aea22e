"""Whose a database's fleet is: the one daemon, of all machines, that admits its jobs and follows their ends.

On SQLite the lock on the state directory is enough. On Postgres daemons with other state directories, and on other
machines, see the same jobs: the one that works for them holds an advisory lock, for as long as its connection lasts.
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
"""Of the advisory lock."""
_PATIENCE_S = 3.0
"""The connection of a daemon that was just killed may be there for a moment."""
_STEP_S = 0.2
_LOOK_S = 2.0
_STANDBY_S = 1.0
_NAME = 63
"""Characters of a connection's name that Postgres keeps."""
_SOON = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 -c tcp_user_timeout=10000"
"""The server, too, notices within some ten seconds that a machine is gone: its lock is free then."""
_TRY = sa.select(sa.func.pg_try_advisory_lock(KEY))
_HOLDER = sa.text(
    "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' "
    "AND l.granted AND l.objsubid = 1 AND l.classid = 0 AND l.objid = :key "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class AnotherLeader(InfrastructureFault):
    """Another daemon works for the database's fleet. It may be about to end: who tries again stands by."""


class LeaderLock:
    """The lock of a database's daemon. `taken` holds it; `kept` watches over it.

    Args:
        url: Of the database.
        fleet: What the fleet is called.
    """

    def __init__(self, url: str, *, fleet: str) -> None:
        self._database = Database(url)
        self._name = f"{socket.gethostname()[:20]}, process {os.getpid()}, fleet {fleet}"[:_NAME]
        self._link: sa.Connection | None = None

    @property
    def is_local(self) -> bool:
        """Whether the database is one of this machine, which no other daemon can share."""
        return self._database.file is not None

    @asynccontextmanager
    async def taken(self, *, on_wait: Callable[[str], None] | None = None) -> AsyncIterator[None]:
        """Hold it.

        Args:
            on_wait: Called each second, with the reason, while another daemon holds it or the database is away; an
                exception of it ends the wait. None: do not wait.

        Raises:
            OwnedByAnother: Another daemon does.
            InfrastructureFault: The database cannot be reached.
        """
        if self._database.file is not None:
            yield
            return
        try:
            await self._take_in_turn(on_wait)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._drop)

    async def _take_in_turn(self, on_wait: Callable[[str], None] | None) -> None:
        while True:
            try:
                await anyio.to_thread.run_sync(self._take)
            except InfrastructureFault as exc:  # AnotherLeader among them
                if on_wait is None:
                    raise
                on_wait(str(exc))
                await anyio.sleep(_STANDBY_S)
            else:
                return

    async def kept(self) -> str:
        """Watch over it, for as long as it can be held: taken again after a break. Returns why it is lost for good."""
        if self._database.file is not None:
            await anyio.sleep_forever()
        while True:
            await anyio.sleep(_LOOK_S)
            try:
                await anyio.to_thread.run_sync(self._look)
            except AnotherLeader as exc:
                return str(exc)
            except InfrastructureFault:
                continue  # while the database is away nobody works for its fleet; the daemon tells of that elsewhere

    def _look(self) -> None:
        try:
            if self._link is not None:
                self._link.execute(sa.select(1))
                return
        except sa.exc.DBAPIError:
            self._drop()
        self._take()

    def _take(self) -> None:
        told = {"application_name": self._name, "options": _SOON}
        links = sa.create_engine(
            self._database.url.update_query_dict(told), poolclass=sa.NullPool, isolation_level="AUTOCOMMIT"
        )
        with self._database.translated_errors():
            link = links.connect()
            until = time.monotonic() + _PATIENCE_S
            try:
                while not link.execute(_TRY).scalar_one():
                    if time.monotonic() > until:
                        raise AnotherLeader(self._held_by(link))
                    time.sleep(_STEP_S)
            except BaseException:
                link.close()
                raise
        self._link = link

    def _held_by(self, link: sa.Connection) -> str:
        holder = link.execute(_HOLDER, {"key": KEY}).scalar() or "another daemon"
        return (
            f"the database {self._database.shown!r} has a daemon already: {holder}; end that one "
            "(`ringfence fleet down` there), have this machine join it with `ringfence fleet worker`, or give it "
            "one of its own"
        )

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(sa.exc.DBAPIError):
                link.invalidate()
            with suppress(sa.exc.DBAPIError):
                link.close()

"""Liveness by a session's advisory lock for each executor, on a connection of its own."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa

from ringfence.engine.liveness import identity
from ringfence.engine.liveness.base import HeartbeatMonitor, Liveness, LockLost
from ringfence.engine.liveness.database import EXECUTORS, Database
from ringfence.errors import InfrastructureFault

_GRACE_S = 5.0
"""After a restart of Postgres, or a break of our own connection, nobody is tried: all are about to come back."""
_ALONE_S = 30.0
"""An executor that cannot reach the database for so long counts itself as dead."""
_TURN = 0x72696E68
"""Key of the advisory lock of the one who takes over."""
_TURN_S = 10.0
_MASK = (1 << 32) - 1

_TRY = sa.text(
    "SELECT id, key, beat, host, pid, process, "
    "CASE WHEN now() - pg_postmaster_start_time() > make_interval(secs => :grace) "
    "THEN pg_try_advisory_lock(key) ELSE false END AS free FROM ringfence_executors "
    "WHERE id <> :me"
)
_HELD = (
    "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = key >> 32 AND objid::bigint = (key & 4294967295))"
)
_LIVING = sa.text(
    "SELECT id FROM ringfence_executors "  # noqa: S608 -- a constant
    f"WHERE {_HELD} ORDER BY started_at"
)
_END = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = :high AND objid::bigint = :low AND pid <> pg_backend_pid()"
)


class PostgresLiveness(Liveness):
    """The lock ends with the connection, and that with its process, or with its machine after some ten seconds.

    Args:
        database: Where.
        executor: Whose liveness this is; None for an onlooker.
    """

    def __init__(self, database: Database, executor: str | None) -> None:
        self._database = database
        self._executor = executor
        self._key = int.from_bytes(os.urandom(7))
        self._links = sa.create_engine(database.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        self._link: sa.Connection | None = None
        self._since = time.monotonic()
        self._broken_at = -math.inf
        self._silence = HeartbeatMonitor()

    def register(self) -> None:
        """See `Liveness.register`."""
        row = {
            "id": self._executor,
            "key": self._key,
            "host": identity.host(),
            "pid": os.getpid(),
            "process": identity.started(os.getpid()),
        }
        with self._database.translated_errors():
            link = self._links.connect()
            if not link.execute(sa.select(sa.func.pg_try_advisory_lock(self._key))).scalar_one():
                link.close()
                raise InfrastructureFault("the lock of a new executor is held already; try again")
            link.execute(sa.insert(EXECUTORS).values(**row))
        self._link = link

    def beat(self) -> bool:
        """See `Liveness.beat`."""
        if self._link is None and not self._reconnect():
            return False
        assert self._link is not None
        try:
            mine = EXECUTORS.c.id == self._executor
            done = self._link.execute(sa.update(EXECUTORS).where(mine).values(beat=EXECUTORS.c.beat + 1))
        except sa.exc.DBAPIError:
            self._unlink()
            self._since = time.monotonic()
            return self._reconnect()
        if done.rowcount == 0:
            raise LockLost("another executor has taken over its work")
        return True

    def _reconnect(self) -> bool:
        """Have the lock back; whether it was possible yet."""
        try:
            link = self._links.connect()
            if self._regain(link):
                self._link = link
                self._broken_at = time.monotonic()
                return True
            link.close()
        except sa.exc.DBAPIError:
            pass
        if time.monotonic() - self._since > _ALONE_S:
            raise LockLost(f"the database has been out of reach, or its lock held, for {_ALONE_S:g} s")
        return False

    def _regain(self, link: sa.Connection) -> bool:
        query = sa.select(EXECUTORS.c.id).where(EXECUTORS.c.id == self._executor)
        got = link.execute(sa.select(sa.func.pg_try_advisory_lock(self._key))).scalar_one()
        if link.execute(query).scalar() is None:
            link.close()
            raise LockLost("another executor has taken over its work")
        return bool(got)

    def _unlink(self) -> None:
        if self._link is not None:
            with suppress(sa.exc.DBAPIError):
                self._link.invalidate()
            with suppress(sa.exc.DBAPIError):
                self._link.close()
            self._link = None

    def reap(self) -> list[str]:
        """See `Liveness.bury`."""
        if self._link is None or time.monotonic() - self._broken_at < _GRACE_S:
            return []
        try:
            return self._try_all(self._link)
        except sa.exc.DBAPIError:
            return []  # the next beat sees to the connection

    def _try_all(self, link: sa.Connection) -> list[str]:
        rows = link.execute(_TRY, {"me": self._executor, "grace": _GRACE_S}).all()
        dead = [row for row in rows if row.free]
        for row in dead:
            link.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == row.id))
            link.execute(sa.select(sa.func.pg_advisory_unlock(row.key)))
        held = {row.id: row for row in rows if not row.free}
        for name in self._silence.look({name: row.beat for name, row in held.items()}, now=time.monotonic()):
            if held[name].host == identity.host():  # what it began here would go on beside what is begun anew
                identity.kill(held[name].pid, process=held[name].process)
            link.execute(_END, {"high": held[name].key >> 32, "low": held[name].key & _MASK})
        return [row.id for row in dead]

    def known(self) -> frozenset[str]:
        """See `Liveness.known`."""
        with self._database.engine.connect() as connection:
            return frozenset(connection.execute(sa.select(EXECUTORS.c.id)).scalars())

    def live_executors(self) -> list[str]:
        """See `Liveness.living`."""
        with self._database.engine.connect() as connection:
            return [*connection.execute(_LIVING).scalars()]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See `Liveness.turn`."""
        # On a connection of its own, which gives the lock back: who waits for its turn must not keep one of the pool
        # from who has it.
        with self._database.translated_errors(), self._links.connect() as link:
            link.exec_driver_sql(f"SET lock_timeout = '{_TURN_S:g}s'")
            link.execute(sa.select(sa.func.pg_advisory_lock(_TURN)))
            yield

    def leave(self) -> None:
        """See `Liveness.leave`."""
        with suppress(sa.exc.DBAPIError):
            if self._link is not None:
                self._link.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == self._executor))
        self._unlink()
        self._links.dispose()

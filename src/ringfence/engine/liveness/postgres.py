"""Implements liveness with a session-level advisory lock for each executor, on a separate connection."""

import math
import os
import select
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import sqlalchemy as sa

from ringfence.engine.liveness import identity
from ringfence.engine.liveness.base import HOST, LOCK_TIMEOUT_S, Liveness, LockLost
from ringfence.engine.liveness.database import EXECUTORS, Database
from ringfence.errors import InfrastructureFault

_GRACE_S = 5.0
"""How long, after a restart of Postgres or a loss of this connection, no executor counts as dead: all reconnect."""
_UNREACHABLE_S = 30.0
"""An executor that cannot reach the database for this long counts itself as dead."""
_POLL_S = 0.25
_TAKE_OVER = 0x72696E68
"""Key of the advisory lock that serialises take-overs."""
_CHANNEL = "ringfence_enqueued"
_MASK = (1 << 32) - 1

_TRY = sa.text(
    "SELECT id, key, beat, host, pid, process, "
    "CASE WHEN now() - pg_postmaster_start_time() > make_interval(secs => :grace) "
    "THEN pg_try_advisory_lock(key) ELSE false END AS free FROM ringfence_executors "
    "WHERE id <> :me"
)
_HELD = (
    "locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
)
_LIVE = sa.text(
    f"SELECT id FROM ringfence_executors WHERE EXISTS (SELECT 1 FROM pg_locks WHERE {_HELD} "  # noqa: S608 -- constants
    "AND classid::bigint = key >> 32 AND objid::bigint = (key & 4294967295)) ORDER BY started_at"
)
_END = sa.text(
    f"SELECT pg_terminate_backend(pid) FROM pg_locks WHERE {_HELD} "  # noqa: S608 -- constants
    "AND classid::bigint = :high AND objid::bigint = :low AND pid <> pg_backend_pid()"
)


class PostgresLiveness(Liveness):
    """Liveness by an advisory lock of a session of Postgres.

    The server releases the lock when the process ends, and about ten seconds after its machine was lost.

    Args:
        database: See `Liveness`.
        executor: See `Liveness`.
    """

    def __init__(self, database: Database, executor: str | None) -> None:
        super().__init__(database, executor)
        self._key = int.from_bytes(os.urandom(7))
        self._engine = sa.create_engine(database.url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        self._connection: sa.Connection | None = None
        self._lost_at = time.monotonic()
        self._reconnected_at = -math.inf
        self._notifications: deque[object] = deque(maxlen=1)

    def register(self) -> None:
        """See `Liveness.register`."""
        with self._database.translated_errors(), ExitStack() as stack:
            connection = stack.enter_context(closing(self._engine.connect()))
            if not self._try_lock(connection):
                raise InfrastructureFault("the lock of a new executor is held already; try again")
            connection.execute(sa.insert(EXECUTORS).values(**self._row(self._key)))
            stack.pop_all()
        self._connection = connection

    def _try_lock(self, connection: sa.Connection) -> bool:
        driver: Any = connection.connection.driver_connection
        driver.add_notify_handler(self._notifications.append)
        connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
        return bool(connection.execute(sa.select(sa.func.pg_try_advisory_lock(self._key))).scalar_one())

    def heartbeat(self) -> bool:
        """See `Liveness.heartbeat`."""
        if self._connection is None and not self._reconnect():
            return False
        mine = EXECUTORS.c.id == self._executor
        try:
            with self._connected() as connection:
                done = connection.execute(sa.update(EXECUTORS).where(mine).values(beat=EXECUTORS.c.beat + 1))
        except sa.exc.DBAPIError:
            return self._reconnect()
        if done.rowcount == 0:
            raise LockLost("another executor has taken over its work")
        return True

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        """The connection. It is closed after an error, since one reopened by SQLAlchemy would not hold the lock."""
        assert self._connection is not None
        try:
            yield self._connection
        except sa.exc.DBAPIError:
            self._lost_at = time.monotonic()
            self._disconnect()
            raise

    def _reconnect(self) -> bool:
        """Take the lock again on a new connection; return whether that has succeeded."""
        mine = sa.select(EXECUTORS.c.id).where(EXECUTORS.c.id == self._executor)
        is_locked, is_registered = False, True
        with suppress(sa.exc.DBAPIError), ExitStack() as stack:
            connection = stack.enter_context(closing(self._engine.connect()))
            is_locked = self._try_lock(connection)
            is_registered = connection.execute(mine).scalar() is not None
            if is_locked and is_registered:
                stack.pop_all()
                self._connection = connection
                self._reconnected_at = time.monotonic()
                return True
        if not is_registered:
            raise LockLost("another executor has taken over its work")
        if time.monotonic() - self._lost_at > _UNREACHABLE_S:
            raise LockLost(f"the database has been out of reach, or its lock held, for {_UNREACHABLE_S:g} s")
        return False

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sa.exc.DBAPIError):
                connection.invalidate()
            with suppress(sa.exc.DBAPIError):
                connection.close()

    def remove_dead(self) -> bool:
        """See `Liveness.remove_dead`."""
        if self._connection is None or time.monotonic() - self._reconnected_at < _GRACE_S:
            return False
        with suppress(sa.exc.DBAPIError), self._connected() as connection:
            return self._remove_dead(connection)
        return False  # the next heartbeat reconnects

    def _remove_dead(self, connection: sa.Connection) -> bool:
        rows = connection.execute(_TRY, {"me": self._executor, "grace": _GRACE_S}).all()
        dead = [row for row in rows if row.free]
        for row in dead:
            connection.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == row.id))
            connection.execute(sa.select(sa.func.pg_advisory_unlock(row.key)))
        alive = {row.id: row for row in rows if not row.free}
        heartbeats = {name: row.beat for name, row in alive.items()}
        for name in self._heartbeats.overdue(heartbeats, now=time.monotonic()):
            row = alive[name]
            if row.host == HOST:  # its work here would run beside the same work elsewhere
                identity.kill(row.pid, process=row.process)
            connection.execute(_END, {"high": row.key >> 32, "low": row.key & _MASK})
        return bool(dead)

    def live_executors(self) -> list[str]:
        """See `Liveness.live_executors`."""
        with self._database.engine.connect() as connection:
            return [*connection.execute(_LIVE).scalars()]

    @contextmanager
    def take_over_lock(self) -> Iterator[None]:
        """See `Liveness.take_over_lock`."""
        # On a separate connection: a waiting process must not keep a pooled connection from the holder of the lock.
        with self._database.translated_errors(), self._engine.connect() as connection:
            connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_TIMEOUT_S:g}s'")
            connection.execute(sa.select(sa.func.pg_advisory_lock(_TAKE_OVER)))
            yield

    def wake(self, connection: sa.Connection | None = None) -> None:
        """See `Liveness.wake`."""
        if connection is not None:
            connection.exec_driver_sql(f"NOTIFY {_CHANNEL}")
        else:
            with self._database.engine.begin() as own:
                own.exec_driver_sql(f"NOTIFY {_CHANNEL}")

    def wait(self, timeout_s: float) -> bool:
        """See `Liveness.wait`."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0 and not self._is_interrupted.is_set():
            if self._connection is None:
                self._is_interrupted.wait(left_s)
            elif self._is_notified(min(left_s, _POLL_S)):
                return True
        return False

    def _is_notified(self, timeout_s: float) -> bool:
        """Wait for a notification; one that arrived with the response to another statement also counts."""
        with suppress(sa.exc.DBAPIError), self._connected() as connection:
            driver: Any = connection.connection.driver_connection
            arrived = select.poll()
            arrived.register(driver.fileno(), select.POLLIN)
            if not self._notifications and arrived.poll(timeout_s * 1000):
                connection.exec_driver_sql("SELECT 1")  # the driver reads notifications only with responses
        is_notified = bool(self._notifications)
        self._notifications.clear()
        return is_notified

    def unregister(self) -> None:
        """See `Liveness.unregister`."""
        with suppress(sa.exc.DBAPIError):
            if self._connection is not None:
                self._connection.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == self._executor))
        self._disconnect()
        self._engine.dispose()

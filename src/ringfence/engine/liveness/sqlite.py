"""Implements liveness with a lock file for each executor, beside the database file."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from ringfence.engine.liveness import identity
from ringfence.engine.liveness.base import HOST, LOCK_TIMEOUT_S, Liveness, LockLost
from ringfence.engine.liveness.database import EXECUTORS, Database
from ringfence.errors import InfrastructureFault
from ringfence.flock import try_lock

_POLL_S = 0.05


class SqliteLiveness(Liveness):
    """The heartbeat is the modification time of the lock file, so that an idle fleet does not write its database.

    Args:
        database: See `Liveness`.
        executor: See `Liveness`.
        file: The file of the database.
    """

    def __init__(self, database: Database, executor: str | None, file: Path) -> None:
        super().__init__(database, executor)
        self._file = file
        self._folder = file.with_name(f"{file.name}.executors")
        self._fd: int | None = None
        self._watch: sqlite3.Connection | None = None
        self._version = 0

    def _lock_of(self, executor: str) -> Path:
        return self._folder / f"{executor}.lock"

    def register(self) -> None:
        """See `Liveness.register`."""
        assert self._executor is not None
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._lock_of(self._executor)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if not try_lock(self._fd, fcntl.LOCK_EX, what=str(path)):
            raise InfrastructureFault(f"the new lock {str(path)!r} is held already")
        with self._database.engine.begin() as connection:
            connection.execute(sa.insert(EXECUTORS).values(**self._row(0)))

    def heartbeat(self) -> bool:
        """See `Liveness.heartbeat`."""
        assert self._fd is not None
        os.utime(self._fd)
        if self._executor not in self.registered():
            raise LockLost("another executor has taken over its work")
        return True

    def remove_dead(self) -> bool:
        """See `Liveness.remove_dead`."""
        columns = (EXECUTORS.c.id, EXECUTORS.c.host, EXECUTORS.c.pid, EXECUTORS.c.process)
        with self._database.engine.connect() as connection:
            rows = connection.execute(sa.select(*columns).where(EXECUTORS.c.id != self._executor)).all()
        heartbeats = {row.id: self._heartbeat_of(row.id) for row in rows}
        dead = [name for name, heartbeat in heartbeats.items() if heartbeat is None]
        for name in dead:
            self._remove(name)
        alive = {name: heartbeat for name, heartbeat in heartbeats.items() if heartbeat is not None}
        overdue = self._heartbeats.overdue(alive, now=time.monotonic())
        for row in rows:
            if row.id in overdue and row.host == HOST:
                identity.kill(row.pid, process=row.process)
        return bool(dead)

    def _heartbeat_of(self, executor: str) -> int | None:
        """The modification time of a lock file, in nanoseconds; None if the lock is free."""
        path = self._lock_of(executor)
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            if try_lock(fd, fcntl.LOCK_EX, what=str(path)):
                return None
            return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)

    def _remove(self, executor: str) -> None:
        with self._database.engine.begin() as connection:
            connection.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == executor))
        self._lock_of(executor).unlink(missing_ok=True)

    def live_executors(self) -> list[str]:
        """See `Liveness.live_executors`."""
        names = sorted(self.registered())
        return [name for name in names if name == self._executor or self._heartbeat_of(name) is not None]

    @contextmanager
    def take_over_lock(self) -> Iterator[None]:
        """See `Liveness.take_over_lock`."""
        fd = os.open(self._folder / "turn", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + LOCK_TIMEOUT_S
            while not try_lock(fd, fcntl.LOCK_EX, what="the lock of take-overs"):
                if time.monotonic() > deadline:
                    raise InfrastructureFault(
                        f"another process has taken workflows over for more than {LOCK_TIMEOUT_S:g} s"
                    )
                time.sleep(0.01)
            yield
        finally:
            os.close(fd)

    def wait(self, timeout_s: float) -> bool:
        """See `Liveness.wait`. Ends whenever another connection has written anything to the database."""
        deadline = time.monotonic() + timeout_s
        while not self._is_interrupted.wait(_POLL_S) and time.monotonic() < deadline:
            if self._is_changed():
                return True
        return False

    def wake(self, connection: sa.Connection | None = None) -> None:
        """Do nothing: `wait` detects the write itself."""

    def _is_changed(self) -> bool:
        if self._watch is None:
            self._watch = sqlite3.connect(self._file, check_same_thread=False)
        before = self._version
        with suppress(sqlite3.OperationalError):  # briefly locked, which also means a change
            (self._version,) = self._watch.execute("PRAGMA data_version").fetchone()
        return before != self._version

    def unregister(self) -> None:
        """See `Liveness.unregister`."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._fd is not None and self._executor is not None:
            self._remove(self._executor)
            os.close(self._fd)
            self._fd = None

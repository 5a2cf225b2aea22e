"""Liveness by a lock file for each executor, beside the database file."""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from ringfence.engine.liveness import identity
from ringfence.engine.liveness.base import HeartbeatMonitor, Liveness, LockLost
from ringfence.engine.liveness.database import EXECUTORS, Database
from ringfence.errors import InfrastructureFault
from ringfence.flock import try_lock

_TURN_S = 10.0
_BEAT_BYTES = 20


class SqliteLiveness(Liveness):
    """The beat is a number in the lock file: a silent database stays silent.

    Args:
        database: Where the executors are listed.
        file: The database's.
        executor: Whose liveness this is; None for an onlooker.
    """

    def __init__(self, database: Database, file: Path, executor: str | None) -> None:
        self._engine = database.engine
        self._folder = file.with_name(file.name + ".executors")
        self._executor = executor
        self._fd: int | None = None
        self._beat = 0
        self._silence = HeartbeatMonitor()

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
        self.beat_once()
        row = {
            "id": self._executor,
            "key": 0,
            "host": identity.host(),
            "pid": os.getpid(),
            "process": identity.started(os.getpid()),
        }
        with self._engine.begin() as connection:
            connection.execute(sa.insert(EXECUTORS).values(**row))

    def beat_once(self) -> None:
        """Write the next number."""
        assert self._fd is not None
        self._beat += 1
        os.pwrite(self._fd, b"%*d" % (_BEAT_BYTES, self._beat), 0)

    def beat(self) -> bool:
        """See `Liveness.beat`."""
        self.beat_once()
        query = sa.select(EXECUTORS.c.id).where(EXECUTORS.c.id == self._executor)
        with self._engine.connect() as connection:
            if connection.execute(query).scalar() is None:
                raise LockLost("another executor has taken over its work")
        return True

    def reap(self) -> list[str]:
        """See `Liveness.bury`."""
        rows = [row for row in self._rows() if row.id != self._executor]
        beats: dict[str, int] = {}
        dead = []
        for row in rows:
            beat = self._beat_of(row.id)
            if beat is None:
                self._forget(row.id)
                dead.append(row.id)
            else:
                beats[row.id] = beat
        silent = self._silence.look(beats, now=time.monotonic())
        for row in rows:
            if row.id in silent and row.host == identity.host():
                identity.kill(row.pid, process=row.process)
        return dead

    def _rows(self) -> Sequence[Any]:
        columns = (EXECUTORS.c.id, EXECUTORS.c.host, EXECUTORS.c.pid, EXECUTORS.c.process)
        with self._engine.connect() as connection:
            return connection.execute(sa.select(*columns)).all()

    def _beat_of(self, executor: str) -> int | None:
        """What its lock file says; None if its lock is free."""
        path = self._lock_of(executor)
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            if try_lock(fd, fcntl.LOCK_EX, what=str(path)):
                return None
            return int(os.pread(fd, _BEAT_BYTES, 0) or b"0")
        finally:
            os.close(fd)

    def _forget(self, executor: str) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.delete(EXECUTORS).where(EXECUTORS.c.id == executor))
        self._lock_of(executor).unlink(missing_ok=True)

    def known(self) -> frozenset[str]:
        """See `Liveness.known`."""
        return frozenset(row.id for row in self._rows())

    def live_executors(self) -> list[str]:
        """See `Liveness.living`."""
        names = [row.id for row in self._rows()]
        return [name for name in names if name == self._executor or self._beat_of(name) is not None]

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See `Liveness.turn`."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._folder / "turn", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + _TURN_S
            while not try_lock(fd, fcntl.LOCK_EX, what="the turn of taking over"):
                if time.monotonic() > deadline:
                    raise InfrastructureFault(
                        f"another process takes workflows over for more than {_TURN_S:g} s"
                    )
                time.sleep(0.01)
            yield
        finally:
            os.close(fd)

    def leave(self) -> None:
        """See `Liveness.leave`."""
        if self._fd is None or self._executor is None:
            return
        self._forget(self._executor)
        os.close(self._fd)
        self._fd = None

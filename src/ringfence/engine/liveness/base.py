"""Defines the contract of liveness: locks, heartbeats, and how long a missing heartbeat is tolerated."""

import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

import sqlalchemy as sa

from ringfence.engine.liveness import identity
from ringfence.engine.liveness.database import EXECUTORS, Database

HEARTBEAT_S = 1.0
"""How often an executor writes its heartbeat and tries the locks of the others."""
HEARTBEAT_TIMEOUT_S = 15.0
"""An executor that holds its lock without a heartbeat for this long is stopped (SIGSTOP) or hangs, and is killed."""
LOCK_TIMEOUT_S = 10.0
"""How long to wait for the lock that serialises take-overs."""
HOST = socket.gethostname()


class LockLost(Exception):
    """This executor's lock or row is gone: others have taken over its workflows, or will."""


class Liveness(ABC):
    """The liveness of one executor, or the view of an observer. All methods block, for about ten seconds at most.

    Args:
        database: The database of the engine.
        executor: The name of the executor; None: an observer, which is not registered.
    """

    def __init__(self, database: Database, executor: str | None) -> None:
        self._database = database
        self._executor = executor
        self._heartbeats = HeartbeatMonitor()
        self._is_interrupted = threading.Event()

    @abstractmethod
    def register(self) -> None:
        """Take the lock and add the executor's row. An executor registers before it claims workflows."""

    @abstractmethod
    def heartbeat(self) -> bool:
        """Write a heartbeat; False while the database cannot be reached.

        Raises:
            LockLost: Others have removed this executor.
        """

    @abstractmethod
    def remove_dead(self) -> bool:
        """Remove executors whose lock is free; return whether there were any.

        An executor that holds its lock without a heartbeat for `HEARTBEAT_TIMEOUT_S` is killed, or its database session
        is ended, so that the next call removes it.
        """

    @abstractmethod
    def live_executors(self) -> list[str]:
        """The names of the executors that hold their lock."""

    @abstractmethod
    def take_over_lock(self) -> AbstractContextManager[None]:
        """A lock that keeps all other executors from taking workflows over."""

    @abstractmethod
    def wait(self, timeout_s: float) -> bool:
        """Wait until any process may have enqueued a workflow; False after the timeout."""

    @abstractmethod
    def unregister(self) -> None:
        """Release the lock and remove the executor's row. Does nothing for an observer."""

    @abstractmethod
    def wake(self, connection: sa.Connection | None = None) -> None:
        """End the `wait` of all executors when the connection's transaction commits; without a connection, at once."""

    def interrupt(self) -> None:
        """End the `wait` of this executor for good."""
        self._is_interrupted.set()

    def registered(self) -> frozenset[str]:
        """The names of all executors that are not known to be dead."""
        with self._database.engine.connect() as connection:
            return frozenset(connection.execute(sa.select(EXECUTORS.c.id)).scalars())

    def _row(self, key: int) -> Mapping[str, object]:
        process = identity.started(os.getpid())
        return {"id": self._executor, "key": key, "host": HOST, "pid": os.getpid(), "process": process}


class HeartbeatMonitor:
    """Measures how long each executor has been without a heartbeat, as seen by this process.

    Between two calls at most two heartbeat intervals are counted, since this process, alone or with its machine, may
    have been suspended and observed nothing in that time. No clock of another machine is read.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked_at: float | None = None

    def overdue(self, heartbeats: Mapping[str, int], *, now: float) -> list[str]:
        """The executors without a heartbeat for too long.

        Args:
            heartbeats: The current heartbeat counter of each executor.
            now: The time in seconds of a monotonic clock.
        """
        passed_s = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * HEARTBEAT_S)
        self._looked_at = now
        seen: dict[str, tuple[int, float]] = {}
        for name, heartbeat in heartbeats.items():
            before, silent_s = self._seen.get(name, (heartbeat, -passed_s))
            seen[name] = (heartbeat, silent_s + passed_s if before == heartbeat else 0.0)
        self._seen = seen
        return [name for name, (_, silent_s) in seen.items() if silent_s >= HEARTBEAT_TIMEOUT_S]

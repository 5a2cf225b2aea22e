"""The contract of liveness, and how long a silence is seen."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager

BEAT_S = 1.0
"""How often an executor says that it lives, and tries the locks of the others."""
SILENCE_S = 15.0
"""Whose lock is held, but who says nothing for so long, is stopped (SIGSTOP) and is ended."""


class LockLost(Exception):
    """An executor's lock is gone, or its row: others have taken over what it ran, or will."""


class Liveness(ABC):
    """Of one executor, or of an onlooker, which is registered nowhere. All calls block, for some ten seconds at most."""

    @abstractmethod
    def register(self) -> None:
        """Take the lock, and be known. Before anything is run."""

    @abstractmethod
    def beat(self) -> bool:
        """Say that this executor lives; False while the database cannot be reached.

        Raises:
            LockLost: It does not, for the others.
        """

    @abstractmethod
    def reap(self) -> list[str]:
        """Try the others: those whose lock is free are dead and known no longer. Returns their names.

        One that holds its lock but has been silent for `SILENCE_S` is made to lose it, and is dead the next time.
        """

    @abstractmethod
    def known(self) -> frozenset[str]:
        """Names of all that are not known to be dead."""

    @abstractmethod
    def live_executors(self) -> list[str]:
        """Names of those that hold their locks."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[None]:
        """Be the only one of all processes that takes workflows over, or removes some."""

    @abstractmethod
    def leave(self) -> None:
        """Give the lock back and be known no longer."""


class HeartbeatMonitor:
    """How long others have been silent, by what this process has seen itself.

    Between two looks no more than two beats are counted: whoever was suspended itself, with the whole machine or not,
    has seen nothing meanwhile. No clock of another is asked.
    """

    def __init__(self) -> None:
        self._beats: dict[str, tuple[int, float]] = {}
        self._looked_at: float | None = None

    def look(self, beats: Mapping[str, int], *, now: float) -> list[str]:
        """Who has been silent for too long.

        Args:
            beats: What each one's beat says now.
            now: Seconds on a monotonic clock.
        """
        passed = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * BEAT_S)
        self._looked_at = now
        seen: dict[str, tuple[int, float]] = {}
        for name, beat in beats.items():
            before, silent_s = self._beats.get(name, (beat, 0.0))
            seen[name] = (beat, silent_s + passed if name in self._beats and before == beat else 0.0)
        self._beats = seen
        return [name for name, (_, silent_s) in seen.items() if silent_s >= SILENCE_S]

"""What an interrupt stops: the first one what is inside just now, the second everything."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from ringfence.grace import GRACES


class Stops:
    """The cancel scopes of one run."""

    def __init__(self) -> None:
        self.whole = anyio.CancelScope()
        """Around everything; cancelled by the second call of `stop`."""
        self.reason = "stopped by the user"
        self._graces: set[anyio.CancelScope] = set()
        self._count = 0
        self._current: anyio.CancelScope | None = None

    def stop(self, reason: str | None = None) -> None:
        """Stop gently; at once if that was asked for before.

        Args:
            reason: Why, where it is not the user.
        """
        self._count += 1
        if self._count > 1:
            for scope in (self.whole, *self._graces):
                scope.cancel()
            return
        self.reason = reason or self.reason
        if self._current is not None:
            self._current.cancel()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._count > 0

    def watch_graces(self) -> None:
        """Take away at the second call of `stop` what time the tasks begun from here on take to end in order."""
        GRACES.set(self._graces)

    @contextmanager
    def gentle(self) -> Iterator[anyio.CancelScope]:
        """A part that the first interrupt stops; one that came before stops it at once."""
        with self.interruptible() as scope:
            if self._count:
                scope.cancel()
            yield scope

    @contextmanager
    def interruptible(self) -> Iterator[anyio.CancelScope]:
        """A part that the next interrupt stops, whether or not one came before."""
        with anyio.CancelScope() as scope:
            self._current = scope
            try:
                yield scope
            finally:
                self._current = None

"""What an interrupt stops: the first one what is inside just now, the second everything."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Stops:
    """The cancel scopes of one run."""

    def __init__(self) -> None:
        self.whole = anyio.CancelScope()
        """Around everything; cancelled by the second call of `stop`."""
        self.reason = "stopped by the user"
        self._count = 0
        self._current: anyio.CancelScope | None = None

    def stop(self, reason: str | None = None) -> None:
        """Stop gently; at once if that was asked for before.

        Args:
            reason: Why, where it is not the user.
        """
        self._count += 1
        if self._count > 1:
            self.whole.cancel()
            return
        self.reason = reason or self.reason
        if self._current is not None:
            self._current.cancel()

    @contextmanager
    def gentle(self) -> Iterator[anyio.CancelScope]:
        """A part that the first interrupt stops; one that came before stops it at once."""
        with anyio.CancelScope() as scope:
            self._current = scope
            if self._count:
                scope.cancel()
            try:
                yield scope
            finally:
                self._current = None

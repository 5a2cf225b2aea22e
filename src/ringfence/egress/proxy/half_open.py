"""Connections that have not said yet what they want: few at once, and the oldest goes first."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

MOST = 64


class HalfOpen:
    """Holds them. When one more comes than may be, the one that has waited longest is given up.

    A client that means it sends its request at once; a flood that sends none pushes out itself.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._scopes: dict[anyio.CancelScope, None] = {}

    @contextmanager
    def waiting(self) -> Iterator[anyio.CancelScope]:
        """While a connection's request is awaited; cancelled if others push it out."""
        while len(self._scopes) >= self._most:
            oldest = next(iter(self._scopes))
            del self._scopes[oldest]
            oldest.cancel()
        with anyio.CancelScope() as scope:
            self._scopes[scope] = None
            try:
                yield scope
            finally:
                self._scopes.pop(scope, None)

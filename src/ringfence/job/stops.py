"""Handles interrupts of a run: the first one stops the current phase, the second one stops the run."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from ringfence.grace import GRACES


class Stops:
    """The cancel scopes of one run."""

    def __init__(self) -> None:
        self.run = anyio.CancelScope()
        """The scope of the run, which the second call of `stop` cancels."""
        self.reason = "stopped by the user"
        self._graces: set[anyio.CancelScope] = set()
        self._count = 0
        self._phase: anyio.CancelScope | None = None

    def stop(self, reason: str | None = None) -> None:
        """Stop the current phase; from the second call on, stop the run at once.

        Args:
            reason: Why the run stops, if the user did not request it.
        """
        self._count += 1
        if self._count > 1:
            for scope in (self.run, *self._graces):
                scope.cancel()
            return
        self.reason = reason or self.reason
        if self._phase is not None:
            self._phase.cancel()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._count > 0

    def watch_graces(self) -> None:
        """Make the second call of `stop` also end the grace periods of tasks that start from here on."""
        GRACES.set(self._graces)

    @contextmanager
    def stopped_by_any_interrupt(self) -> Iterator[anyio.CancelScope]:
        """A phase that the first interrupt stops, immediately if it came before the phase."""
        with self.stopped_by_next_interrupt() as scope:
            if self._count:
                scope.cancel()
            yield scope

    @contextmanager
    def stopped_by_next_interrupt(self) -> Iterator[anyio.CancelScope]:
        """A phase that the next interrupt stops, whether or not there was one before."""
        with anyio.CancelScope() as scope:
            self._phase = scope
            try:
                yield scope
            finally:
                self._phase = None

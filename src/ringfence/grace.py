"""Time to end in order after a cancellation, which whoever is in a hurry can take away."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio

GRACES: ContextVar[set[anyio.CancelScope] | None] = ContextVar("GRACES", default=None)
"""Where the scopes of those who take such time are noted, for somebody to cancel them."""


@contextmanager
def grace() -> Iterator[anyio.CancelScope]:
    """A part that no cancellation from outside reaches, but for one of its scope. It has to end by itself."""
    known = GRACES.get()
    with anyio.CancelScope(shield=True) as scope:
        if known is not None:
            known.add(scope)
        try:
            yield scope
        finally:
            if known is not None:
                known.discard(scope)

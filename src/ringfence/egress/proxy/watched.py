"""What has passed of one connection, and whether it is still in use."""

import anyio

from ringfence.egress.pump import Exchange

IDLE_S = 600.0
"""After which a connection that nothing passes on is ended."""

UNREACHED = 502
"""Status of what had no answer."""

_NOTE_S = 1.0


class Watched(Exchange):
    """Counts, and puts off the end of a connection that is in use."""

    scope: anyio.CancelScope | None = None
    status = UNREACHED
    """Of the answer, as far as there is one."""
    is_told = False
    """Whether the client was told in an answer of ours how it ended."""
    _noted_at = 0.0

    def _check(self, count: int) -> None:
        now = anyio.current_time()
        if self.scope is not None and now - self._noted_at > _NOTE_S:
            self._noted_at = now
            self.scope.deadline = now + IDLE_S
        super()._check(count)

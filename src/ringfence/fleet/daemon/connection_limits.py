"""Limits the HTTP connections at addresses that strangers may reach, so that idle clients cannot shut out others.

uvicorn itself sets no limit on the time or the size of a request's head, and counts a connection that has sent no
request towards its limit of connections.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 20.0
"""Time limit for a request's head, and for the rest of a request that has already been answered."""
HEAD_BYTES = 64 * 1024
"""Size limit of a request's head while it is incomplete."""
_RESERVE = 10
"""Connections are closed when this many are left below the limit: a closed one is still counted for a moment."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection. At the limit, the connection that has gone longest without a complete request is closed."""

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _is_head = True
    _requests = 0
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Accept a connection, and close an idle one if the limit is near."""
        most = self.limit_concurrency
        if most is not None and len(self.connections) >= most - _RESERVE:
            known = [each for each in self.connections if isinstance(each, LimitedProtocol)]
            unasked = [each for each in known if not each.has_asked and not each.transport.is_closing()]
            if unasked:
                min(unasked, key=lambda each: each.since).transport.abort()
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of a connection that was closed."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and abort the connection if an incomplete head is too long."""
        before = self._requests
        super().data_received(data)
        if self._is_head and self._requests == before:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Restart the timer at a request's first byte."""
        self._restart_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self._is_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is complete, and expect the head of the next one."""
        super().on_message_complete()
        self._requests += 1
        self._expect_head()

    @property
    def has_asked(self) -> bool:
        """Whether a complete request has arrived and is not answered yet."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def since(self) -> float:
        """When it was opened, or its last request was complete, by the event loop's clock."""
        return self._since

    def _expect_head(self) -> None:
        self._is_head = True
        self._head_bytes = 0
        self._since = self.loop.time()
        self._restart_timer()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_S, self._on_timeout)

    def _on_timeout(self) -> None:
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.abort()
        else:
            self._restart_timer()  # the application has its own time limit for the body

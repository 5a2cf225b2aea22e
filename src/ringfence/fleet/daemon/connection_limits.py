"""HTTP for addresses that strangers may reach: who has asked nothing yet keeps nobody out, and has a time and a bound.

uvicorn waits for a request's head as long as it takes, however long that grows, and counts who waits as being served.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 20.0
"""For a request's head, and for what of a request still comes when it is answered."""
HEAD_BYTES = 64 * 1024
"""Of a head that has not come to its end."""
_ROOM = 10
"""So many connections before there are as many as may be: who gives way is counted a moment longer."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection. Where there are as many as may be, the one that has longest not asked all of it gives way."""

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _is_head = True
    _requests = 0
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A stranger is there."""
        most = self.limit_concurrency
        if most is not None and len(self.connections) >= most - _ROOM:
            known = [each for each in self.connections if isinstance(each, LimitedProtocol)]
            unasked = [each for each in known if not each.has_asked and not each.transport.is_closing()]
            if unasked:
                min(unasked, key=lambda each: each.since).transport.abort()
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request, or of several."""
        before = self._requests
        super().data_received(data)
        if self._is_head and self._requests == before:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        """The parser has a request's first byte."""
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The parser has a head."""
        self._is_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The parser has a request; another one may follow."""
        super().on_message_complete()
        self._requests += 1
        self._expect_head()

    @property
    def has_asked(self) -> bool:
        """Whether all of a request is there, and has no answer yet."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    @property
    def since(self) -> float:
        """When it was connected, or had asked the last time, by the loop's clock."""
        return self._since

    def _expect_head(self) -> None:
        self._is_head = True
        self._head_bytes = 0
        self._since = self.loop.time()
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_S, self._give_up)

    def _give_up(self) -> None:
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.abort()
        else:
            self._wait()  # for the body its application has a time

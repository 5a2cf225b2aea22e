"""Forwards a response to the client inside; counts, redacts, bounds and records it as it arrives."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio

from ringfence.egress.gateway.exchange import Exchange
from ringfence.egress.gateway.rejection import OverBudget, Rejected, error_body, limit_event
from ringfence.egress.gateway.upstream import UpstreamResponse
from ringfence.egress.http.client import UpstreamError
from ringfence.errors import LimitReached
from ringfence.secret import Provider, Redactor, StreamRedactor

RECORD_TIMEOUT_S = 5.0


class Response:
    """The gateway's response: a head, and a body that can be read once. The caller must close it."""

    def __init__(self, status: int, headers: dict[str, str], body: "bytes | StreamedBody") -> None:
        self.status = status
        self.headers = headers
        self._body = body

    @classmethod
    def rejection(cls, provider: Provider, rejected: Rejected) -> "Response":
        """The response to a request that is not forwarded."""
        body = error_body(provider, rejected.status, str(rejected), is_quota=isinstance(rejected, OverBudget))
        headers = {"content-type": "application/json"}
        return cls(
            rejected.status, headers | ({"x-should-retry": "false"} if rejected.is_final else {}), body
        )

    @property
    def content(self) -> bytes | None:
        """The body, if it is complete; None for a stream."""
        return self._body if isinstance(self._body, bytes) else None

    def body(self) -> AsyncGenerator[bytes, None]:
        """The body, piece by piece.

        Raises:
            UpstreamError: The API aborted the response.
        """
        return _single(self._body) if isinstance(self._body, bytes) else self._body.pieces()

    async def aclose(self) -> None:
        """End the exchange."""
        if not isinstance(self._body, bytes):
            await self._body.aclose()


async def _single(piece: bytes) -> AsyncGenerator[bytes, None]:
    yield piece


class StreamedBody:
    """A stream of events.

    Args:
        upstream: The API's response.
        exchange: Counts it.
        redactor: Removes the credential.
        finish: Records the exchange; called once.
        stop: Called with a limit that the response has exceeded.
    """

    def __init__(
        self,
        upstream: UpstreamResponse,
        exchange: Exchange,
        redactor: Redactor,
        *,
        finish: Callable[[Exchange], Awaitable[None]],
        stop: Callable[[LimitReached], None],
    ) -> None:
        self._upstream = upstream
        self._exchange = exchange
        self._redactor = StreamRedactor(redactor)
        self._finish = finish
        self._stop = stop
        self._uncounted = b""
        self._end = b"\n\n"
        self._is_over = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The stream as it arrives, until its end or until a limit is exceeded."""
        exchange = self._exchange
        try:
            async with aclosing(self._upstream.body()) as pieces:
                async for raw in pieces:
                    exceeded = self._count(raw)
                    if exceeded is not None:
                        yield self._cut(exceeded)
                        break
                    piece = self._redact(raw)
                    if piece:
                        yield piece
                    self._count_rest()
                else:
                    exchange.ended_by = "closed"
        except UpstreamError as exc:
            exchange.ended_by, exchange.fault = "upstream", str(exc)
            raise
        finally:
            await self.aclose()
        if self._redactor.held and exchange.ended_by == "closed":
            yield self._redactor.held

    async def aclose(self) -> None:
        """Close the API's response, and have the exchange recorded."""
        if self._is_over:
            return
        self._is_over = True
        self._count_rest()
        self._exchange.reader.end_stream()
        self._update()
        with anyio.move_on_after(RECORD_TIMEOUT_S, shield=True):
            if self._redactor.held and self._exchange.ended_by == "closed":
                self._exchange.kept.add(self._redactor.held)
            await self._upstream.aclose()
            await self._finish(self._exchange)

    def _count(self, raw: bytes) -> LimitReached | None:
        """Return the limit that a piece exceeds. Without a limit, the piece is forwarded first and counted later."""
        self._uncounted = raw
        if not self._exchange.reservation.is_bounded:
            return None
        self._count_rest()
        return self._exchange.reservation.reached()

    def _count_rest(self) -> None:
        raw, self._uncounted = self._uncounted, b""
        if raw:
            self._exchange.reader.take_stream(raw)
            self._update()

    def _update(self) -> None:
        reader = self._exchange.reader
        self._exchange.reservation.update(reader.usage, reader.model)

    def _cut(self, exceeded: LimitReached) -> bytes:
        self._exchange.ended_by = "limit"
        self._stop(exceeded)
        route = self._exchange.admitted.route
        event = limit_event(route.provider, str(exceeded), is_responses_api=route.api == "responses")
        event = event if self._end.endswith(b"\n\n") else b"\n\n" + event
        self._exchange.kept.add(event)
        return event

    def _redact(self, raw: bytes) -> bytes:
        """Return the redacted bytes that may be forwarded now."""
        piece = self._redactor.feed(raw)
        self._end = (self._end + piece[-2:])[-2:]
        self._exchange.kept.add(piece)
        return piece

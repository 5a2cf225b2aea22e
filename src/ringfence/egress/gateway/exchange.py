"""One request and its response, which is forwarded, counted, redacted, bounded and recorded as it arrives."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import anyio

from ringfence.egress.gateway.admission import Admitted
from ringfence.egress.gateway.budget import Reservation
from ringfence.egress.gateway.response_reader import ResponseReader
from ringfence.egress.gateway.routes import OverBudget, Rejected, error_body, limit_event
from ringfence.egress.gateway.upstream import UpstreamResponse
from ringfence.egress.http.client import UpstreamError
from ringfence.egress.http.rules import Request
from ringfence.egress.limiter import ByteQuota
from ringfence.errors import LimitReached
from ringfence.events import ModelAsked, ModelExchanged
from ringfence.secret import Provider, Redactor, StreamRedactor

EndedBy = Literal["closed", "inside", "upstream", "limit"]

KEPT_BYTES = 16 * 1024 * 1024
"""The limit for the body of one response in the record."""

_SHOWN_CHARS = 500
RECORD_TIMEOUT_S = 5.0


@dataclass
class Quotas:
    """The quotas for bodies that all exchanges of a gateway share."""

    kept: ByteQuota = field(default_factory=lambda: ByteQuota(48 * 1024 * 1024))
    """The quota for bodies that are collected for the record while they arrive."""
    whole: ByteQuota = field(default_factory=lambda: ByteQuota(256 * 1024 * 1024))
    """The quota for responses that are collected completely before they are forwarded."""
    recorded: ByteQuota = field(default_factory=lambda: ByteQuota(1024 * 1024 * 1024))
    """The quota for bodies in the record; of later ones only the hash is recorded, so a loop cannot fill the disk."""


class KeptBody:
    """The body of a response, collected for the record if the quota allows, and its hash."""

    def __init__(self, quota: ByteQuota, *, is_wanted: bool) -> None:
        self.bytes = 0
        self._quota = quota
        self._hash = sha256()
        self._pieces: list[bytes] | None = [] if is_wanted else None
        self._taken = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        self.bytes += len(piece)
        self._hash.update(piece)
        if self._pieces is None:
            return
        if self.bytes > KEPT_BYTES or not self._quota.reserve(len(piece)):
            self.release()
            return
        self._pieces.append(piece)
        self._taken += len(piece)

    @property
    def digest(self) -> str:
        """SHA-256 of the body; empty if there is none."""
        return self._hash.hexdigest() if self.bytes else ""

    @property
    def text(self) -> str | None:
        """The body; None if it was too large, or is not wanted."""
        return None if self._pieces is None else b"".join(self._pieces).decode("utf-8", "replace")

    def release(self) -> None:
        """Forget the body."""
        self._pieces = None
        self._quota.release(self._taken)
        self._taken = 0


@dataclass
class Exchange:
    """A request that is forwarded, from its admission to the end of its response.

    Args:
        number: The number of the exchange in this run.
        sandbox_id: The sandbox that sent the request; empty for the agent's own loop.
        admitted: The forwarded request.
        reservation: Its share of the budget.
        kept: Collects the response's body.
    """

    number: int
    sandbox_id: str
    admitted: Admitted
    reservation: Reservation
    kept: KeptBody
    began: float = field(default_factory=time.monotonic)
    status: int = 0
    first_byte_s: float = 0.0
    content_type: str = ""
    fault: str = ""
    """Why the API could not be called, or aborted; empty if neither."""
    ended_by: EndedBy = "inside"

    def __post_init__(self) -> None:
        self.reader = ResponseReader(len(self.admitted.body))

    def request_event(self, request: Request, redactor: Redactor, quota: ByteQuota) -> ModelAsked:
        """Return the event of the request, with its body if the record's quota allows."""
        body = redactor.redact(self.admitted.body)
        is_kept = body and self.sandbox_id and quota.reserve(len(body))
        return ModelAsked(
            sandbox_id=self.sandbox_id,
            exchange=self.number,
            method=request.method[:20],
            path=request.target[:_SHOWN_CHARS],
            model=self.admitted.model,
            allowed=True,
            reason="",
            stripped=list(self.admitted.stripped),
            max_tokens=self.admitted.max_tokens,
            request_digest=sha256(body).hexdigest() if body else "",
            request=body.decode("utf-8", "replace") if is_kept else None,
        )

    def response_event(self, cost_usd: float | None, quota: ByteQuota) -> ModelExchanged:
        """Return the event of the response, with its body if the record's quota allows."""
        kept, reader = self.kept, self.reader
        return ModelExchanged(
            sandbox_id=self.sandbox_id,
            exchange=self.number,
            status=self.status,
            ended_by=self.ended_by,
            model=reader.model or self.admitted.model,
            usage=reader.usage,
            is_estimated=reader.is_begun and not reader.is_final,
            cost_usd=cost_usd,
            first_byte_ms=round(self.first_byte_s * 1000, 3),
            duration_ms=round((time.monotonic() - self.began) * 1000, 3),
            answer_bytes=kept.bytes,
            answer_digest=kept.digest,
            content_type=self.content_type,
            answer=kept.text if kept.bytes and quota.reserve(kept.bytes) else None,
            fault=self.fault,
            turn=self.reservation.turn,
        )


def rejection_event(number: int, request: Request, sandbox_id: str, reason: str) -> ModelAsked:
    """Return the event of a request that is not forwarded."""
    return ModelAsked(
        sandbox_id=sandbox_id,
        exchange=number,
        method=request.method[:20],
        path=request.target[:_SHOWN_CHARS],
        model="",
        allowed=False,
        reason=reason[:_SHOWN_CHARS],
    )


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
        """Close the API's response, and record the exchange."""
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

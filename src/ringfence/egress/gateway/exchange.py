"""One request and its response: their counts, the stored body, and the events that record both."""

import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from ringfence.egress.gateway.admission import Admitted
from ringfence.egress.gateway.budget import Reservation
from ringfence.egress.gateway.response_reader import ResponseReader
from ringfence.egress.http.rules import Request
from ringfence.egress.limiter import ByteQuota
from ringfence.events import ModelAsked, ModelExchanged
from ringfence.secret import Redactor

EndedBy = Literal["closed", "inside", "upstream", "limit"]

KEPT_BYTES = 16 * 1024 * 1024
"""The limit for the body of one response in the record."""

_SHOWN_CHARS = 500


@dataclass
class Quotas:
    """The quotas for bodies that all exchanges of a gateway share."""

    kept: ByteQuota = field(default_factory=lambda: ByteQuota(48 * 1024 * 1024))
    """For bodies that are collected for the record while they arrive."""
    whole: ByteQuota = field(default_factory=lambda: ByteQuota(256 * 1024 * 1024))
    """For responses that are collected completely before they are forwarded."""
    recorded: ByteQuota = field(default_factory=lambda: ByteQuota(1024 * 1024 * 1024))
    """For bodies in the record; of later ones only the hash is recorded, so that a loop cannot fill the disk."""


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

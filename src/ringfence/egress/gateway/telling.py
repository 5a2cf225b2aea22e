"""What the record is told of an exchange."""

import time
from hashlib import sha256

from ringfence.egress.gateway.answer import Passage
from ringfence.egress.reading import Asked
from ringfence.egress.room import Room
from ringfence.events import ModelAsked, ModelExchanged
from ringfence.secret import Redactor

_SHOWN = 500


def refused(number: int, asked: Asked, sandbox_id: str, reason: str) -> ModelAsked:
    """The event of a request that is not passed on."""
    return ModelAsked(
        sandbox_id=sandbox_id,
        exchange=number,
        method=asked.method[:20],
        path=asked.target[:_SHOWN],
        model="",
        allowed=False,
        reason=reason[:_SHOWN],
    )


def passed_on(passage: Passage, asked: Asked, redactor: Redactor, room: Room) -> ModelAsked:
    """The event of a request that is passed on; with its body, if there is room in the record."""
    admitted = passage.admitted
    body = redactor.redact(admitted.body)
    is_kept = body and passage.sandbox_id and room.take(len(body))
    return ModelAsked(
        sandbox_id=passage.sandbox_id,
        exchange=passage.number,
        method=asked.method[:20],
        path=asked.target[:_SHOWN],
        model=admitted.model,
        allowed=True,
        reason="",
        stripped=list(admitted.stripped),
        max_tokens=admitted.max_tokens,
        request_digest=sha256(body).hexdigest() if body else "",
        request=body.decode("utf-8", "replace") if is_kept else None,
    )


def exchanged(passage: Passage, cost_usd: float | None, room: Room) -> ModelExchanged:
    """The event of an exchange that is over; with its body, if there is room in the record."""
    kept, counter = passage.kept, passage.counter
    return ModelExchanged(
        sandbox_id=passage.sandbox_id,
        exchange=passage.number,
        status=passage.status,
        ended_by=passage.ended_by,
        model=counter.model or passage.admitted.model,
        usage=counter.usage,
        is_estimated=counter.is_begun and not counter.is_told,
        cost_usd=cost_usd,
        first_byte_ms=round(passage.first_byte_s * 1000, 3),
        duration_ms=round((time.monotonic() - passage.began) * 1000, 3),
        answer_bytes=kept.bytes,
        answer_digest=kept.digest if kept.bytes else "",
        content_type=passage.content_type,
        answer=kept.text if kept.bytes and room.take(kept.bytes) else None,
        fault=passage.fault,
        turn=passage.charge.turn,
    )

"""One answer on its way in: counted, redacted, bounded, kept for the record, and never waited for."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import anyio

from ringfence.egress.gateway.admission import Admitted
from ringfence.egress.gateway.budget import Charge
from ringfence.egress.gateway.shapes import Denied, OverBudget, error_body, error_event
from ringfence.egress.gateway.upstream import UpstreamResponse
from ringfence.egress.gateway.usage import Counter
from ringfence.egress.http.client import UpstreamError
from ringfence.egress.room import Room
from ringfence.errors import LimitReached
from ringfence.secret import Provider, Redactor

EndedBy = Literal["closed", "inside", "upstream", "limit"]

MOST_KEPT = 16 * 1024 * 1024
"""Bytes of one answer that are kept for the record."""

_TELL_S = 5.0


@dataclass
class Rooms:
    """What all answers of a gateway share."""

    kept: Room = field(default_factory=lambda: Room(48 * 1024 * 1024))
    """For the record, while they come."""
    whole: Room = field(default_factory=lambda: Room(256 * 1024 * 1024))
    """Of those that are read as a whole."""
    recorded: Room = field(default_factory=lambda: Room(1024 * 1024 * 1024))
    """Bodies, of requests too, that go into the record; of further ones there is the hash. A loop fills no disk."""


class Kept:
    """What goes into the record of an answer."""

    def __init__(self, room: Room, *, wanted: bool) -> None:
        self.bytes = 0
        self._room = room
        self._hash = sha256()
        self._pieces: list[bytes] | None = [] if wanted else None
        self._taken = 0

    def add(self, piece: bytes) -> None:
        """One more piece."""
        self.bytes += len(piece)
        self._hash.update(piece)
        if self._pieces is None:
            return
        if self.bytes > MOST_KEPT or not self._room.take(len(piece)):
            self.release()
            return
        self._pieces.append(piece)
        self._taken += len(piece)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        return self._hash.hexdigest()

    @property
    def text(self) -> str | None:
        """All of it; None if it was too much, or not wanted."""
        return None if self._pieces is None else b"".join(self._pieces).decode("utf-8", "replace")

    def release(self) -> None:
        """Keep nothing any more."""
        self._pieces = None
        self._room.give_back(self._taken)
        self._taken = 0


@dataclass
class Passage:
    """One exchange, from the head of its answer to its end."""

    number: int
    sandbox_id: str
    admitted: Admitted
    counter: Counter
    charge: Charge
    kept: Kept
    began: float = field(default_factory=time.monotonic)
    status: int = 0
    first_byte_s: float = 0.0
    content_type: str = ""
    fault: str = ""
    ended_by: EndedBy = "inside"


Finish = Callable[[Passage], Awaitable[None]]
Stop = Callable[[LimitReached], None]


class Answer:
    """What is passed on: a head, and a body as it comes. Close it; what was not read of it is not asked for any more."""

    def __init__(self, status: int, headers: dict[str, str], body: "bytes | StreamedBody") -> None:
        self.status = status
        self.headers = headers
        self._body = body

    @classmethod
    def refusal(cls, provider: Provider, denied: Denied) -> "Answer":
        """Our own answer to what is not passed on."""
        body = error_body(provider, denied.status, str(denied), is_quota=isinstance(denied, OverBudget))
        headers = {"content-type": "application/json"}
        return cls(denied.status, headers | ({"x-should-retry": "false"} if denied.is_final else {}), body)

    @property
    def whole(self) -> bytes | None:
        """The body, where it is there at once; None for a stream."""
        return self._body if isinstance(self._body, bytes) else None

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, once.

        Raises:
            UpstreamError: It broke off.
        """
        return _one(self._body) if isinstance(self._body, bytes) else self._body.pieces()

    async def aclose(self) -> None:
        """Let go of it."""
        if not isinstance(self._body, bytes):
            await self._body.aclose()


async def _one(piece: bytes) -> AsyncGenerator[bytes, None]:
    yield piece


class StreamedBody:
    """A stream of events.

    Args:
        upstream: Where it comes from.
        passage: What is counted.
        redactor: Takes the credential out.
        finish: Records the exchange; called once.
        stop: Is told of a limit that the answer has passed.
    """

    def __init__(
        self, upstream: UpstreamResponse, passage: Passage, redactor: Redactor, *, finish: Finish, stop: Stop
    ) -> None:
        self._upstream = upstream
        self._passage = passage
        self._redactor = redactor
        self._finish = finish
        self._stop = stop
        self._held = b""
        self._uncounted = b""
        self._end = b"\n\n"
        self._is_over = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The stream as it comes, until its end or until a limit is passed."""
        passage = self._passage
        try:
            async with aclosing(self._upstream.body()) as pieces:
                async for raw in pieces:
                    reached = self._counted(raw)
                    if reached is not None:
                        yield self._cut(reached)
                        break
                    piece = self._passed(raw)
                    if piece:
                        yield piece
                    self._count_rest()
                else:
                    passage.ended_by = "closed"
        except UpstreamError as exc:
            passage.ended_by, passage.fault = "upstream", str(exc)
            raise
        finally:
            await self.aclose()
        if self._held and passage.ended_by == "closed":
            yield self._held

    async def aclose(self) -> None:
        """Let go of the upstream and have the exchange recorded."""
        if self._is_over:
            return
        self._is_over = True
        self._count_rest()
        with anyio.move_on_after(_TELL_S, shield=True):
            if self._held and self._passage.ended_by == "closed":
                self._passage.kept.add(self._held)
            await self._upstream.aclose()
            await self._finish(self._passage)

    def _counted(self, raw: bytes) -> LimitReached | None:
        """The limit that a piece passes. Where there is none the piece goes first, and is counted meanwhile."""
        self._uncounted = raw
        if not self._passage.charge.is_bounded:
            return None
        self._count_rest()
        return self._passage.charge.reached()

    def _count_rest(self) -> None:
        raw, self._uncounted = self._uncounted, b""
        if raw:
            counter = self._passage.counter
            counter.take_stream(raw)
            self._passage.charge.update(counter.usage, counter.model)

    def _cut(self, reached: LimitReached) -> bytes:
        self._passage.ended_by = "limit"
        self._stop(reached)
        event = error_event(self._passage.admitted.route.api, str(reached))
        event = event if self._end.endswith(b"\n\n") else b"\n\n" + event
        self._passage.kept.add(event)
        return event

    def _passed(self, raw: bytes) -> bytes:
        """What may be passed on now: an end that may be the beginning of the credential waits for the next piece."""
        data = self._redactor.redact(self._held + raw)
        tail = data[data.rfind(b"\n") + 1 :]  # no credential has a line end in it
        undecided = self._redactor.partial_match(tail.decode("latin-1")) if tail else 0
        piece = data[: len(data) - undecided]
        self._held = data[len(piece) :]
        self._end = (self._end + piece[-2:])[-2:]
        self._passage.kept.add(piece)
        return piece

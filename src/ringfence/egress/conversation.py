"""HTTP with a process inside: its requests, each bounded and whole, and our answers. Every byte is hostile."""

import asyncio
import json

import anyio
from anyio.abc import ByteStream

from ringfence.egress.reading import Asked, RequestReader, Unreadable
from ringfence.egress.room import Room

_BODY_BYTES = 256 * 1024
_REQUEST_S = 30.0
_READ = 64 * 1024
_WITHOUT_BODY = (204, 304)
_LEAVE = b"HTTP/1.1 100 \r\n\r\n"


class _Bodies:
    """What one connection's requests have of the room for bodies.

    Not part of `Conversation`: the two would hold each other by the reader, and with it a body that may be large,
    until Python looks for what nobody can reach.
    """

    def __init__(self, limit_bytes: int, room: Room | None) -> None:
        self._limit_bytes = limit_bytes
        self._room = room
        self._taken = 0

    def take(self, count: int) -> None:
        """Have `count` bytes more. Raises `Unreadable`."""
        if self._taken + count > self._limit_bytes:
            raise Unreadable(413, f"the body is larger than {self._limit_bytes} bytes")
        if self._room is not None and not self._room.take(count):
            raise Unreadable(503, "the bodies of too many large requests came at once; ask again")
        self._taken += count

    def release(self) -> None:
        """Have none."""
        if self._room is not None:
            self._room.give_back(self._taken)
        self._taken = 0


class Conversation:
    """The server's side of one connection.

    After each answer the connection is closed, unless `begin` was told to keep it and `goes_on` says it may be:
    what came before its turn is never read as another request, so nothing can be smuggled in.

    Args:
        inside: The connection.
        body_bytes: The largest body that is taken.
        request_s: Within which a request must be whole, once its first byte is there or the connection new.
        room: For bodies, shared with other conversations; None: only `body_bytes` counts.
    """

    def __init__(
        self,
        inside: ByteStream,
        *,
        body_bytes: int = _BODY_BYTES,
        request_s: float | None = None,
        room: Room | None = None,
    ) -> None:
        self.inside = inside
        self._request_s = _REQUEST_S if request_s is None else request_s
        self._bodies = _Bodies(body_bytes, room)
        self._reader = RequestReader(self._bodies.take)
        self._came = b""
        """Of the next request."""
        self._is_early = False
        self._waiting = b""
        self._is_answering = False
        self._is_answered = False
        self._keeps = True
        self._is_chunked = False
        self._has_body = True
        self.sent_bytes = 0

    async def request(self) -> Asked | None:
        """The request; None if the connection ended without one.

        Raises:
            Unreadable: It is too large, too slow, ambiguous or no HTTP.
        """
        self.release()
        try:
            async with asyncio.timeout(self._request_s):
                return await self._read_request()
        except TimeoutError:
            raise Unreadable(408, f"the request was not whole within {self._request_s:g} s") from None

    async def _read_request(self) -> Asked | None:
        reader, data = self._reader, self._came
        self._came = b""
        leave_was_given = False
        while True:
            if data:
                reader.feed(data)
            if reader.is_whole:
                self._is_early = bool(reader.rest)
                return reader.asked
            if reader.wants_leave and not leave_was_given:
                leave_was_given = True
                await self.inside.send(_LEAVE)
            try:
                data = await self.inside.receive(_READ)
            except anyio.EndOfStream:
                if reader.has_begun:
                    raise Unreadable(400, "the connection ended within the request") from None
                return None

    def release(self) -> None:
        """Say that the last request's body is needed no more."""
        self._bodies.release()

    # --- further requests

    async def more(self) -> bool:
        """Wait, after a whole request, until more comes or the end; whether it was more."""
        try:
            data = await self.inside.receive(_READ)
        except anyio.EndOfStream:
            return False
        self._is_early = self._is_early or not self._is_answered
        self._came += data
        return True

    def goes_on(self) -> bool:
        """Whether another request may come on this connection, or has begun to; then it can be read."""
        if not self._is_answered or self._is_early or not self._keeps:
            return False
        self._reader = RequestReader(self._bodies.take)
        self._is_answering = self._is_answered = False
        return True

    async def _send(self, data: bytes) -> None:
        whole = self._waiting + data
        self._waiting = b""
        if whole:
            await self.inside.send(whole)

    # --- answers

    async def begin(
        self, status: int, headers: dict[str, str], *, keeps: bool = False, waits: bool = False
    ) -> None:
        """The head of an answer.

        Args:
            status: Of HTTP.
            headers: Without those about the connection.
            keeps: Whether the connection may be used again after it.
            waits: Whether it is sent only together with what follows.

        Raises:
            ValueError: A header has a line end in it.
        """
        reader = self._reader
        has_length = any(name.lower() == "content-length" for name in headers)
        self._is_answering = True
        self._has_body = reader.method != "HEAD" and status not in _WITHOUT_BODY
        self._is_chunked = not has_length and reader.is_newer and status not in _WITHOUT_BODY
        is_bounded = has_length or self._is_chunked or not self._has_body
        self._keeps = keeps and is_bounded and reader.is_whole and reader.keeps
        fields = dict(headers)
        if self._is_chunked:
            fields["Transfer-Encoding"] = "chunked"
        if not self._keeps:
            fields["Connection"] = "close"
        self._waiting = _head(status, fields)
        if not waits:
            await self._send(b"")

    async def send(self, data: bytes) -> None:
        """A piece of the answer's body. To HEAD there is none: it is left out."""
        if not self._has_body or not data:
            return
        self.sent_bytes += len(data)
        await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    async def end(self) -> None:
        """The end of the answer."""
        self._is_answered = True
        await self._send(b"0\r\n\r\n" if self._is_chunked and self._has_body else b"")

    async def answer_json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        body = json.dumps(value).encode()
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        await self.begin(status, fields)
        await self.send(body)
        await self.end()

    async def answer_error(self, status: int, value: object) -> None:
        """A whole answer, where none was begun."""
        if not self._is_answering:
            await self.answer_json(status, value)

    async def refuse(self, status: int, reason: str) -> None:
        """An answer that clients of engines show as an error."""
        await self.answer_error(status, {"message": f"ringfence: {reason}"})

    async def switch(self, content_type: str) -> bytes:
        """Answer that the connection is now the command's; returns what came of it already."""
        headers = {"Connection": "Upgrade", "Upgrade": "tcp", "Content-Type": content_type}
        self._is_answering = True
        await self._send(_head(101, headers))
        return self._reader.rest


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} ", *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise ValueError(f"a header of an answer with status {status} has a line end in it")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

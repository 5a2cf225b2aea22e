"""HTTP with a process inside: its requests, each bounded and whole, and our answers. Every byte is hostile."""

import json
import re

import anyio
import h11
from anyio.abc import ByteStream

from ringfence.egress.room import Room
from ringfence.frozen import frozen

_HEAD_BYTES = 32 * 1024
_BODY_BYTES = 256 * 1024
_REQUEST_S = 30.0
_READ = 64 * 1024
_LOOSE_LINE = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A line end of one character, or a line that goes on with the one before: readers differ about both."""


@frozen
class Asked:
    """A request."""

    method: str
    target: str
    body: bytes
    wants_upgrade: bool
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""

    def header(self, name: str) -> str:
        """The first value of a header; empty if it is not said."""
        return next((value for each, value in self.headers if each == name), "")


class Unreadable(Exception):
    """What came is no request that is taken; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


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
        self._body_bytes = body_bytes
        self._request_s = _REQUEST_S if request_s is None else request_s
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._room = room
        self._taken = 0
        self._came = bytearray()
        self._is_reading_head = True
        self._is_early = False
        self._waiting = b""
        self._wants_head_only = False
        self.sent_bytes = 0

    async def request(self) -> Asked | None:
        """The request; None if the connection ended without one.

        Raises:
            Unreadable: It is too large, too slow, ambiguous or no HTTP.
        """
        try:
            with anyio.fail_after(self._request_s):
                return await self._read_request()
        except TimeoutError:
            raise Unreadable(408, f"the request was not whole within {self._request_s:g} s") from None
        except h11.RemoteProtocolError as exc:
            raise Unreadable(400, f"the request is no HTTP: {exc}") from exc

    async def _read_request(self) -> Asked | None:
        self.release()
        self._is_reading_head = True
        head = await self._next()
        if not isinstance(head, h11.Request):
            return None
        self._wants_head_only = head.method == b"HEAD"
        self._refuse_ambiguity(head)
        if head.http_version == b"1.1" and self._http.they_are_waiting_for_100_continue:
            await self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return None
            body += event.data
            if len(body) > self._body_bytes:
                raise Unreadable(413, f"the body is larger than {self._body_bytes} bytes")
            self._take(len(event.data))
        self._is_early = bool(self._http.trailing_data[0])
        headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers)
        upgrade = any(name == "upgrade" for name, _ in headers)
        target = head.target.decode("ascii")
        return Asked(head.method.decode("ascii"), target, bytes(body), upgrade, headers)

    def _take(self, count: int) -> None:
        if self._room is not None:
            if not self._room.take(count):
                raise Unreadable(503, "the bodies of too many large requests came at once; ask again")
            self._taken += count

    def release(self) -> None:
        """Say that the last request's body is needed no more."""
        if self._room is not None:
            self._room.give_back(self._taken)
            self._taken = 0

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.inside.receive(_READ)
            except anyio.EndOfStream:
                data = b""
            if self._is_reading_head:
                self._came += data
            self._http.receive_data(data)
        return event

    def _refuse_ambiguity(self, head: h11.Request) -> None:
        """Refuse what two readers could take for two different requests."""
        rest = len(self._http.trailing_data[0])
        raw = bytes(self._came[: len(self._came) - rest])
        self._came.clear()
        self._is_reading_head = False
        if len(raw) > _HEAD_BYTES:
            raise Unreadable(431, f"the request's head is larger than {_HEAD_BYTES} bytes")
        if _LOOSE_LINE.search(raw):
            raise Unreadable(400, "the request's head has lines that do not end, or that go on")
        names = [name for name, _ in head.headers]
        if b"transfer-encoding" in names and b"content-length" in names:
            raise Unreadable(400, "the request has two lengths")
        if names.count(b"host") > 1 or names.count(b"transfer-encoding") > 1:
            raise Unreadable(400, "the request says a header twice that may be said once")

    # --- further requests

    async def more(self) -> bool:
        """Wait, after a whole request, until more comes or the end; whether it was more."""
        try:
            data = await self.inside.receive(_READ)
        except anyio.EndOfStream:
            return False
        self._is_early = self._is_early or self._http.our_state is not h11.DONE
        self._came += data
        self._http.receive_data(data)
        return True

    def goes_on(self) -> bool:
        """Whether another request may come on this connection, or has begun to; then it can be read."""
        is_over = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if not is_over or self._is_early:
            return False
        self._http.start_next_cycle()
        return True

    @property
    def has_begun(self) -> bool:
        """Whether some of the next request is there already."""
        return bool(self._http.trailing_data[0])

    async def _send(self, data: bytes | None) -> None:
        whole = self._waiting + (data or b"")
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
        """
        fields = [*headers.items(), *([] if keeps else [("Connection", "close")])]
        head = self._http.send(h11.Response(status_code=status, headers=fields)) or b""
        if waits:
            self._waiting = head
        else:
            await self._send(head)

    async def send(self, data: bytes) -> None:
        """A piece of the answer's body. To HEAD there is none: it is left out."""
        if self._wants_head_only:
            return
        self.sent_bytes += len(data)
        await self._send(self._http.send(h11.Data(data=data)))

    async def end(self) -> None:
        """The end of the answer."""
        await self._send(self._http.send(h11.EndOfMessage()))

    async def answer_json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        body = json.dumps(value).encode()
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        await self.begin(status, fields)
        await self.send(body)
        await self.end()

    async def answer_error(self, status: int, value: object) -> None:
        """A whole answer, where none was begun."""
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self.answer_json(status, value)

    async def refuse(self, status: int, reason: str) -> None:
        """An answer that clients of engines show as an error."""
        await self.answer_error(status, {"message": f"ringfence: {reason}"})

    async def switch(self, content_type: str) -> bytes:
        """Answer that the connection is now the command's; returns what came of it already."""
        headers = [("Connection", "Upgrade"), ("Upgrade", "tcp"), ("Content-Type", content_type)]
        await self._send(self._http.send(h11.InformationalResponse(status_code=101, headers=headers)))
        return bytes(self._http.trailing_data[0])

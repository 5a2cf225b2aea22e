"""One HTTP exchange with a process inside: its request, bounded and whole, and our answer. Every byte is hostile."""

import json
from dataclasses import dataclass

import anyio
import h11
from anyio.abc import ByteStream

_HEAD_BYTES = 32 * 1024
_BODY_BYTES = 256 * 1024
_REQUEST_S = 30.0
_READ = 16 * 1024


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    target: str
    body: bytes
    wants_upgrade: bool


class Unreadable(Exception):
    """What came is no request that is taken; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Conversation:
    """The server's side. One request is answered, then the connection is closed: nothing is left to smuggle in."""

    def __init__(self, inside: ByteStream) -> None:
        self.inside = inside
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self.sent_bytes = 0

    async def request(self) -> Asked | None:
        """The request; None if the connection ended without one.

        Raises:
            Unreadable: It is too large, too slow, ambiguous or no HTTP.
        """
        try:
            with anyio.fail_after(_REQUEST_S):
                return await self._read_request()
        except TimeoutError:
            raise Unreadable(408, f"the request was not whole within {_REQUEST_S:g} s") from None
        except h11.RemoteProtocolError as exc:
            raise Unreadable(400, f"the request is no HTTP: {exc}") from exc

    async def _read_request(self) -> Asked | None:
        head = await self._next()
        if not isinstance(head, h11.Request):
            return None
        _refuse_ambiguity(head)
        if head.http_version == b"1.1" and self._http.they_are_waiting_for_100_continue:
            await self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return None
            body += event.data
            if len(body) > _BODY_BYTES:
                raise Unreadable(413, f"the body is larger than {_BODY_BYTES} bytes")
        upgrade = any(name == b"upgrade" for name, _ in head.headers)
        return Asked(head.method.decode("ascii"), head.target.decode("ascii"), bytes(body), upgrade)

    async def _next(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                self._http.receive_data(await self.inside.receive(_READ))
            except anyio.EndOfStream:
                self._http.receive_data(b"")
        return event

    async def _send(self, data: bytes | None) -> None:
        if data:
            await self.inside.send(data)

    # --- answers

    async def begin(self, status: int, headers: dict[str, str]) -> None:
        """The head of an answer."""
        fields = [*headers.items(), ("Connection", "close")]
        await self._send(self._http.send(h11.Response(status_code=status, headers=fields)))

    async def send(self, data: bytes) -> None:
        """A piece of the answer's body."""
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

    async def refuse(self, status: int, reason: str) -> None:
        """An answer that clients of engines show as an error."""
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self.answer_json(status, {"message": f"ringfence: {reason}"})

    async def switch(self, content_type: str) -> bytes:
        """Answer that the connection is now the command's; returns what came of it already."""
        headers = [("Connection", "Upgrade"), ("Upgrade", "tcp"), ("Content-Type", content_type)]
        await self._send(self._http.send(h11.InformationalResponse(status_code=101, headers=headers)))
        return bytes(self._http.trailing_data[0])


def _refuse_ambiguity(head: h11.Request) -> None:
    """Refuse what two readers could take for two different requests."""
    names = [name for name, _ in head.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Unreadable(400, "the request has two lengths")
    if names.count(b"host") > 1 or names.count(b"transfer-encoding") > 1:
        raise Unreadable(400, "the request says a header twice that may be said once")

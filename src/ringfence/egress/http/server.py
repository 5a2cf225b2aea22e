"""The server side of an HTTP connection from inside. All input is hostile, so it is bounded in size and time."""

import json
from collections.abc import Iterable, Mapping

import anyio
import h11
from anyio.abc import ByteStream

from ringfence.egress.http.rules import HEAD_LIMIT_BYTES, BadRequest, HeadReader, Request
from ringfence.egress.limiter import ByteQuota

BODY_LIMIT_BYTES = 256 * 1024
REQUEST_TIMEOUT_S = 30.0
_READ_BYTES = 64 * 1024
_NO_BODY_STATUSES = (204, 304)
_VERSIONS = (b"1.0", b"1.1")

Headers = Iterable[tuple[str, str]]


class HttpConnection:
    """A connection on which a process inside sends requests, one after the other.

    Each is answered before the next is read. Bytes that were sent too early are never read as a request: the connection
    is then not used again.

    Args:
        stream: The connection.
        received: Bytes that were already read from it.
        body_limit_bytes: The largest body that `read_request` accepts.
        timeout_s: The limit for a request, or for a head that is read alone; None: `REQUEST_TIMEOUT_S`.
        quota: The quota for bodies, shared with other connections; None: only `body_limit_bytes` applies.
    """

    def __init__(
        self,
        stream: ByteStream,
        *,
        received: bytes = b"",
        body_limit_bytes: int = BODY_LIMIT_BYTES,
        timeout_s: float | None = None,
        quota: ByteQuota | None = None,
    ) -> None:
        self.stream = stream
        self.sent_bytes = 0
        """The number of bytes sent of the bodies of responses."""
        self._timeout_s = REQUEST_TIMEOUT_S if timeout_s is None else timeout_s
        self._body_limit_bytes = body_limit_bytes
        self._quota = quota
        self._body_bytes = 0
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        self._received = received
        self._method = ""
        self._is_early = False
        self._has_body = True
        self._pending = b""
        """The head of a response that is held until the first piece of its body."""

    # --- requests

    async def read_request(self) -> Request | None:
        """Read a request with its body; None if the connection ended before its first byte.

        Raises:
            BadRequest: It is too large, too slow, ambiguous or not HTTP.
        """
        self.release_body()
        try:
            with anyio.fail_after(self._timeout_s):
                request = await self._read_head()
                return None if request is None else await self._read_body(request)
        except TimeoutError:
            raise BadRequest(408, f"the request was not complete within {self._timeout_s:g} s") from None

    async def read_head(self) -> Request | None:
        """Read the head of a request; None if the connection ended before its first byte.

        Raises:
            BadRequest: It is too large, too slow, ambiguous or not HTTP.
        """
        try:
            with anyio.fail_after(self._timeout_s):
                return await self._read_head()
        except TimeoutError:
            raise BadRequest(
                408, f"the request's head was not complete within {self._timeout_s:g} s"
            ) from None

    async def receive_body(self) -> bytes:
        """Return the next piece of the body, after `read_head`; empty at its end.

        Raises:
            BadRequest: It is malformed, or cut off.
        """
        while True:
            event = self._next_event()
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                self._is_early = bool(self._http.trailing_data[0])
                return b""
            if event is not h11.NEED_DATA:
                raise BadRequest(400, "the connection ended within the request")
            if self._http.they_are_waiting_for_100_continue:
                await self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            try:
                self._http.receive_data(await self.stream.receive(_READ_BYTES))
            except anyio.EndOfStream:
                self._http.receive_data(b"")

    def release_body(self) -> None:
        """Release the quota of the last request's body."""
        if self._quota is not None:
            self._quota.release(self._body_bytes)
        self._body_bytes = 0

    async def wait_for_data(self) -> bool:
        """Wait, after a complete request, for more bytes or the end of the connection; return whether bytes arrived."""
        try:
            data = await self.stream.receive(_READ_BYTES)
        except anyio.EndOfStream:
            return False
        self._is_early = self._is_early or self._http.our_state is not h11.DONE
        self._received += data
        return True

    def start_next(self) -> bool:
        """Prepare to read another request; return whether this connection allows that."""
        if self._is_early or (self._http.our_state, self._http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._http.start_next_cycle()
        return True

    async def _read_head(self) -> Request | None:
        reader = HeadReader()
        data, self._received = self._received, b""
        while not (data and reader.feed(data)):
            try:
                data = await self.stream.receive(_READ_BYTES)
            except anyio.EndOfStream:
                if reader.has_begun:
                    raise BadRequest(400, "the connection ended within the request") from None
                return None
        self._http.receive_data(reader.head)
        event = self._next_event()
        assert isinstance(event, h11.Request)
        request = _to_request(event)
        self._method = request.method
        if request.method == "CONNECT":
            self._check_connect(request)
            self._received = reader.rest
        elif reader.rest:
            self._http.receive_data(reader.rest)
        return request

    def _check_connect(self, request: Request) -> None:
        if request.header("transfer-encoding") or request.header("content-length") not in ("", "0"):
            raise BadRequest(400, "a CONNECT has no body")

    async def _read_body(self, request: Request) -> Request:
        pieces: list[bytes] = []
        while piece := await self.receive_body():
            self._reserve_body(len(piece))
            pieces.append(piece)
        return Request(request.method, request.target, request.headers, b"".join(pieces))

    def _reserve_body(self, count: int) -> None:
        if self._body_bytes + count > self._body_limit_bytes:
            raise BadRequest(413, f"the body is larger than {self._body_limit_bytes} bytes")
        if self._quota is not None and not self._quota.reserve(count):
            raise BadRequest(503, "too many large requests are being read at once; try again")
        self._body_bytes += count

    def _next_event(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as exc:
            raise BadRequest(400, f"the request is not HTTP: {exc}") from exc

    # --- responses

    async def start_response(
        self,
        status: int,
        headers: Headers,
        *,
        reason: bytes = b"",
        keep_alive: bool = False,
        with_body: bool = False,
    ) -> None:
        """Send the head of a response.

        Args:
            status: The HTTP status.
            headers: Without those about the connection and the transfer encoding.
            reason: The reason phrase.
            keep_alive: Whether the connection may be used again, as far as the server is concerned.
            with_body: Hold the head back until the first piece of the body, and send both at once.

        Raises:
            h11.LocalProtocolError: A header is malformed, such as one that contains a line end.
        """
        self._has_body = self._method != "HEAD" and status not in _NO_BODY_STATUSES
        fields = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
        if not keep_alive or self._http.their_state is not h11.DONE:
            fields.append((b"Connection", b"close"))
        self._pending = (
            self._http.send(h11.Response(status_code=status, headers=fields, reason=reason)) or b""
        )
        if not with_body:
            await self._send(b"")

    async def send(self, data: bytes) -> None:
        """Send a piece of the response's body; it is dropped if the response has none, as to HEAD."""
        if self._has_body and data:
            self.sent_bytes += len(data)
            await self._send(self._http.send(h11.Data(data=data)))

    async def end(self) -> None:
        """End the response.

        Raises:
            h11.LocalProtocolError: Its body is shorter than its Content-Length.
        """
        await self._send(self._http.send(h11.EndOfMessage()))

    async def respond(
        self, status: int, headers: Mapping[str, str], body: bytes, *, reason: bytes = b""
    ) -> None:
        """Send a complete response; the connection is not used again afterwards."""
        fields = {**headers, "Content-Length": str(len(body))}
        await self.start_response(status, fields.items(), reason=reason, with_body=True)
        await self.send(body)
        await self.end()

    async def respond_json(
        self, status: int, value: object, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a JSON value as a complete response."""
        fields = {"Content-Type": "application/json", **(headers or {})}
        await self.respond(status, fields, json.dumps(value).encode())

    @property
    def has_responded(self) -> bool:
        """Whether a response has begun."""
        return self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR)

    async def switch_protocol(self, protocol: str, headers: Headers) -> bytes:
        """Respond that the connection switches to another protocol; return bytes of it that already arrived."""
        fields = [("Connection", "Upgrade"), ("Upgrade", protocol), *headers]
        await self._send(self._http.send(h11.InformationalResponse(status_code=101, headers=fields)))
        return bytes(self._http.trailing_data[0])

    async def accept_connect(self) -> bytes:
        """Respond that the tunnel is open; return bytes from it that already arrived."""
        await self._send(
            self._http.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        )
        data, self._received = self._received, b""
        return data

    async def _send(self, data: bytes | None) -> None:
        data, self._pending = self._pending + (data or b""), b""
        if data:
            await self.stream.send(data)


def _to_request(event: h11.Request) -> Request:
    """Convert a parsed head to a request.

    Raises:
        BadRequest: Its version of HTTP is not supported.
    """
    if event.http_version not in _VERSIONS:
        raise BadRequest(505, "only HTTP/1.1 is supported")
    headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in event.headers)
    return Request(event.method.decode("ascii"), event.target.decode("ascii"), headers)

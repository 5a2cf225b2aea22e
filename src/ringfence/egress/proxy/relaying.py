"""One plain HTTP request, written anew for the host that was decided on, and its answer written anew for the client."""

from collections.abc import Iterable

import anyio
import h11
from anyio.abc import ByteStream

from ringfence.config.host import written
from ringfence.egress.host_proxy import HostProxy, refused_by
from ringfence.egress.proxy.decision import HTTP_PORT, TLS_PORT
from ringfence.egress.proxy.head import HEAD_BYTES, Head
from ringfence.egress.pump import CutOff, Exchange

_READ = 65_536
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"proxy-authorization", b"proxy-authenticate",
    }
)  # fmt: skip
_OURS = frozenset({b"host", b"expect"})
_OTHER_REQUEST = frozenset(
    {
        b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-original-url", b"x-rewrite-url",
        b"x-original-method", b"x-original-host", b"x-original-uri", b"x-forwarded-host", b"x-forwarded-server",
        b"x-forwarded-port", b"x-forwarded-proto", b"x-forwarded-scheme", b"x-forwarded-prefix", b"x-forwarded-uri",
        b"x-forwarded-path", b"x-forwarded-method", b"x-forwarded-for", b"x-forwarded-by", b"x-host",
        b"x-http-host-override", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip",
        b"cf-connecting-ip", b"forwarded", b"via",
    }
)  # fmt: skip
"""By which some servers take a request for one of another method, host, path or client than it was judged by: only a
proxy of theirs may say so, and none is inside."""
_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_PROXY_WANTS_PASSWORD = 407
Headers = list[tuple[bytes, bytes]]


class _NotRead(Exception):
    """The host takes no more of the request."""


class Relay:
    """Passes one request out and its answer back; neither connection is used again.

    Args:
        inside: The client.
        outside: The host, connected.
        head: The request.
        passed: Counts.
        through: Where `outside` is a proxy of this machine's rather than the host.
    """

    def __init__(
        self,
        inside: ByteStream,
        outside: ByteStream,
        head: Head,
        passed: Exchange,
        *,
        through: HostProxy | None = None,
    ) -> None:
        self._through = through
        self._inside = inside
        self._outside = outside
        self._head = head
        self._passed = passed
        self._host = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self.status = 0
        """Of the answer; 0 until it is there."""

    async def run(self) -> None:
        """Until the answer is over; then `passed.ended_by` says how it went."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_request)
                await self._pass_answer()
                tasks.cancel_scope.cancel()
            self._passed.ended_by = "closed"
        except* CutOff as group:
            self._passed.ended_by = str(_leaves(group)[0])
        except* h11.RemoteProtocolError:
            self._passed.ended_by = "target"
        except* h11.LocalProtocolError:
            self._passed.ended_by = "target"  # its answer is one that cannot be said in HTTP/1.1

    # --- outwards

    async def _send_request(self) -> None:
        try:
            await self._send_all()
        except _NotRead:
            return  # it may have answered already; its answer decides

    async def _send_all(self) -> None:
        head, wanted = self._head, self._head.wanted
        port = "" if wanted.port in (HTTP_PORT, TLS_PORT) else f":{wanted.port}"
        is_chunked = any(name == b"transfer-encoding" for name, _ in head.headers)
        authority = f"{written(wanted.host)}{port}"
        headers = [
            (b"Host", authority.encode()),
            *(self._through.headers if self._through is not None else []),
            *_end_to_end(head.headers, without=_OURS | _OTHER_REQUEST),
            *([(b"Transfer-Encoding", b"chunked")] if is_chunked else []),
            (b"Connection", b"close"),
        ]
        target = wanted.path if self._through is None else f"http://{authority}{wanted.path}"
        await self._give(self._host.send(h11.Request(method=wanted.method, target=target, headers=headers)))
        if head.http.they_are_waiting_for_100_continue:
            await self._to_client(head.http.send(h11.InformationalResponse(status_code=100, headers=[])))
        while not isinstance(event := await self._next_of_client(), h11.EndOfMessage):
            await self._give(self._host.send(h11.Data(data=event.data)))
        await self._give(self._host.send(h11.EndOfMessage()))

    async def _next_of_client(self) -> h11.Data | h11.EndOfMessage:
        http = self._head.http
        while True:
            try:
                event = http.next_event()
            except h11.RemoteProtocolError as exc:
                raise CutOff("inside") from exc
            if isinstance(event, h11.Data | h11.EndOfMessage):
                return event
            if event is not h11.NEED_DATA:
                raise CutOff("inside")
            try:
                http.receive_data(await self._inside.receive(_READ))
            except anyio.EndOfStream:
                http.receive_data(b"")
            except _LOST as exc:
                raise CutOff("inside") from exc

    async def _give(self, data: bytes | None) -> None:
        if data:
            try:
                await self._outside.send(data)
            except _LOST as exc:
                raise _NotRead from exc
            self._passed.sent(len(data))

    # --- inwards

    async def _pass_answer(self) -> None:
        client = self._head.http
        while not isinstance(event := await self._next_of_host(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                if self._through is not None and event.status_code == _PROXY_WANTS_PASSWORD:
                    raise CutOff(refused_by(self._through, event.status_code))
                answer = self._answer_head(event)
                self.status = event.status_code
                await self._to_client(client.send(answer))
            elif isinstance(event, h11.Data):
                await self._pass_piece(self._answer_piece(bytes(event.data)))
        await self._pass_piece(self._answer_rest())
        await self._to_client(client.send(h11.EndOfMessage()))

    async def _pass_piece(self, piece: bytes) -> None:
        if piece:
            await self._to_client(self._head.http.send(h11.Data(data=piece)))

    def _answer_head(self, event: h11.Response) -> h11.Response:
        """The answer's head, as it is passed on."""
        headers = [*_end_to_end(list(event.headers)), (b"Connection", b"close")]
        return h11.Response(status_code=event.status_code, reason=event.reason, headers=headers)

    def _answer_piece(self, data: bytes) -> bytes:
        """What is passed on now that these bytes of the body came."""
        return data

    def _answer_rest(self) -> bytes:
        """What is passed on at the body's end."""
        return b""

    async def _next_of_host(self) -> h11.Event:
        while True:
            event = self._host.next_event()
            if isinstance(event, h11.Event):
                if isinstance(event, h11.ConnectionClosed):
                    raise CutOff("target")
                return event
            if event is h11.PAUSED:
                raise CutOff("target")
            try:
                data = await self._outside.receive(_READ)
            except anyio.EndOfStream:
                data = b""
            except _LOST as exc:
                raise CutOff("target") from exc
            self._passed.received(len(data))
            self._host.receive_data(data)

    async def _to_client(self, data: bytes | None) -> None:
        if data:
            try:
                await self._inside.send(data)
            except _LOST as exc:
                raise CutOff("inside") from exc


def _end_to_end(headers: Headers, *, without: Iterable[bytes] = ()) -> Headers:
    """Headers that are not about one connection only (RFC 9110 7.6.1)."""
    named = {
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    dropped = _HOP_BY_HOP | (named - {b"content-length", b"host"}) | set(without)
    return [(name, value) for name, value in headers if name not in dropped]


def _leaves(group: BaseExceptionGroup[CutOff]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found

"""Forwards a plain HTTP request, rebuilt for the allowed host, and its response."""

from collections.abc import Awaitable, Iterable

import anyio
import h11
from anyio.abc import ByteStream

from ringfence.config.host import format_host
from ringfence.egress.host_proxy import HostProxy, refused_by
from ringfence.egress.http.client_connection import ClientConnection
from ringfence.egress.http.rules import BadRequest
from ringfence.egress.proxy.decision import HTTP_PORT, TLS_PORT
from ringfence.egress.proxy.request import ProxyRequest
from ringfence.egress.transfer import CutOff, Transfer
from ringfence.secret import Redactor, StreamRedactor

IDLE_S = 600.0
"""A connection that is idle for this long is ended."""

UNREACHED = 502
"""The recorded status of a request without a response."""

_IDLE_RESET_S = 1.0
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"proxy-authorization", b"proxy-authenticate", b"proxy-authentication-info", b"http2-settings",
    }
)  # fmt: skip
_OURS = frozenset({b"host", b"expect"})
_OTHER_REQUEST = frozenset(
    {
        # another method
        b"x-http-method-override", b"x-http-method", b"x-method-override", b"x-override-method", b"x-ajax-real-method",
        b"real-method", b"request-method",
        # another path
        b"x-http-path-override", b"x-http-destinationurl", b"x-override-url", b"x-cf-url", b"x-waws-unencoded-url",
        b"unencoded-url", b"request-uri", b"request-url", b"http-url", b"base-url", b"uri", b"url", b"path-info",
        b"orig-path-info", b"script-name", b"query-string", b"x-matched-path",
        # another host
        b"x-host", b"x-http-host-override", b"x-host-override", b"x-server-name", b"x-server-port", b"x-scheme",
        b"x-url-scheme", b"front-end-https", b"x-amzn-remapped-host",
        # another client
        b"x-real-ip", b"real-ip", b"x-client-ip", b"x-clientip", b"client-ip", b"clientip", b"x-cluster-client-ip",
        b"true-client-ip", b"cf-connecting-ip", b"cf-connecting-ipv6", b"fastly-client-ip", b"incap-client-ip",
        b"x-proxyuser-ip", b"x-originating-ip", b"x-custom-ip-authorization", b"x-forward-for", b"x-forwarder-for",
        b"x-forwarded", b"forwarded", b"forwarded-for", b"forwarded-for-ip", b"remote-user", b"iv-user",
        b"via",
        # another proxy: CGI programs take it for the variable HTTP_PROXY
        b"proxy", b"xproxy", b"x-proxy-url",
    }
)  # fmt: skip
_OTHER_REQUESTS = (
    b"x-forwarded-", b"x-originally-forwarded-", b"x-original-", b"x-rewrite-", b"x-envoy-", b"x-remote-", b"proxy-",
    b"wl-proxy-", b"x-middleware-", b"x-invoke-", b"x-arr-", b"x-appservice-", b"x-azure-",
)  # fmt: skip
"""The same, by how their names begin."""
"""Headers by which some servers take a request for one of another method, host, path or client than the one that was
decided on (of the lists that scanners try: PortSwigger's param-miner, and the filters of Nginx, Envoy and Next.js).
Only a proxy of theirs may send them, and none is inside."""
_PARTIAL_STATUSES = (206, 226)
"""Partial content, and a difference to an earlier response (RFC 9110, RFC 3229)."""

_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_PROXY_WANTS_PASSWORD = 407
Headers = list[tuple[bytes, bytes]]


class Progress(Transfer):
    """Counts the bytes of a connection, and extends its deadline while bytes are transferred."""

    scope: anyio.CancelScope | None = None
    status = UNREACHED
    """The status of the response, or `UNREACHED`."""
    is_reported = False
    """Whether the proxy itself sent the client a response with the reason."""
    _reset_at = 0.0

    def _check(self, count: int) -> None:
        now = anyio.current_time()
        if self.scope is not None and now - self._reset_at > _IDLE_RESET_S:
            self._reset_at = now
            self.scope.deadline = now + IDLE_S
        super()._check(count)


class _NotRead(Exception):
    """The host reads no more of the request."""


class Relay:
    """Forwards one request and its response; neither connection is used again.

    Args:
        request: The request.
        outside: The connection to the host.
        passed: Counts the bytes.
        through: This machine's proxy, if `outside` is a connection to it instead of the host.
        redactor: Removes the injected secrets from the response; None if there are none.
    """

    def __init__(
        self,
        request: ProxyRequest,
        outside: ByteStream,
        passed: Transfer,
        *,
        through: HostProxy | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._through = through
        self._redactor = redactor
        self._body = StreamRedactor(redactor) if redactor is not None else None
        self._client = request.connection
        self._request = request
        self._passed = passed
        self._host = ClientConnection(outside, on_received=passed.received)
        self.status = 0
        """The status of the response; 0 until it has begun."""

    async def run(self) -> None:
        """Forward until the response has ended; `passed.ended_by` says how it did."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._forward_request)
                await self._forward_response()
                tasks.cancel_scope.cancel()
            self._passed.ended_by = "closed"
        except* CutOff as group:
            self._passed.ended_by = str(_leaves(group)[0])
        except* (h11.RemoteProtocolError, h11.LocalProtocolError):
            self._passed.ended_by = "target"  # its response is not HTTP/1.1, or cannot be expressed in it

    # --- outwards

    async def _forward_request(self) -> None:
        target, request = self._request.target, self._request
        port = "" if target.port in (HTTP_PORT, TLS_PORT) else f":{target.port}"
        is_chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
        authority = f"{format_host(target.host)}{port}"
        headers = [
            (b"Host", authority.encode()),
            *(self._through.headers if self._through is not None else []),
            *_end_to_end(request.headers, without=_OURS | _names_of_other_request(request.headers)),
            *([(b"Transfer-Encoding", b"chunked")] if is_chunked else []),
            (b"Connection", b"close"),
        ]
        path = target.path if self._through is None else f"http://{authority}{target.path}"
        try:
            await self._send_to_host(h11.Request(method=target.method, target=path, headers=headers))
            while piece := await self._receive_body():
                await self._send_to_host(h11.Data(data=piece))
            await self._send_to_host(h11.EndOfMessage())
        except _NotRead:
            return  # it may have responded already; its response decides

    async def _receive_body(self) -> bytes:
        try:
            return await self._client.receive_body()
        except (BadRequest, *_LOST) as exc:
            raise CutOff("inside") from exc

    async def _send_to_host(self, event: h11.Event) -> None:
        try:
            sent = await self._host.send(event)
        except _LOST as exc:
            raise _NotRead from exc
        self._passed.sent(sent)

    # --- inwards

    async def _forward_response(self) -> None:
        while not isinstance(event := await self._next_of_host(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                if self._through is not None and event.status_code == _PROXY_WANTS_PASSWORD:
                    raise CutOff(refused_by(self._through, event.status_code))
                reason, headers = self._response_head(event)
                self.status = event.status_code
                fields = [(name.decode("ascii"), value.decode("latin-1")) for name, value in headers]
                await _to_client(self._client.start_response(self.status, fields, reason=reason))
            elif isinstance(event, h11.Data):
                piece = bytes(event.data)
                await _to_client(self._client.send(self._body.feed(piece) if self._body else piece))
        await _to_client(self._client.send(self._body.held if self._body else b""))
        await _to_client(self._client.end())

    def _response_head(self, event: h11.Response) -> tuple[bytes, Headers]:
        """Return the reason phrase and the headers to forward."""
        reason, headers = bytes(event.reason), _end_to_end(list(event.headers))
        if self._redactor is None:
            return reason, headers
        _check_readable(event.status_code, headers)
        if self._request.target.method != "HEAD":  # redaction changes the length
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        redact = self._redactor.redact
        kept = [(name, redact(value)) for name, value in headers if not self._redactor.is_in_name(name)]
        return redact(reason), kept

    async def _next_of_host(self) -> h11.Event:
        try:
            return await self._host.receive()
        except _LOST as exc:
            raise CutOff("target") from exc


async def _to_client(sending: Awaitable[None]) -> None:
    try:
        await sending
    except _LOST as exc:
        raise CutOff("inside") from exc


def _check_readable(status: int, headers: Headers) -> None:
    """Check that the redactor would recognize a secret in a response.

    Raises:
        CutOff: It is compressed, or a part of another one, although neither was requested.
    """
    if any(name == b"content-encoding" and value.strip().lower() != b"identity" for name, value in headers):
        raise CutOff("its response is compressed, although identity was requested")
    if status in _PARTIAL_STATUSES or {name for name, _ in headers} & {
        b"content-range",
        b"im",
        b"delta-base",
    }:
        raise CutOff("its response is partial, although all of it was requested")


def _end_to_end(headers: Headers, *, without: Iterable[bytes] = ()) -> Headers:
    """Return the headers that do not concern a single connection only (RFC 9110 7.6.1)."""
    named = {
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    }
    dropped = _HOP_BY_HOP | (named - {b"content-length", b"host"}) | set(without)
    return [(name, value) for name, value in headers if name not in dropped]


def _names_of_other_request(headers: Headers) -> frozenset[bytes]:
    """The names of headers that pretend another request; some servers read `_` in a name as `-`."""
    spelled = {name: name.replace(b"_", b"-") for name, _ in headers}
    return frozenset(
        name
        for name, plain in spelled.items()
        if plain in _OTHER_REQUEST
        or plain.startswith(_OTHER_REQUESTS)
        or (plain != name and plain in _HOP_BY_HOP | _OURS | {b"content-length"})
    )


def _leaves(group: BaseExceptionGroup[CutOff]) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found

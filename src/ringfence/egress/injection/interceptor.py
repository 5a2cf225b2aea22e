"""Intercepts TLS to hosts with a swap: injects secrets into the request and redacts them in the response."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ringfence.egress.http.rules import BadRequest
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.injection.injector import Injector
from ringfence.egress.proxy.decision import Target
from ringfence.egress.proxy.relay import Progress, Relay
from ringfence.egress.proxy.report import send_failure
from ringfence.egress.proxy.request import HEAD_TIMEOUT_S, ProxyRequest, read_proxy_request
from ringfence.egress.proxy.tunnel import Tunnel
from ringfence.egress.resolver import Unreachable
from ringfence.egress.stream import TlsByteStream
from ringfence.egress.transfer import CutOff
from ringfence.errors import AuthenticationFailed, InfrastructureFault
from ringfence.events import EgressIntercepted, Emit, PlaceholderStrayed

_HANDSHAKE_S = 20.0
_GOODBYE_S = 1.0
_PATH_CHARS = 500
_PLACE_CHARS = 100
_RECORDED_SINGLY = 5
_READ = 65_536
_NOT_SENT = frozenset(
    {
        b"accept-encoding", b"accept-charset", b"accept-transfer-encoding", b"a-im", b"available-dictionary",
        b"dictionary-id", b"range", b"if-range", b"request-range", b"x-range",
    }
)  # fmt: skip
"""In a response that is compressed, partial or in another charset the redactor may not recognize a secret. Some servers
read `_` in these names as `-`."""
_LOST = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    OSError,  # ssl.SSLError is one
    TimeoutError,
)

OnBadRequest = Callable[[HttpConnection, int, BadRequest, Target], Awaitable[None]]
"""Records an unacceptable request and responds to it."""


class Interceptor:
    """Serves the swapped hosts of one sandbox's proxy.

    Args:
        injector: The injector of the sandbox.
        sandbox_id: The sandbox.
        emit: Records an event; returns when it is written.
    """

    def __init__(self, injector: Injector, *, sandbox_id: str, emit: Emit) -> None:
        self.injector = injector
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._counts: dict[str, int] = {}

    async def _outward(self, host: str, outside: ByteStream) -> ByteStream:
        """TLS to the real host, its certificate verified.

        Raises:
            Unreachable: The certificate is not valid for the host, or the host does not use TLS.
        """
        try:
            with anyio.fail_after(_HANDSHAKE_S):
                return TlsByteStream(
                    await TLSStream.wrap(
                        outside, hostname=host, ssl_context=self.injector.outward, server_side=False
                    )
                )
        except ssl.SSLCertVerificationError as exc:
            raise Unreachable(f"its certificate is not to be trusted: {exc.verify_message}") from exc
        except _LOST as exc:
            raise Unreachable("no TLS could be agreed on with it") from exc

    async def serve(
        self,
        request: ProxyRequest,
        tunnel: Tunnel,
        outside: ByteStream,
        passed: Progress,
        *,
        on_bad_request: OnBadRequest,
    ) -> None:
        """Answer the one request in a tunnel.

        Args:
            request: The CONNECT.
            tunnel: The client, whose ClientHello will be checked.
            outside: The connection to the host.
            passed: Counts the bytes, and takes how the exchange ended.
            on_bad_request: See `OnBadRequest`.

        Raises:
            Unreachable: The host could not be authenticated; the client has received no response yet.
        """
        name = str(request.target.host)
        host = await self._outward(name, outside)
        await tunnel.accept()
        passed.ended_by = "inside"
        try:
            with anyio.fail_after(_HANDSHAKE_S):
                context = self.injector.authority.context(name)
                tls = await TLSStream.wrap(tunnel, server_side=True, ssl_context=context)
        except CutOff as exc:
            passed.ended_by = str(exc)
            return
        except _LOST:
            return
        client = TlsByteStream(tls)
        try:
            connection = HttpConnection(client, timeout_s=HEAD_TIMEOUT_S)
            await self._answer(request, connection, host, passed, on_bad_request)
        finally:
            with anyio.move_on_after(_GOODBYE_S):
                await client.send_close_notify()

    async def _answer(
        self,
        connect: ProxyRequest,
        connection: HttpConnection,
        outside: ByteStream,
        passed: Progress,
        on_bad_request: OnBadRequest,
    ) -> None:
        try:
            request = await read_proxy_request(connection, connect.number, tunnel=connect.target)
        except BadRequest as exc:
            await on_bad_request(connection, connect.number, exc, connect.target)
            passed.ended_by, passed.status = "refused", exc.status
            return
        except _LOST:
            return
        if request is None:
            passed.ended_by = "closed"
            return
        try:
            filled = await self._fill(request)
        except (AuthenticationFailed, InfrastructureFault) as exc:
            passed.ended_by, passed.is_reported = str(exc), True
            await send_failure(
                connection, "the secret for this host is not available; the host was not called"
            )
            return
        relay = Relay(filled, outside, passed, redactor=self.injector.redactor)
        await relay.run()
        if relay.status:
            passed.status = relay.status
        elif passed.ended_by != "inside":
            passed.is_reported = True
            await send_failure(connection, f"its response could not be forwarded ({passed.ended_by})")

    async def _fill(self, request: ProxyRequest) -> ProxyRequest:
        """Inject the secrets into a request and record it; return the request to send."""
        target = request.target
        headers, names = await self.injector.inject(str(target.host), request.headers)
        await self.note_strays(replace(request, headers=headers))
        await self._emit(
            EgressIntercepted(
                sandbox_id=self._sandbox_id,
                connection=request.number,
                host=str(target.host),
                method=target.method,
                path=target.path[:_PATH_CHARS],
                secrets=names,
            )
        )
        kept = [(name, value) for name, value in headers if name.replace(b"_", b"-") not in _NOT_SENT]
        return replace(request, headers=[*kept, (b"accept-encoding", b"identity")])

    async def note_strays(self, request: ProxyRequest) -> None:
        """Record placeholders that remain in a request; equal ones are recorded less often with their number."""
        for secret, place in self.injector.find_strays(request.target.path, request.headers):
            count = self._counts[secret] = self._counts.get(secret, 0) + 1
            if count > _RECORDED_SINGLY and count & (count - 1):
                continue
            await self._emit(
                PlaceholderStrayed(
                    sandbox_id=self._sandbox_id,
                    connection=request.number,
                    secret=secret,
                    host=str(request.target.host),
                    place=place[:_PLACE_CHARS],
                    repeated=count,
                )
            )

"""A request to a host with a swap: out of the client's TLS, filled, sent by TLS of our own, its answer redacted."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import h11
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ringfence.egress.forwarding import Emit
from ringfence.egress.injection.injector import Injector
from ringfence.egress.proxy.answers import ESTABLISHED, failure
from ringfence.egress.proxy.decision import Wanted
from ringfence.egress.proxy.head import Head, Unreadable, read_head
from ringfence.egress.proxy.relaying import Headers, Relay
from ringfence.egress.proxy.tunnel import CheckedStream
from ringfence.egress.proxy.watched import Watched
from ringfence.egress.pump import CutOff, Exchange
from ringfence.egress.resolving import Unreachable
from ringfence.egress.sealed import Sealed
from ringfence.errors import AuthenticationFailed, InfrastructureFault
from ringfence.events import EgressIntercepted, PlaceholderStrayed
from ringfence.secret import Redactor

_HANDSHAKE_S = 20.0
_GOODBYE_S = 1.0
_PATH_CHARS = 500
_PLACE_CHARS = 100
_TOLD_ONE_BY_ONE = 5
_READ = 65_536
_VERSIONS = frozenset({b"1.0", b"1.1"})
# A piece of an answer, or one that is packed, could hold a secret that nobody recognises.
_NOT_SENT = frozenset({b"accept-encoding", b"range", b"if-range"})
_LOST = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    OSError,  # ssl.SSLError is one
    TimeoutError,
)

OnUnreadable = Callable[[ByteStream, int, Unreadable, Wanted], Awaitable[None]]
"""Records and answers what is no request that is taken."""


class Interceptor:
    """Serves the swapped hosts of one sandbox's proxy.

    Args:
        injector: Which.
        sandbox_id: Whose.
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
            Unreachable: It is not the host, or speaks no TLS.
        """
        try:
            with anyio.fail_after(_HANDSHAKE_S):
                return Sealed(
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
        number: int,
        head: Head,
        inside: CheckedStream,
        outside: ByteStream,
        *,
        passed: Watched,
        on_unreadable: OnUnreadable,
    ) -> None:
        """Answer the one request in a tunnel.

        Args:
            number: Of the connection.
            head: The CONNECT.
            inside: The client, whose ClientHello will be checked.
            outside: The host, connected.
            passed: Counts, and is told how it ended.
            on_unreadable: See `OnUnreadable`.

        Raises:
            Unreachable: The host is not who it should be; nothing was answered yet.
        """
        api = await self._outward(str(head.wanted.host), outside)
        await inside.send(ESTABLISHED)
        passed.ended_by = "inside"
        try:
            with anyio.fail_after(_HANDSHAKE_S):
                context = self.injector.authority.context(str(head.wanted.host))
                tls = await TLSStream.wrap(inside, server_side=True, ssl_context=context)
        except CutOff as exc:
            passed.ended_by = str(exc)
            return
        except _LOST:
            return
        client = Sealed(tls)
        try:
            await self._answer(number, head, client, api, passed=passed, on_unreadable=on_unreadable)
        finally:
            with anyio.move_on_after(_GOODBYE_S):
                await client.say_goodbye()

    async def _answer(
        self,
        number: int,
        connect: Head,
        client: Sealed,
        outside: ByteStream,
        *,
        passed: Watched,
        on_unreadable: OnUnreadable,
    ) -> None:
        try:
            head = await read_head(client, tunnelled=connect.wanted)
            if head is not None and head.http_version not in _VERSIONS:
                raise Unreadable(505, "only HTTP/1.1 is spoken to a host with a swap")
        except Unreadable as exc:
            await on_unreadable(client, number, exc, connect.wanted)
            passed.ended_by, passed.status = "refused", exc.status
            return
        except _LOST:
            return
        if head is None:
            passed.ended_by = "closed"
            return
        try:
            filled = await self._filled(number, head)
        except (AuthenticationFailed, InfrastructureFault) as exc:
            passed.ended_by, passed.is_told = str(exc), True
            await client.send(failure("the secret for this host cannot be had now; it was not asked"))
            return
        relay = RedactingRelay(client, outside, filled, passed, redactor=self.injector.redactor)
        await relay.run()
        if relay.status:
            passed.status = relay.status
        elif passed.ended_by != "inside":
            passed.is_told = True
            reason = f"its answer could not be passed on ({passed.ended_by})"
            await client.send(failure(reason, has_body=head.wanted.method != "HEAD"))

    async def _filled(self, number: int, head: Head) -> Head:
        """The request as it is sent; in the record before it is."""
        wanted = head.wanted
        headers, names = await self.injector.inject(str(wanted.host), head.headers)
        await self.note_strays(number, str(wanted.host), wanted.path, headers)
        await self._emit(
            EgressIntercepted(
                sandbox_id=self._sandbox_id,
                connection=number,
                host=str(wanted.host),
                method=wanted.method,
                path=wanted.path[:_PATH_CHARS],
                secrets=names,
            )
        )
        kept = [(name, value) for name, value in headers if name not in _NOT_SENT]
        return replace(head, headers=[*kept, (b"accept-encoding", b"identity")])

    async def note_strays(self, number: int, host: str, path: str, headers: Headers) -> None:
        """Record placeholders in a request that is read and in which they stay; of many alike, some."""
        for secret, place in self.injector.find_strays(path, headers):
            count = self._counts[secret] = self._counts.get(secret, 0) + 1
            if count > _TOLD_ONE_BY_ONE and count & (count - 1):
                continue
            await self._emit(
                PlaceholderStrayed(
                    sandbox_id=self._sandbox_id,
                    connection=number,
                    secret=secret,
                    host=host,
                    place=place[:_PLACE_CHARS],
                    repeated=count,
                )
            )


class RedactingRelay(Relay):
    """A relay that lets no secret back in.

    Args:
        inside: The client.
        outside: The host.
        head: The request, filled.
        passed: Counts.
        redactor: Knows the secrets.
    """

    def __init__(
        self, inside: ByteStream, outside: ByteStream, head: Head, passed: Exchange, *, redactor: Redactor
    ) -> None:
        super().__init__(inside, outside, head, passed)
        self._redactor = redactor
        self._is_head = head.wanted.method == "HEAD"
        self._held = b""

    def _answer_head(self, event: h11.Response) -> h11.Response:
        answer = super()._answer_head(event)
        headers = list(answer.headers)
        if any(
            name == b"content-encoding" and value.strip().lower() != b"identity" for name, value in headers
        ):
            raise CutOff("its answer is packed, although it was asked for plain")
        # What is taken out changes the length.
        kept = [(name, value) for name, value in headers if self._is_head or name != b"content-length"]
        return h11.Response(
            status_code=answer.status_code,
            reason=self._redactor.redact(bytes(answer.reason)),
            headers=[(name, self._redactor.redact(bytes(value))) for name, value in kept],
        )

    def _answer_piece(self, data: bytes) -> bytes:
        found = self._redactor.redact(self._held + data)
        tail = found[found.rfind(b"\n") + 1 :]  # no secret has a line end in it
        undecided = self._redactor.partial_match(tail.decode("latin-1")) if tail else 0
        piece = found[: len(found) - undecided]
        self._held = found[len(piece) :]
        return piece

    def _answer_rest(self) -> bytes:
        rest, self._held = self._held, b""
        return rest

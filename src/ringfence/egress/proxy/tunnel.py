"""Tunnels of CONNECT requests, which open only after their TLS was checked to be for the requested host."""

import ssl
import sys
from collections.abc import Awaitable, Callable

import anyio

from ringfence.config.host import read_host
from ringfence.egress.proxy.decision import TLS_PORT, Decision, Target
from ringfence.egress.proxy.request import ProxyRequest
from ringfence.egress.stream import PrefixedStream
from ringfence.egress.transfer import CutOff

HELLO_TIMEOUT_S = 20.0
HELLO_LIMIT_BYTES = 64 * 1024
"""The limit for a ClientHello; today's have at most 2 KiB."""

_READ_BYTES = 65_536
_HANDSHAKE = 22
_ACCESS_DENIED = bytes((21, 3, 3, 0, 2, 2, 49))
"""TLS's fatal alert `access_denied` (RFC 8446 6.2)."""


class NotTls(Exception):
    """The bytes are not a ClientHello; the text says why."""


class HelloReader:
    """Reads the server name from the ClientHello that a stream begins with, by OpenSSL's own server.

    The handshake is stopped as soon as the name is known; none of its bytes is sent.
    """

    def __init__(self) -> None:
        self.server_name: str | None = None
        """The name that the client requests, once `feed` has returned true; None if it requests none."""
        self._is_read = False
        self._fed_bytes = 0
        self._incoming = ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sni_callback = self._stop
        self._handshake = context.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)

    def feed(self, data: bytes) -> bool:
        """Add bytes of the stream; return whether the ClientHello is complete.

        Raises:
            NotTls: It is something else, or not one that a client sends.
        """
        if not self._fed_bytes and data[:1] != bytes((_HANDSHAKE,)):
            raise NotTls("it does not begin with a TLS handshake")
        self._fed_bytes += len(data)
        if self._fed_bytes > HELLO_LIMIT_BYTES:
            raise NotTls(f"its ClientHello is longer than {HELLO_LIMIT_BYTES} bytes")
        self._incoming.write(data)
        # A name that is not ASCII makes `ssl` write to stderr, which no process inside may cause.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
        try:
            self._handshake.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as exc:
            if not self._is_read:
                reason = (exc.reason or "unknown").lower().replace("_", " ")
                raise NotTls(f"it does not begin with an acceptable ClientHello ({reason})") from exc
        finally:
            sys.unraisablehook = hook
        return True

    def _stop(self, _connection: object, name: str | None, _context: object) -> int:
        self.server_name, self._is_read = name, True
        return ssl.ALERT_DESCRIPTION_ACCESS_DENIED


class Tunnel(PrefixedStream):
    """The client's side of a tunnel. Its first bytes are held until they were checked.

    On port 443 they must begin TLS for the tunnel's own host. On other ports they may be anything except TLS for another
    host.

    Args:
        request: The CONNECT that was read.
        on_refused: Called with a refusal before the connection is aborted.
    """

    def __init__(self, request: ProxyRequest, on_refused: Callable[[Decision], Awaitable[None]]) -> None:
        super().__init__(request.connection.stream, b"")
        self._connection = request.connection
        self._target = request.target
        self._on_refused = on_refused
        self._is_checked = False

    async def accept(self) -> None:
        """Respond to the client that the tunnel is open."""
        self._received = await self._connection.accept_connect()

    async def receive(self, max_bytes: int = _READ_BYTES) -> bytes:
        """Receive bytes of the client; the first ones are checked before they are returned."""
        if not self._is_checked:
            await self._check()
        return await super().receive(max_bytes)

    async def _check(self) -> None:
        try:
            with anyio.fail_after(HELLO_TIMEOUT_S):
                reason = await self._find_mismatch()
        except NotTls as exc:
            reason = str(exc)
        except TimeoutError:
            reason = f"no TLS was begun within {HELLO_TIMEOUT_S:g} s"
        if reason is not None:
            await self._on_refused(Decision(False, "server-name", reason))
            await self._stream.send(_ACCESS_DENIED)
            raise CutOff("refused")
        self._is_checked = True

    async def _find_mismatch(self) -> str | None:
        """Return why the client's first bytes are not for the tunnel's host; None if they are allowed.

        Raises:
            NotTls: The bytes must be TLS, and are not.
        """
        must_be_tls = self._target.port == TLS_PORT
        reader, piece = HelloReader(), self._received
        while True:
            if self._received and not must_be_tls and self._received[0] != _HANDSHAKE:
                return None
            if piece and reader.feed(piece):
                return _mismatch(reader.server_name, self._target)
            try:
                piece = await self._stream.receive(_READ_BYTES)
            except anyio.EndOfStream:
                if self._received:
                    raise NotTls("the connection ended within its ClientHello") from None
                return None
            self._received += piece


def _mismatch(server_name: str | None, target: Target) -> str | None:
    """Return why TLS for `server_name` is not for the host of its tunnel; None if it is."""
    if server_name is None:
        if isinstance(target.host, str):
            return f"its TLS names no server, and the tunnel is to {target.host}"
        return None
    try:
        name = read_host(server_name)
    except ValueError:
        name = ""
    if name == target.host:
        return None
    return f"its TLS is for {server_name[:100]!r}, and the tunnel is to {target.authority}"

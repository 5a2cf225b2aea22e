"""A CONNECT: bytes both ways, once the TLS in it is seen to be for the host that was asked for."""

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import ByteStream

from ringfence.config.host import read_host
from ringfence.egress.proxy.client_hello import ClientHello, HelloReader, NotTls, is_tls
from ringfence.egress.proxy.decision import TLS_PORT, Decision, Wanted
from ringfence.egress.pump import CutOff

HELLO_S = 20.0
_READ = 65_536

OnRefused = Callable[[Decision, bool], Awaitable[None]]
"""Is told a refusal before the connection is cut off, and whether a further name was encrypted."""


class CheckedStream(ByteStream):
    """The client's side of a tunnel. What it sends first is held back until it is seen to be what was allowed.

    On port 443 that is TLS for the tunnel's own host. On other ports it may be anything; but if it is TLS, then that.

    Args:
        inside: The connection.
        wanted: What the tunnel was allowed for.
        early: What came with the CONNECT.
        on_refused: See `OnRefused`.
    """

    def __init__(self, inside: ByteStream, wanted: Wanted, early: bytes, on_refused: OnRefused) -> None:
        self._inside = inside
        self._wanted = wanted
        self._held = early
        self._on_refused = on_refused
        self._is_checked = False
        self.has_ech = False
        """Whether the client encrypts a further name."""

    async def receive(self, max_bytes: int = _READ) -> bytes:
        """Bytes of the client, after the first ones were looked at."""
        if not self._is_checked:
            await self._check()
        if self._held:
            piece, self._held = self._held[:max_bytes], self._held[max_bytes:]
            return piece
        return await self._inside.receive(max_bytes)

    async def _check(self) -> None:
        try:
            with anyio.fail_after(HELLO_S):
                hello = await self._hello()
            reason = None if hello is None else _mismatch(hello, self._wanted)
        except NotTls as exc:
            hello, reason = None, str(exc)
        except TimeoutError:
            hello, reason = None, f"no TLS was begun within {HELLO_S:g} s"
        self.has_ech = hello is not None and hello.has_ech
        if reason is not None:
            await self._on_refused(Decision(False, "server-name", reason), self.has_ech)
            raise CutOff("refused")
        self._is_checked = True

    async def _hello(self) -> ClientHello | None:
        """The ClientHello; None for what is not TLS and need not be.

        Raises:
            NotTls: It should be, and is not.
        """
        must_be_tls = self._wanted.port == TLS_PORT
        reader, piece = HelloReader(), self._held
        while True:
            if self._held and not must_be_tls and not is_tls(self._held):
                return None
            hello = reader.feed(piece)
            if hello is not None:
                return hello
            try:
                piece = await self._inside.receive(_READ)
            except anyio.EndOfStream:
                if self._held:
                    raise NotTls("the connection ended within its ClientHello") from None
                return None
            self._held += piece

    async def send(self, item: bytes) -> None:
        """Bytes for the client."""
        await self._inside.send(item)

    async def send_eof(self) -> None:
        """No more for the client."""
        await self._inside.send_eof()

    async def aclose(self) -> None:
        """Let go of it."""
        await self._inside.aclose()


def _mismatch(hello: ClientHello, wanted: Wanted) -> str | None:
    """Why a ClientHello is not for the host of its tunnel; None if it is."""
    if hello.server_name is None:
        if isinstance(wanted.host, str):
            return f"its TLS names no server, and the tunnel is to {wanted.host}"
        return None
    try:
        name = read_host(hello.server_name)
    except ValueError:
        name = ""
    if name == wanted.host:
        return None
    return f"its TLS is for {hello.server_name[:100]!r}, and the tunnel is to {wanted.target}"

"""The real API over connections of our own, kept for the next request for a while."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

import anyio
from aiohappyeyeballs import start_connection

from ringfence.egress.gateway.upstream import CONNECT_S, SILENT_S, Tell, UpstreamGone, origin_of
from ringfence.egress.gateway.wire import Wire
from ringfence.frozen import frozen

_KEPT_S = 60.0
_CLOSE_S = 1.0
_PATH = "/%!$&'()*+,;=:@-._~"
_ATTEMPT_S = 0.25
"""Until the next of a name's addresses is tried too (RFC 8305)."""


@frozen
class Origin:
    """Where an API is."""

    shown: str
    host: str
    port: int
    is_tls: bool
    named: str
    """As the request's `Host` has it."""
    below: str
    """What the base URL's path is, without a slash at its end."""


@lru_cache(maxsize=64)
def origin_for(base_url: str) -> Origin | None:
    """Where a base URL leads; None if it is of a kind that needs more than a connection."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if parts.username is not None or not host.isascii() or "%" in host:
        return None
    is_tls = parts.scheme == "https"
    below = quote(parts.path.rstrip("/"), safe=_PATH)
    usual = 443 if is_tls else 80
    named = f"[{host}]" if ":" in host else host
    named += f":{parts.port}" if parts.port not in (None, usual) else ""
    return Origin(origin_of(base_url), host, parts.port or usual, is_tls, named, below)


class DirectUpstream:
    """Connections to APIs, as many as are asked at once."""

    def __init__(self) -> None:
        self._kept: dict[Origin, list[tuple[Wire, asyncio.TimerHandle]]] = {}
        self._open: set[Wire] = set()
        self._has_none_open = anyio.Event()
        self._is_closed = False

    async def ask(
        self,
        method: str,
        origin: Origin,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        verified: ssl.SSLContext | None,
        tell: Tell,
    ) -> "DirectAnswer":
        """Ask; the head of the answer.

        Raises:
            UpstreamGone: It cannot be reached, or gives no answer.
        """
        head = _head(method, origin, path, headers, body)
        wire = self._take(origin) or await self._connected(origin, verified)
        try:
            wire.ask(head, body)
            await tell()  # while the API thinks
            await _wait_for_head(wire, origin)
        except BaseException:
            wire.close()
            raise
        return DirectAnswer(wire, origin, self)

    def _take(self, origin: Origin) -> Wire | None:
        kept = self._kept.get(origin, [])
        while kept:
            wire, alarm = kept.pop()
            alarm.cancel()
            if wire.is_free:
                return wire
            wire.close()
        return None

    def give_back(self, origin: Origin, wire: Wire) -> None:
        """Keep a connection for the next request, or let go of it."""
        if self._is_closed or not wire.is_free:
            wire.close()
            return
        kept = self._kept.setdefault(origin, [])
        entry = (wire, asyncio.get_running_loop().call_later(_KEPT_S, lambda: self._forget(origin, wire)))
        kept.append(entry)

    def _forget(self, origin: Origin, wire: Wire) -> None:
        self._kept[origin] = [entry for entry in self._kept[origin] if entry[0] is not wire]
        wire.close()

    async def aclose(self) -> None:
        """Close the connections."""
        self._is_closed = True
        for kept in self._kept.values():
            for _, alarm in kept:
                alarm.cancel()
        self._kept.clear()
        for wire in self._open:
            wire.close()
        with anyio.move_on_after(_CLOSE_S):
            while self._open:
                await self._has_none_open.wait()

    async def _connected(self, origin: Origin, verified: ssl.SSLContext | None) -> Wire:
        try:
            async with asyncio.timeout(CONNECT_S):
                wire = await self._made(origin, verified)
        except ssl.SSLCertVerificationError as exc:
            raise UpstreamGone(
                f"the certificate of {origin.shown} is not trusted ({exc}); SSL_CERT_FILE names your own",
                is_final=True,
            ) from exc
        except TimeoutError as exc:
            raise UpstreamGone(f"{origin.shown} did not answer in time") from exc
        except (OSError, ValueError) as exc:
            raise UpstreamGone(f"{origin.shown} cannot be reached: {_why(exc)}") from exc
        return wire

    async def _made(self, origin: Origin, verified: ssl.SSLContext | None) -> Wire:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        # asyncio's own race of addresses loses the socket of a connection that is cancelled just as it is there.
        connected = await start_connection(addresses, happy_eyeballs_delay=_ATTEMPT_S, interleave=1)
        wire = Wire(silent_s=SILENT_S, on_lost=self._on_lost)
        self._open.add(wire)
        try:
            await loop.create_connection(
                lambda: wire,
                sock=connected,
                ssl=verified if origin.is_tls else None,
                server_hostname=origin.host if origin.is_tls else None,
            )
        except BaseException:
            wire.close()
            self._on_lost(wire)
            raise
        return wire

    def _on_lost(self, wire: Wire) -> None:
        self._open.discard(wire)
        if not self._open:
            self._has_none_open.set()
            self._has_none_open = anyio.Event()


@dataclass
class DirectAnswer:
    """The head of an answer; the body is still to be read."""

    wire: Wire
    origin: Origin
    owner: DirectUpstream
    is_over: bool = False

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.wire.status

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """As they came."""
        return tuple(self.wire.headers)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises `UpstreamGone`."""
        try:
            async for piece in self.wire.pieces():
                yield piece
        except OSError as exc:
            raise _gone(exc, self.origin.shown) from exc

    async def aclose(self) -> None:
        """Let go; what was not read is not read."""
        if not self.is_over:
            self.is_over = True
            self.owner.give_back(self.origin, self.wire)


async def _wait_for_head(wire: Wire, origin: Origin) -> None:
    try:
        await wire.wait_for_head()
    except OSError as exc:
        raise _gone(exc, origin.shown) from exc


def _head(method: str, origin: Origin, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {origin.below}{path} HTTP/1.1", f"Host: {origin.named}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        raise UpstreamGone(f"a header for {origin.shown} has a line end in it", is_final=True)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def _why(exc: OSError | ValueError) -> str:
    if isinstance(exc, OSError) and exc.errno and exc.errno > 0 and not isinstance(exc, ssl.SSLError):
        return os.strerror(exc.errno)
    return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)


def _gone(exc: OSError, shown: str) -> UpstreamGone:
    if isinstance(exc, TimeoutError):
        return UpstreamGone(f"{shown} did not answer in time")
    return UpstreamGone(f"{shown} broke off: {_why(exc)}")

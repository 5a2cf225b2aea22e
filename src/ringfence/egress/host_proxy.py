"""The proxy through which this machine reaches the web, if its environment names one; its password stays here."""

import base64
import os
import ssl
from dataclasses import field
from urllib.parse import unquote, urlsplit

import anyio
import h11
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ringfence.egress.http.client_connection import ClientConnection
from ringfence.egress.http.trust import verified_context
from ringfence.egress.resolver import Unreachable, connect_first, resolve_by_system
from ringfence.egress.stream import PrefixedStream, TlsByteStream
from ringfence.frozen import frozen

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_ANSWER_S = 30.0
_LOOKUP_S = 10.0
_HANDSHAKE_S = 20.0
_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class UnknownProxy(Exception):
    """The environment names a proxy of an unsupported kind; the text says which, without its password."""


@frozen
class HostProxy:
    """A proxy of this machine's environment."""

    host: str
    port: int
    is_tls: bool = False
    """Whether connections to it use TLS."""
    authorization: bytes | None = field(default=None, repr=False)
    """The value of `Proxy-Authorization`; None if the environment gives no user."""

    @property
    def shown(self) -> str:
        """The URL of the proxy without its password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that a request to it needs in addition."""
        return [(b"Proxy-Authorization", self.authorization)] if self.authorization else []


def find_proxy(url: str) -> str | None:
    """Return the URL of the proxy that the environment names for `url`; None without one, and for loopback hosts.

    Args:
        url: The URL to reach; its scheme, host and port count.

    Raises:
        UnknownProxy: The proxy is of an unsupported kind.
    """
    parts = urlsplit(url)
    if (parts.hostname or "") in _LOOPBACK or not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    # The import takes 20 ms, and most machines have no proxy.
    from urllib.request import (  # type: ignore[attr-defined]  # not in typeshed
        getproxies_environment,
        proxy_bypass_environment,
    )

    proxies = getproxies_environment()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass_environment(parts.netloc.rpartition("@")[2], proxies):
        return None
    if "://" not in found:
        found = f"http://{found}"
    kind = urlsplit(found).scheme
    if kind not in ("http", "https"):
        raise UnknownProxy(f"is one of kind {kind!r}; give an HTTP proxy")
    return found


def host_proxy_for(url: str) -> HostProxy | None:
    """Return the proxy through which this machine reaches `url`; None if it needs none.

    Raises:
        Unreachable: The environment names a proxy that cannot be used.
    """
    try:
        found = find_proxy(url)
        return None if found is None else _read(found)
    except UnknownProxy as exc:
        raise Unreachable(f"this machine's proxy {exc}") from exc
    except ValueError:
        raise Unreachable("the proxy address in this machine's environment is not valid") from None


async def connect_proxy(proxy: HostProxy) -> ByteStream:
    """Connect to the proxy.

    Raises:
        Unreachable: The proxy does not respond, or its certificate is not trusted.
    """
    try:
        with anyio.fail_after(_LOOKUP_S):
            found = await resolve_by_system(proxy.host, proxy.port)
        stream = await connect_first(found)
    except (Unreachable, OSError, TimeoutError) as exc:
        raise Unreachable(f"this machine's proxy {proxy.shown} cannot be reached: {_reason(exc)}") from exc
    if not proxy.is_tls:
        return stream
    try:
        with anyio.fail_after(_HANDSHAKE_S):
            context = await verified_context()
            return TlsByteStream(await TLSStream.wrap(stream, hostname=proxy.host, ssl_context=context))
    except (*_LOST, OSError, TimeoutError) as exc:
        await anyio.aclose_forcefully(stream)
        raise Unreachable(f"no TLS with this machine's proxy {proxy.shown}: {_reason(exc)}") from exc


async def open_tunnel(proxy: HostProxy, target: str) -> ByteStream:
    """Connect to `target` through the proxy.

    Args:
        proxy: The proxy.
        target: Host and port; the proxy resolves the name.

    Raises:
        Unreachable: The proxy does not connect to the target.
    """
    stream = await connect_proxy(proxy)
    try:
        with anyio.fail_after(_ANSWER_S):
            return PrefixedStream(stream, await _request_tunnel(stream, proxy, target))
    except BaseException as exc:
        await anyio.aclose_forcefully(stream)
        if isinstance(exc, (*_LOST, TimeoutError, h11.RemoteProtocolError)):
            raise Unreachable(f"this machine's proxy {proxy.shown} does not answer") from exc
        raise


def refused_by(proxy: HostProxy, status: int) -> str:
    """Return the reason for a failure, by the status of the proxy's response."""
    if status == 407:
        return f"this machine's proxy {proxy.shown} requires another user or password (407)"
    return f"this machine's proxy {proxy.shown} refuses it ({status})"


async def _request_tunnel(stream: ByteStream, proxy: HostProxy, target: str) -> bytes:
    """Request a tunnel; return the bytes received after the head of the response."""
    connection = ClientConnection(stream)
    headers = [(b"Host", target.encode()), *proxy.headers]
    await connection.send(h11.Request(method="CONNECT", target=target, headers=headers), h11.EndOfMessage())
    response = await connection.receive_head()
    if not 200 <= response.status_code < 300:
        raise Unreachable(refused_by(proxy, response.status_code))
    return connection.rest


def _read(url: str) -> HostProxy:
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    if not parts.hostname:
        raise ValueError("there is no host in it")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = b"Basic " + base64.b64encode(pair.encode())
    return HostProxy(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, authorization)


def _reason(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError) and not isinstance(exc, OSError | Unreachable):
        return "no answer in time"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({exc.verify_message})"
    return getattr(exc, "strerror", None) or str(exc) or "the connection ended"

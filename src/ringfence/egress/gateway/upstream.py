"""The real API, asked from the host: TLS verified, the host's proxies honoured, redirects never followed."""

# Names are looked up in threads, where two at once may find this half imported: "unknown encoding: idna".
import encodings.idna  # noqa: F401
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio.to_thread

from ringfence.egress.host_proxy import UnknownProxy, find_proxy
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.egress.gateway.direct import DirectUpstream, Origin
    from ringfence.egress.gateway.proxied import ProxiedUpstream

CONNECT_S = 15.0
SILENT_S = 600.0


class UpstreamGone(Exception):
    """The API cannot be asked, or broke off; the text says how.

    Args:
        reason: One line, without the credential.
        is_final: Whether asking again is of no use.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class UpstreamAnswer(Protocol):
    """The head of an answer; the body is still to be read."""

    @property
    def status(self) -> int:
        """Of HTTP."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """As they came."""

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises `UpstreamGone`."""

    async def aclose(self) -> None:
        """Let go; what was not read is not read."""


Tell = Callable[[], Awaitable[None]]
"""Writes the request down."""


@lru_cache(maxsize=4)
def _certificates(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    """As the SDK makes it: SSL_CERT_FILE and SSL_CERT_DIR, else where this system has its certificates."""
    import httpx2

    return httpx2.create_ssl_context()


class HttpUpstream:
    """APIs over HTTP."""

    def __init__(self) -> None:
        self._direct: DirectUpstream | None = None
        self._proxied: ProxiedUpstream | None = None
        self._verified: ssl.SSLContext | None = None
        self._ways: dict[str, tuple[str | None, Origin | None]] = {}
        """Proxy and origin of each base URL: to look through the environment takes a while."""

    async def ask(
        self,
        method: str,
        base_url: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        tell: Tell,
    ) -> UpstreamAnswer:
        """Ask; the head of the answer.

        Raises:
            UpstreamGone: It cannot be reached, redirects, or gives no answer.
        """
        if self._verified is None and base_url.startswith("https:"):
            places = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
            self._verified = await anyio.to_thread.run_sync(_certificates, *places)
        proxy, origin = self._ways.get(base_url) or self._found(base_url)
        came: UpstreamAnswer
        if proxy is None and origin is not None:
            came = await self._opened_direct().ask(
                method, origin, path, headers=headers, body=body, verified=self._verified, tell=tell
            )
        else:
            proxied = await self._opened_proxied()
            await tell()
            came = await proxied.ask(
                method, base_url, path, headers=headers, body=body, proxy=proxy, verified=self._verified
            )
        return await _checked(came, base_url)

    async def aclose(self) -> None:
        """Close the connections."""
        direct, self._direct = self._direct, None
        proxied, self._proxied = self._proxied, None
        if direct is not None:
            await direct.aclose()
        if proxied is not None:
            await proxied.aclose()

    def _found(self, base_url: str) -> "tuple[str | None, Origin | None]":
        from ringfence.egress.gateway.direct import origin_for

        way = self._ways[base_url] = proxy_for(base_url), origin_for(base_url)
        return way

    def _opened_direct(self) -> "DirectUpstream":
        if self._direct is None:
            from ringfence.egress.gateway.direct import DirectUpstream

            self._direct = DirectUpstream()
        return self._direct

    async def _opened_proxied(self) -> "ProxiedUpstream":
        if self._proxied is None:
            await anyio.to_thread.run_sync(import_module, "aiohttp")  # it takes a fifth of a second
        from ringfence.egress.gateway.proxied import ProxiedUpstream

        self._proxied = self._proxied or ProxiedUpstream()
        return self._proxied


async def _checked(came: UpstreamAnswer, base_url: str) -> UpstreamAnswer:
    """An answer of the kind that is passed on."""
    if 200 <= came.status < 300 or 400 <= came.status < 600:
        return came
    await came.aclose()
    if 300 <= came.status < 400:
        raise UpstreamGone(
            f"{origin_of(base_url)} answers with a redirect ({came.status}), which is never followed; "
            "set the base URL to where it leads",
            is_final=True,
        )
    raise UpstreamGone(f"{origin_of(base_url)} answers with {came.status}, which is no answer")


def check_base_url(base_url: str, *, source: str = "") -> str:
    """See that it is one.

    Args:
        base_url: What was given.
        source: Where it was given, for the error.

    Raises:
        UsageError: It is not.
    """
    try:
        parts = urlsplit(base_url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        is_good = is_good and not parts.query and not parts.fragment
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(
            f"base URL {base_url!r}{f' ({source})' if source else ''} is not one; write it like https://host or http://127.0.0.1:8080"
        )
    return base_url


def origin_of(base_url: str) -> str:
    """Scheme, host and port: a base URL may hold a password."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def proxy_for(base_url: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The proxy that the host's environment names for `base_url`; None for none, and for this machine.

    Raises:
        UpstreamGone: It is one of a kind that is not spoken here.
    """
    try:
        return find_proxy(base_url, environ)
    except UnknownProxy as exc:
        raise UpstreamGone(f"the proxy for {origin_of(base_url)} {exc}", is_final=True) from exc

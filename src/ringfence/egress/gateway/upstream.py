"""The real API, asked from the host: TLS verified, the host's proxies honoured, redirects never followed."""

import asyncio
import os
import ssl
import threading
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio.to_thread

from ringfence.egress.host_proxy import UnknownProxy, find_proxy
from ringfence.errors import UsageError

if TYPE_CHECKING:
    import aiohttp

_CONNECT_S = 15.0
_SILENT_S = 600.0
_PIECE = 64 * 1024


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


class Upstream(Protocol):
    """Something that answers requests to a model's API."""

    async def ask(
        self, method: str, base_url: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> UpstreamAnswer:
        """Ask. Raises `UpstreamGone`."""

    async def aclose(self) -> None:
        """Close the connections."""


def warm_up() -> threading.Thread:
    """Begin to import the HTTP client, which takes a fifth of a second, in a thread."""
    thread = threading.Thread(target=_import_client, name="import-aiohttp", daemon=True)
    thread.start()
    return thread


def _import_client() -> None:
    import aiohttp  # noqa: F401


@lru_cache(maxsize=4)
def _certificates(_file: str | None, _directory: str | None) -> ssl.SSLContext:
    """As the SDK makes it: SSL_CERT_FILE and SSL_CERT_DIR, else where this system has its certificates."""
    import httpx2

    return httpx2.create_ssl_context()


class HttpUpstream:
    """APIs over HTTP."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._verified: ssl.SSLContext | None = None

    async def ask(
        self, method: str, base_url: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> "UpstreamAnswer":
        """Ask; the head of the answer.

        Raises:
            UpstreamGone: It cannot be reached, redirects, or gives no answer.
        """
        session = await self._opened()
        import aiohttp

        if self._verified is None and base_url.startswith("https:"):
            places = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
            self._verified = await anyio.to_thread.run_sync(_certificates, *places)

        proxy = proxy_for(base_url)
        try:
            response = await session.request(
                method,
                base_url.rstrip("/") + path,
                data=body or None,
                headers=headers,
                proxy=proxy,
                allow_redirects=False,
                ssl=self._verified or True,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as exc:
            raise _gone(exc, origin_of(base_url)) from exc
        if 300 <= response.status < 400:
            response.close()
            raise UpstreamGone(
                f"{origin_of(base_url)} answers with a redirect ({response.status}), which is never followed; "
                "set the base URL to where it leads",
                is_final=True,
            )
        if not 200 <= response.status < 600:
            response.close()
            raise UpstreamGone(f"{origin_of(base_url)} answers with {response.status}, which is no answer")
        return _HttpAnswer(response, origin_of(base_url))

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _opened(self) -> "aiohttp.ClientSession":
        if self._session is None:
            await anyio.to_thread.run_sync(_import_client)
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                # As many as the listeners inside let in; a bound of its own would make streams wait for each other.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENT_S),
                skip_auto_headers=("User-Agent", "Accept"),
            )
        return self._session


@dataclass
class _HttpAnswer:
    response: "aiohttp.ClientResponse"
    origin: str

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.response.headers.items())

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        import aiohttp

        try:
            async for piece in self.response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as exc:
            raise _gone(exc, self.origin) from exc

    async def aclose(self) -> None:
        if self.response.content.is_eof():
            self.response.release()
        else:
            self.response.close()


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


def _gone(exc: BaseException, origin: str) -> UpstreamGone:
    import aiohttp

    if isinstance(exc, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return UpstreamGone(
            f"the certificate of {origin} is not trusted ({exc}); SSL_CERT_FILE names your own", is_final=True
        )
    if isinstance(exc, TimeoutError | asyncio.TimeoutError):
        return UpstreamGone(f"{origin} did not answer in time")
    if isinstance(exc, aiohttp.ClientConnectorError):
        return UpstreamGone(f"{origin} cannot be reached: {os.strerror(exc.errno) if exc.errno else exc}")
    if isinstance(exc, OSError) and exc.errno:
        return UpstreamGone(f"{origin} broke off: {os.strerror(exc.errno)}")
    return UpstreamGone(f"{origin} broke off: {type(exc).__name__}: {exc}")

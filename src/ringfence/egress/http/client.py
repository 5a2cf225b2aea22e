"""Sends HTTP requests from the host: over verified TLS, through the host's proxies, and without following redirects.

Importing aiohttp takes about 80 ms, so it is imported in a thread: when a client is opened ahead of its first request
(`open`), or with that request. Other modules that only requests need are imported with it.
"""

# Names are resolved in threads; two of them may find this module half imported ("unknown encoding: idna").
import encodings.idna  # noqa: F401
import io
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio.to_thread

from ringfence.egress.host_proxy import UnknownProxy, find_proxy
from ringfence.egress.http.trust import verified_context

if TYPE_CHECKING:
    import aiohttp

CONNECT_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 600.0
_KEEP_ALIVE_S = 60.0
_PIECE_BYTES = 256 * 1024
_STREAMED_BODY_BYTES = 1_000_000
"""Bodies above this size are written in pieces, so that they do not hold up the event loop."""


class UpstreamError(Exception):
    """A server could not be reached, aborted, or did not send a valid response. The text holds no credential.

    Args:
        reason: Why, in one line.
        is_final: Whether a retry is useless.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class HttpResponse:
    """The head of a response; the body is still to be read."""

    def __init__(self, response: "aiohttp.ClientResponse", origin: str) -> None:
        self._response = response
        self._origin = origin
        self.status = response.status
        self.headers = tuple(response.headers.items())

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Yield the body piece by piece. Raises `UpstreamError`."""
        import aiohttp

        try:
            async for piece in self._response.content.iter_chunked(_PIECE_BYTES):
                yield piece
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise _upstream_error(exc, self._origin) from exc

    async def aclose(self) -> None:
        """Release the connection; it is closed if the body was not read to its end."""
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()


class HttpClient:
    """Keeps connections open between requests. The limits on time are per connection attempt and per wait for bytes."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b""
    ) -> HttpResponse:
        """Send a request and wait for the head of the response.

        Raises:
            UpstreamError: The server cannot be reached, is not trusted, redirects or sends no valid response.
        """
        origin = origin_of(url)
        if any(end in text for pair in headers.items() for text in pair for end in "\r\n\0"):
            raise UpstreamError(f"a header for {origin} contains a line end", is_final=True)
        session = self._session or await self.open()
        import aiohttp

        try:
            # aiohttp bounds each silence, but not the number of interim responses.
            with anyio.fail_after(CONNECT_TIMEOUT_S + READ_TIMEOUT_S):
                response = await session.request(
                    method,
                    url,
                    data=io.BytesIO(body) if len(body) > _STREAMED_BODY_BYTES else body or None,
                    headers=headers,
                    proxy=_find_proxy(url),
                    allow_redirects=False,
                    ssl=await verified_context() if url.startswith("https:") else True,
                )
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise _upstream_error(exc, origin) from exc
        return await _check_response(HttpResponse(response, origin), origin)

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def open(self) -> "aiohttp.ClientSession":
        """Get ready for the first request."""
        await anyio.to_thread.run_sync(import_module, "aiohttp")
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The listeners inside bound the number of requests; a second bound would make streams wait.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=READ_TIMEOUT_S
                ),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
            )
        return self._session


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL, without the password that it may hold."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _find_proxy(url: str) -> str | None:
    try:
        return find_proxy(url)
    except UnknownProxy as exc:
        raise UpstreamError(f"the proxy for {origin_of(url)} {exc}", is_final=True) from exc


async def _check_response(response: HttpResponse, origin: str) -> HttpResponse:
    """Check that a response is final, not a redirect, and not a compressed body whose truncation would go unnoticed."""
    names = {name.lower() for name, _ in response.headers}
    is_cuttable = "content-encoding" in names and not names & {"content-length", "transfer-encoding"}
    if (200 <= response.status < 300 or 400 <= response.status < 600) and not is_cuttable:
        return response
    await response.aclose()
    if 300 <= response.status < 400:
        raise UpstreamError(
            f"{origin} answers with a redirect ({response.status}), which is never followed; "
            "set the base URL to where it leads",
            is_final=True,
        )
    if is_cuttable:
        raise UpstreamError(f"{origin} sends a compressed body without its length")
    raise UpstreamError(f"{origin} answers with the unexpected status {response.status}")


def _upstream_error(exc: Exception, origin: str) -> UpstreamError:
    import aiohttp

    if isinstance(exc, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return UpstreamError(
            f"the certificate of {origin} is not trusted ({exc}); set SSL_CERT_FILE to your own authorities",
            is_final=True,
        )
    if isinstance(exc, TimeoutError):
        return UpstreamError(f"{origin} did not answer in time")
    if isinstance(exc, aiohttp.ClientConnectorError):
        return UpstreamError(f"{origin} cannot be reached: {os.strerror(exc.errno) if exc.errno else exc}")
    if isinstance(exc, OSError) and exc.errno:
        return UpstreamError(f"{origin} broke off: {os.strerror(exc.errno)}")
    return UpstreamError(f"{origin} broke off: {type(exc).__name__}: {exc}")

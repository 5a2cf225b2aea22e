"""The real API by way of a proxy of the host's, by a client that knows them."""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

import aiohttp

from ringfence.egress.gateway.upstream import CONNECT_S, SILENT_S, UpstreamGone, origin_of


class ProxiedUpstream:
    """Asks through proxies; also where a base URL is of a kind that needs more than a connection."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            # As many as the listeners inside let in; a bound of its own would make streams wait for each other.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENT_S),
            skip_auto_headers=("User-Agent", "Accept"),
        )

    async def ask(
        self,
        method: str,
        base_url: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        proxy: str | None,
        verified: ssl.SSLContext | None,
    ) -> "ProxiedAnswer":
        """Ask; the head of the answer.

        Raises:
            UpstreamGone: It cannot be reached, or gives no answer.
        """
        try:
            response = await self._session.request(
                method,
                base_url.rstrip("/") + path,
                data=body or None,
                headers=headers,
                proxy=proxy,
                allow_redirects=False,
                ssl=verified or True,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as exc:
            raise _gone(exc, origin_of(base_url)) from exc
        return ProxiedAnswer(response, origin_of(base_url))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()


@dataclass
class ProxiedAnswer:
    """The head of an answer; the body is still to be read."""

    response: aiohttp.ClientResponse
    origin: str

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.response.status

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """As they came."""
        return tuple(self.response.headers.items())

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises `UpstreamGone`."""
        try:
            async for piece in self.response.content.iter_any():
                yield piece
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as exc:
            raise _gone(exc, self.origin) from exc

    async def aclose(self) -> None:
        """Let go; what was not read is not read."""
        if self.response.content.is_eof():
            self.response.release()
        else:
            self.response.close()


def _gone(exc: BaseException, origin: str) -> UpstreamGone:
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

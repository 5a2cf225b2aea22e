"""Upstreams, which receive the gateway's requests: the contract, and the implementation for APIs over HTTP."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from ringfence.egress.http.client import HttpClient, origin_of
from ringfence.errors import UsageError
from ringfence.frozen import frozen


@frozen
class UpstreamRequest:
    """A request as the gateway forwards it: checked, bounded and with the real credential."""

    method: str
    path: str
    """Below the provider's base URL, with the query: `/v1/messages` for Anthropic, `/responses` for OpenAI, whose base
    URL ends in `/v1`."""
    headers: Mapping[str, str]
    body: bytes = b""


class UpstreamResponse(Protocol):
    """The head of a response; the body is still to be read."""

    @property
    def status(self) -> int:
        """The HTTP status, from 200 to 299 or from 400 to 599."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names in any case. The gateway forwards only those it knows."""

    def body(self) -> AsyncGenerator[bytes, None]:
        """The body, piece by piece, once; an async generator.

        Raises:
            UpstreamError: The API aborted the response.
        """

    async def aclose(self) -> None:
        """Release the connection. The rest of the body is discarded. May be called more than once."""


class Upstream(ABC):
    """A model's API, as the gateway calls it.

    The gateway writes a request to the record before it sends it, and sends several at once.
    """

    origin: str
    """The API's address for messages: scheme, host and port, or a description."""

    async def open(self) -> None:  # noqa: B027 -- an upstream that needs no preparation inherits it
        """Get ready for the first request. `send` works without it."""

    @abstractmethod
    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request and wait for the head of the response.

        Raises:
            UpstreamError: There is no response.
        """

    async def aclose(self) -> None:  # noqa: B027 -- an upstream that holds nothing inherits it
        """Release everything; called once, when the gateway closes. It may be used again afterwards."""


class HttpUpstream(Upstream):
    """A real API over HTTP.

    Args:
        base_url: The URL of the API; may have a path.
    """

    def __init__(self, base_url: str) -> None:
        self._base_url = check_base_url(base_url).rstrip("/")
        self.origin = origin_of(base_url)
        self._client = HttpClient()

    async def open(self) -> None:
        """See `Upstream`."""
        await self._client.open()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """See `Upstream`."""
        return await self._client.send(
            request.method, self._base_url + request.path, headers=request.headers, body=request.body
        )

    async def aclose(self) -> None:
        """See `Upstream`."""
        await self._client.aclose()


def check_base_url(base_url: str, *, source: str = "") -> str:
    """Check that `base_url` is a valid base URL, and return it.

    Args:
        base_url: The value to check.
        source: Where it was set, for the error.

    Raises:
        UsageError: It is not a base URL.
    """
    try:
        parts = urlsplit(base_url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        is_good = is_good and not parts.query and not parts.fragment
    except ValueError:
        is_good = False
    if not is_good:
        raise UsageError(
            f"base URL {base_url!r}{f' ({source})' if source else ''} is not valid; "
            "write it like https://host or http://127.0.0.1:8080"
        )
    return base_url

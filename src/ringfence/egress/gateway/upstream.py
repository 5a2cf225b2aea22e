"""Upstreams, which receive the gateway's requests: the contract, APIs over HTTP, and the headers that are forwarded.

Neither credentials from inside nor cookies are forwarded.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from ringfence.egress.gateway.policy import ModelPolicy, betas
from ringfence.egress.http.client import HttpClient, origin_of
from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.secret import Credential, Redactor

_REQUEST = re.compile(
    r"accept|user-agent|anthropic-version|x-app|x-stainless-[a-z-]+|x-claude-code-[a-z-]+|x-client-[a-z-]+|"
    r"openai-beta|originator|version|session[-_]id|thread-id|conversation_id|x-codex-[a-z-]+|idempotency-key"
)
_RESPONSE = re.compile(
    r"content-type|request-id|x-request-id|retry-after|retry-after-ms|x-should-retry|anthropic-ratelimit-[a-z0-9-]+|"
    r"anthropic-priority-[a-z0-9-]+|x-ratelimit-[a-z0-9-]+|ratelimit-[a-z0-9-]+|openai-model|openai-version|"
    r"openai-processing-ms|x-codex-[a-z0-9-]+|x-reasoning-included|x-models-etag"
)
_LIMIT_CHARS = 8192

Headers = tuple[tuple[str, str], ...]


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


def request_headers(received: Headers, credential: Credential, policy: ModelPolicy) -> dict[str, str]:
    """Return the headers of the forwarded request: the client's allowed headers, and the real credential."""
    sent = {name: value for name, value in received if _is_forwarded(_REQUEST, name) and _is_plain(value)}
    wanted = betas(
        ",".join(value for name, value in received if name == "anthropic-beta" and _is_plain(value)), policy
    )
    sent |= {"content-type": "application/json", "accept-encoding": "identity"}
    own = {name.lower(): value for name, value in credential.headers().items()}
    every = [*([wanted] if wanted else []), *([own.pop("anthropic-beta")] if "anthropic-beta" in own else [])]
    return sent | ({"anthropic-beta": ",".join(every)} if every else {}) | own


def response_headers(received: Iterable[tuple[str, str]], redactor: Redactor) -> dict[str, str]:
    """Return the headers of the response: the API's allowed headers, with the credential redacted.

    A header whose name contains the credential is left out.
    """
    return {
        name: redactor.redact(value.strip())
        for name, value in ((key.lower(), value) for key, value in received)
        if _is_forwarded(_RESPONSE, name) and _is_plain(value) and not redactor.is_in_name(name.encode())
    }


@lru_cache(maxsize=512)  # the same few names come with every request
def _is_forwarded(allowed: re.Pattern[str], name: str) -> bool:
    return allowed.fullmatch(name) is not None


def _is_plain(value: str) -> bool:
    return len(value) <= _LIMIT_CHARS and value.isascii() and (not value or value.isprintable())

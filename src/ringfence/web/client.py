"""The client of the HTTP API: over the daemon's Unix socket, or over TCP with a token."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx2

from ringfence.errors import RingfenceError

_TIMEOUT_S = 30.0
_MAX_MESSAGE = 2000


class ApiError(RingfenceError):
    """The API rejected a request.

    Args:
        status: The status of the response.
        message: The reason given by the API.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiUnreachable(ApiError):
    """The API did not respond."""

    def __init__(self, message: str) -> None:
        super().__init__(503, message)


class _FallbackTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the first of several Unix sockets on which a server listens."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._transports = {path: _uds_transport(path) for path in paths}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        for path in self._paths[:-1]:
            try:
                return await self._transports[path].handle_async_request(request)
            except httpx2.ConnectError:  # nothing was sent, so another socket may be tried
                continue
        return await self._transports[self._paths[-1]].handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()


def _uds_transport(path: Path) -> httpx2.AsyncHTTPTransport:
    return httpx2.AsyncHTTPTransport(uds=str(path))


class ApiClient:
    """A client of the HTTP API.

    Args:
        client: Sends the requests; its base URL is that of the API, without `/v1`.

    Raises:
        ApiError: By every method: the API rejects the request.
        ApiUnreachable: By every method: the API does not respond.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    @classmethod
    def local(cls, *sockets: Path) -> Self:
        """A client of the first of these Unix sockets on which a server listens, chosen again for each request."""
        transport = _FallbackTransport(sockets)
        return cls(httpx2.AsyncClient(transport=transport, base_url="http://daemon", timeout=_TIMEOUT_S))

    @classmethod
    def remote(cls, url: str, token: str) -> Self:
        """A client of a server at a URL such as `https://fleet.example.com`."""
        headers = {"Authorization": f"Bearer {token}"}
        return cls(httpx2.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT_S))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def get(self, *parts: str, **query: Any) -> Any:
        """Send a GET request and return the JSON of the response."""
        return await self._send("GET", parts, query, None)

    async def post(self, *parts: str, body: Any = None, **query: Any) -> Any:
        """Send a POST request and return the JSON of the response."""
        return await self._send("POST", parts, query, {} if body is None else body)

    async def delete(self, *parts: str) -> Any:
        """Send a DELETE request and return the JSON of the response."""
        return await self._send("DELETE", parts, {}, None)

    @asynccontextmanager
    async def lines(self, *parts: str, **query: Any) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of a streamed response as they arrive, until the server ends it."""
        timeout = httpx2.Timeout(_TIMEOUT_S, read=None)
        try:
            async with self._client.stream(
                "GET", _path(parts), params=_given(query), timeout=timeout
            ) as response:
                if response.is_error:
                    await response.aread()
                    raise _error_of(response)
                yield response.aiter_lines()
        except (httpx2.TransportError, httpx2.StreamError) as exc:
            raise ApiUnreachable(_reason(exc)) from exc

    async def _send(self, method: str, parts: Sequence[str], query: dict[str, Any], body: Any) -> Any:
        try:
            response = await self._client.request(method, _path(parts), params=_given(query), json=body)
        except httpx2.TransportError as exc:
            raise ApiUnreachable(_reason(exc)) from exc
        if response.is_error:
            raise _error_of(response)
        try:
            return response.json() if response.content else None
        except ValueError as exc:
            raise ApiError(502, "the server's answer is not JSON; is this the address of a fleet?") from exc


def _path(parts: Sequence[str]) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _given(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value not in (None, "", [], ())}


def _error_of(response: httpx2.Response) -> ApiError:
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the server answers {response.status_code} without a reason"
    return ApiError(response.status_code, message[:_MAX_MESSAGE])


def _reason(exc: Exception) -> str:
    return f"the fleet's server does not answer: {exc or type(exc).__name__}"

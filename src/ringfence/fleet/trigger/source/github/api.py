"""Requests to GitHub's REST API, with limits, retries, and errors that name the next step."""

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ringfence.errors import AuthenticationFailed, InfrastructureFault, UsageError

if TYPE_CHECKING:
    import httpx2

Token = Callable[[], Awaitable[str]]
"""Returns the token for each request, so that a renewed one is used at once."""
MAX_ATTEMPTS: Final = 4
MAX_RATE_LIMIT_S: Final = 60.0
"""The longest rate limit that a request waits for; a longer one is an error."""
_TIMEOUT_S: Final = 20.0
_RESPONSE_LIMIT_BYTES: Final = 16 * 1024 * 1024
_FIRST_WAIT_S: Final = 0.5
_RETRIED_STATUSES: Final = frozenset({500, 502, 503, 504})


@dataclass(frozen=True)
class ApiResponse:
    """A response."""

    status: int
    body: Any
    """The JSON of the body; None without a body."""


class GitHubApi:
    """A client of the API.

    Args:
        base_url: The address, such as `https://api.github.com`, or `https://HOST/api/v3`.
        token: Returns the token.
        first_wait_s: The pause before the second attempt in seconds, doubled before each further one.
    """

    def __init__(self, base_url: str, token: Token, *, first_wait_s: float = _FIRST_WAIT_S) -> None:
        self._base_url = base_url.rstrip("/")
        self._token = token
        self._first_wait_s = first_wait_s
        self._client: httpx2.AsyncClient | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        allowed: frozenset[int] = frozenset(),
    ) -> ApiResponse:
        """Send an idempotent request, and retry it if that may help.

        Args:
            method: The HTTP method.
            path: The path below `base_url`.
            query: The query.
            body: The JSON body.
            allowed: Statuses besides those of success that are not errors.

        Raises:
            InfrastructureFault: The API cannot be reached, fails, answers with an invalid response, or limits the rate.
            AuthenticationFailed: The token is not accepted.
            UsageError: The object does not exist, or the request is not allowed.
        """
        what = f"{method} {self._base_url}{path}"
        problem = "no response"
        for number in range(MAX_ATTEMPTS):
            response = await self._once(method, path, query, body)
            wait_s = self._first_wait_s * 2.0**number * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            if isinstance(response, str):
                problem = response
            elif (limited_s := _wait_s(response.status_code, response.headers, time.time())) is not None:
                problem, wait_s = f"the rate is limited for another {limited_s:.0f} s", limited_s
                if limited_s > MAX_RATE_LIMIT_S:
                    break
            elif response.status_code in _RETRIED_STATUSES:
                problem = f"status {response.status_code}"
            else:
                return _checked(what, response, allowed)
            if number < MAX_ATTEMPTS - 1:
                await asyncio.sleep(wait_s)
        raise InfrastructureFault(f"{what}: {problem}, {number + 1} times; try again later")

    async def post_once(self, path: str, body: Any) -> ApiResponse | None:
        """Send a request that must not be repeated, after waiting for a rate limit.

        Returns:
            The response; None if it is not known whether the request took effect.

        Raises:
            InfrastructureFault: As `request`.
            AuthenticationFailed: As `request`.
            UsageError: As `request`.
        """
        what = f"POST {self._base_url}{path}"
        response = await self._once("POST", path, None, body)
        if not isinstance(response, str):
            limited_s = _wait_s(response.status_code, response.headers, time.time())
            if limited_s is None and response.status_code not in _RETRIED_STATUSES:
                return _checked(what, response, frozenset())
            if limited_s is not None and limited_s > MAX_RATE_LIMIT_S:
                raise InfrastructureFault(f"{what}: the rate is limited for another {limited_s:.0f} s")
            await asyncio.sleep(limited_s or self._first_wait_s)
        return None

    async def _once(
        self, method: str, path: str, query: Mapping[str, str | int] | None, body: Any
    ) -> "httpx2.Response | str":
        import httpx2

        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False)
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {await self._token()}",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "ringfence",
        }
        request = self._client.build_request(
            method, self._base_url + path, params=dict(query or {}), json=body, headers=headers
        )
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                response = await self._client.send(request, stream=True)
                try:
                    return await _read(response)
                finally:
                    await response.aclose()
        except (httpx2.TransportError, httpx2.DecodingError, TimeoutError) as exc:
            return str(exc) or type(exc).__name__


async def _read(response: "httpx2.Response") -> "httpx2.Response | str":
    import httpx2

    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > _RESPONSE_LIMIT_BYTES:
            return f"a response of more than {_RESPONSE_LIMIT_BYTES} bytes"
        parts.append(part)
    headers = [
        (name, value)
        for name, value in response.headers.items()
        if name.lower() not in ("content-encoding", "content-length")
    ]
    return httpx2.Response(response.status_code, headers=headers, content=b"".join(parts))


def _wait_s(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Return how long a rate limit lasts; None if the response reports no limit."""
    if status not in {403, 429}:
        return None
    after = headers.get("retry-after", "")
    if after.isascii() and after.isdigit():
        return float(after[:9])
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(1.0, float(reset[:12]) - now)
    return 1.0 if status == 429 else None


def _checked(what: str, response: "httpx2.Response", allowed: frozenset[int]) -> ApiResponse:
    status = response.status_code
    if status == 401:
        raise AuthenticationFailed(
            f"{what}: the token is not accepted; give one that is valid for the repository"
        )
    if status >= 300 and status not in allowed:
        raise UsageError(
            f"{what}: refused with status {status}; check the repository's name and the token's permissions"
        )
    if not response.content:
        return ApiResponse(status, None)
    try:
        return ApiResponse(status, json.loads(response.content))
    except (ValueError, RecursionError) as exc:
        if status in allowed:
            return ApiResponse(status, None)
        raise InfrastructureFault(
            f"{what}: the response is not JSON; is this the address of the API?"
        ) from exc

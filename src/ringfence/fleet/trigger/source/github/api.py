"""Requests to GitHub's REST interface: bounded, patient, and with errors that say what to do next."""

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
"""Gives the token when it is needed, so that a renewed one is used at once."""
TRIES: Final = 4
PATIENCE_S: Final = 60.0
"""A limit of rate that lasts longer is an error that says until when."""
_TIMEOUT_S: Final = 20.0
_ANSWER_LIMIT_BYTES: Final = 16 * 1024 * 1024
_FIRST_WAIT_S: Final = 0.5
_AGAIN: Final = frozenset({500, 502, 503, 504})


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    """JSON; None where there is no body."""


class GitHubApi:
    """A connection to the interface.

    Args:
        base_url: Such as `https://api.github.com`, or `https://HOST/api/v3`.
        token: Where the token comes from.
        first_wait_s: Before the second try, doubled before each further one.
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
    ) -> Answer:
        """Ask, and ask again where that may help. Only requests that may be repeated go through here.

        Args:
            method: Of HTTP.
            path: Below the base.
            query: Behind it.
            body: JSON.
            allowed: Statuses that are answers, not errors, besides those of success.

        Raises:
            InfrastructureFault: It cannot be reached, fails, answers nonsense, or limits the rate for long.
            AuthenticationFailed: The token is not accepted.
            UsageError: What is asked for is not there or not allowed.
        """
        what = f"{method} {self._base_url}{path}"
        problem = "no answer"
        for number in range(TRIES):
            answer = await self._once(method, path, query, body)
            wait_s = self._first_wait_s * 2.0**number * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            if isinstance(answer, str):
                problem = answer
            elif (limited_s := _wait_s(answer.status_code, answer.headers, time.time())) is not None:
                problem, wait_s = f"the rate is limited for another {limited_s:.0f} s", limited_s
                if limited_s > PATIENCE_S:
                    break
            elif answer.status_code in _AGAIN:
                problem = f"status {answer.status_code}"
            else:
                return _answer(what, answer, allowed)
            if number < TRIES - 1:
                await asyncio.sleep(wait_s)
        raise InfrastructureFault(f"{what}: {problem}, {number + 1} times; try again later")

    async def post_once(self, path: str, body: Any) -> Answer | None:
        """Ask for what must not be done twice; None if it may or may not have been done. A limit of rate is waited for.

        Raises:
            InfrastructureFault: As `request`.
            AuthenticationFailed: As `request`.
            UsageError: As `request`.
        """
        what = f"POST {self._base_url}{path}"
        answer = await self._once("POST", path, None, body)
        if not isinstance(answer, str):
            limited_s = _wait_s(answer.status_code, answer.headers, time.time())
            if limited_s is None and answer.status_code not in _AGAIN:
                return _answer(what, answer, frozenset())
            if limited_s is not None and limited_s > PATIENCE_S:
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
                answer = await self._client.send(request, stream=True)
                try:
                    return await _read(answer)
                finally:
                    await answer.aclose()
        except (httpx2.TransportError, httpx2.DecodingError, TimeoutError) as exc:
            return str(exc) or type(exc).__name__


async def _read(answer: "httpx2.Response") -> "httpx2.Response | str":
    import httpx2

    parts, size = [], 0
    async for part in answer.aiter_bytes():
        size += len(part)
        if size > _ANSWER_LIMIT_BYTES:
            return f"an answer of more than {_ANSWER_LIMIT_BYTES} bytes"
        parts.append(part)
    headers = [
        (name, value)
        for name, value in answer.headers.items()
        if name.lower() not in ("content-encoding", "content-length")
    ]
    return httpx2.Response(answer.status_code, headers=headers, content=b"".join(parts))


def _wait_s(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """How long a limit of rate lasts; None if the answer is none of a limit."""
    if status not in {403, 429}:
        return None
    after = headers.get("retry-after", "")
    if after.isascii() and after.isdigit():
        return float(after[:9])
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(1.0, float(reset[:12]) - now)
    return 1.0 if status == 429 else None


def _answer(what: str, answer: "httpx2.Response", allowed: frozenset[int]) -> Answer:
    status = answer.status_code
    if status == 401:
        raise AuthenticationFailed(
            f"{what}: the token is not accepted; give one that is valid for the repository"
        )
    if status >= 300 and status not in allowed:
        raise UsageError(
            f"{what}: refused with status {status}; see to the repository's name and the token's rights"
        )
    if not answer.content:
        return Answer(status, None)
    try:
        return Answer(status, json.loads(answer.content))
    except (ValueError, RecursionError) as exc:
        if status in allowed:
            return Answer(status, None)
        raise InfrastructureFault(f"{what}: the answer is no JSON; is this the address of the API?") from exc

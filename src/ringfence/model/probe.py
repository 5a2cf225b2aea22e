"""Tests a credential with the cheapest real request that needs authentication.

A server that is unreachable, or that does not know the request, says nothing about the credential.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import anyio

from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import BASE_URL_VARIABLES, ModelProvider, base_url_of
from ringfence.egress.gateway.upstream import check_base_url
from ringfence.egress.http.client import UpstreamError, origin_of
from ringfence.egress.http.rules import Request
from ringfence.errors import AuthenticationFailed
from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.model.base import API_VERSION
from ringfence.secret import Credential

Verdict = Literal["ok", "refused", "unreachable", "unclear"]

_RESPONSE_BYTES = 8 * 1024
_REASON_CHARS = 200
_TIMEOUT_S = 10.0
_TIMEOUT_BEFORE_RUN_S = 5.0
_MAY_NOT_LIST = "missing scopes: api.model.read"
"""Text of OpenAI's refusal of a restricted key that is good for everything else; its status is 401 or 403."""


@frozen
class Probe:
    """The result of a request with a credential."""

    verdict: Verdict
    """`ok`: the server accepted it. `refused`: 401 or 403. `unreachable`: no response, or a fault of the server.
    `unclear`: the server does not know the request, so it did not check the credential."""
    where: str
    """The scheme, host and port of the server."""
    detail: str
    """The response in one line, without the credential."""


async def probe(
    credential: Credential, *, base_url: str | None = None, model: str = "", timeout_s: float = _TIMEOUT_S
) -> Probe:
    """Send requests with a credential to the API, through a model gateway as in a run.

    Args:
        credential: The credential.
        base_url: The API's base URL; None: that of `base_url_of`.
        model: The model for a second request, which counts the tokens of a word, if the first had no clear result.
        timeout_s: The limit for all requests together.

    Raises:
        UsageError: The base URL is not one.
    """
    base = base_url or base_url_of(credential)
    source = "" if base_url else BASE_URL_VARIABLES[credential.provider]
    where = origin_of(check_base_url(base, source=source))
    gateway = Gateway([ModelProvider(credential.provider, credential, credential.kind, base)])
    found = Probe("unreachable", where, f"no response within {timeout_s:g} s")
    with anyio.move_on_after(timeout_s):
        async with gateway.opened(_unrecorded):
            for method, path, body in _requests(credential, model):
                found = await _send(gateway, credential, where, method, path, body)
                if found.verdict != "unclear" and not found.detail.startswith("403"):
                    break
    return found


def credential_check(credential: Credential, model: str) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a check that ends a run before the agent starts if its credential is refused.

    An unreachable server does not end the run: requests to the model are retried.
    """

    async def check() -> None:
        found = await probe(credential, model=model, timeout_s=_TIMEOUT_BEFORE_RUN_S)
        if found.verdict == "refused":
            raise AuthenticationFailed(
                f"{found.where} rejected the {credential.kind} credential {credential.source} ({found.detail}); "
                "provide a valid one; `ringfence doctor --auth` checks all credentials"
            )

    return check


def _requests(credential: Credential, model: str) -> list[tuple[str, str, dict[str, Any] | None]]:
    if credential.provider == "openai":
        return [("GET", "/v1/models", None)]
    first: tuple[str, str, dict[str, Any] | None] = ("GET", "/v1/models?limit=1", None)
    if not model:
        return [first]
    # A token for inference only may not list models, and a gateway may not support it.
    message = {"model": model, "messages": [{"role": "user", "content": "a"}]}
    return [first, ("POST", "/v1/messages/count_tokens", message)]


async def _send(
    gateway: Gateway, credential: Credential, where: str, method: str, path: str, body: dict[str, Any] | None
) -> Probe:
    headers = (("anthropic-version", API_VERSION),) if credential.provider == "anthropic" else ()
    content = json.dumps(body).encode() if body is not None else b""
    response = await gateway.handle(Request(method, path, headers, content))
    raw = bytearray()
    try:
        async for piece in response.body():
            raw += piece[:_RESPONSE_BYTES]
            if len(raw) >= _RESPONSE_BYTES:
                break
    except UpstreamError as exc:
        return Probe("unreachable", where, str(exc))
    finally:
        await response.aclose()
    return _read(credential, where, response.status, bytes(raw))


async def _unrecorded(_event: Event) -> None:
    """Drop an event: the probe is not part of a run's record."""


def _read(credential: Credential, where: str, status: int, raw: bytes) -> Probe:
    detail = f"{status} {_reason(credential, raw)}".strip() if status >= 300 else "accepted"
    if status in (401, 403) and _MAY_NOT_LIST in detail.lower():
        return Probe("ok", where, "accepted; it may not list models")
    if status in (401, 403):
        return Probe("refused", where, detail)
    if status < 300 or status == 429:  # a rate limit follows authentication
        return Probe("ok", where, detail)
    if status >= 500:
        return Probe("unreachable", where, detail)
    return Probe("unclear", where, detail)


def _reason(credential: Credential, raw: bytes) -> str:
    """Return the message of an API's error; "" for any other body."""
    try:
        error = json.loads(raw).get("error")
        text = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError, RecursionError):
        return ""
    return " ".join(credential.redact(text).split())[:_REASON_CHARS] if isinstance(text, str) else ""

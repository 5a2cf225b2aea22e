"""Whether a credential is good: one real request, the cheapest that has to be authenticated.

A server that cannot be reached says nothing about a credential, and one that does not know the request does neither.
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

_ANSWER_BYTES = 8 * 1024
_REASON_CHARS = 200
_TIMEOUT_S = 10.0
_ASKED_BEFORE_RUN_S = 5.0
_MAY_NOT_LIST = "missing scopes: api.model.read"
"""Words of OpenAI's refusal to a restricted key that is good for everything else, some time with 401, some with 403."""


@frozen
class Probe:
    """What a request with a credential came to."""

    verdict: Verdict
    """`ok`: it was taken. `refused`: 401 or 403. `unreachable`: no answer, or the server's own fault. `unclear`: the
    server does not know the request, so the credential was not looked at."""
    where: str
    """Scheme, host and port that were asked."""
    detail: str
    """What was answered, in a line, without the credential."""


async def probe(
    credential: Credential, *, base_url: str | None = None, model: str = "", timeout_s: float = _TIMEOUT_S
) -> Probe:
    """Ask the API whether a credential is good, through a model gateway as a run does.

    Args:
        credential: What is asked about.
        base_url: Where the API is; None: as `base_url_of`.
        model: For the second question, where the first is not answered: how many tokens a word has for it.
        timeout_s: Of all questions together.

    Raises:
        UsageError: The base URL is none.
    """
    base = base_url or base_url_of(credential)
    source = "" if base_url else BASE_URL_VARIABLES[credential.provider]
    where = origin_of(check_base_url(base, source=source))
    gateway = Gateway([ModelProvider(credential.provider, credential, credential.kind, base)])
    found = Probe("unreachable", where, f"no answer in {timeout_s:g} s")
    with anyio.move_on_after(timeout_s):
        async with gateway.opened(_unrecorded):
            for method, path, body in _questions(credential, model):
                found = await _ask(gateway, credential, where, method, path, body)
                if found.verdict != "unclear" and not found.detail.startswith("403"):
                    break
    return found


def checked_before(credential: Credential, model: str) -> Callable[[], Coroutine[Any, Any, None]]:
    """What ends a run that could not speak to its model, before an agent is set to work.

    Only a clear refusal does; a server that cannot be reached is the model's to try again.
    """

    async def check() -> None:
        found = await probe(credential, model=model, timeout_s=_ASKED_BEFORE_RUN_S)
        if found.verdict == "refused":
            raise AuthenticationFailed(
                f"{found.where} refused the {credential.kind} credential {credential.source} ({found.detail}); "
                "give one valid there, `ringfence doctor --auth` checks all"
            )

    return check


def _questions(credential: Credential, model: str) -> list[tuple[str, str, dict[str, Any] | None]]:
    if credential.provider == "openai":
        return [("GET", "/v1/models", None)]
    first: tuple[str, str, dict[str, Any] | None] = ("GET", "/v1/models?limit=1", None)
    if not model:
        return [first]
    # A token that is for inference alone may not list models, and a gateway may not know how to.
    message = {"model": model, "messages": [{"role": "user", "content": "a"}]}
    return [first, ("POST", "/v1/messages/count_tokens", message)]


async def _ask(
    gateway: Gateway, credential: Credential, where: str, method: str, path: str, body: dict[str, Any] | None
) -> Probe:
    headers = (("anthropic-version", API_VERSION),) if credential.provider == "anthropic" else ()
    content = json.dumps(body).encode() if body is not None else b""
    answer = await gateway.handle(Request(method, path, headers, content))
    raw = bytearray()
    try:
        async for piece in answer.body():
            raw += piece[:_ANSWER_BYTES]
            if len(raw) >= _ANSWER_BYTES:
                break
    except UpstreamError as exc:
        return Probe("unreachable", where, str(exc))
    finally:
        await answer.aclose()
    return _read(credential, where, answer.status, bytes(raw))


async def _unrecorded(_event: Event) -> None:
    """A question of ours is no part of a run."""


def _read(credential: Credential, where: str, status: int, raw: bytes) -> Probe:
    detail = f"{status} {_reason(credential, raw)}".strip() if status >= 300 else "it was taken"
    if status in (401, 403) and _MAY_NOT_LIST in detail.lower():
        return Probe("ok", where, "it was taken; it may not list models")
    if status in (401, 403):
        return Probe("refused", where, detail)
    if status < 300 or status == 429:  # who is told to slow down was known
        return Probe("ok", where, detail)
    if status >= 500:
        return Probe("unreachable", where, detail)
    return Probe("unclear", where, detail)


def _reason(credential: Credential, raw: bytes) -> str:
    """The message of an API's error; of anything else, nothing."""
    try:
        error = json.loads(raw).get("error")
        text = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError, RecursionError):
        return ""
    return " ".join(credential.redact(text).split())[:_REASON_CHARS] if isinstance(text, str) else ""

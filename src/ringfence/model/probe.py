"""Whether a credential is good: one real request, the cheapest that has to be authenticated.

A server that cannot be reached says nothing about a credential, and one that does not know the request does neither.
"""

import json
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from ringfence.errors import AuthenticationFailed
from ringfence.secret import Credential

if TYPE_CHECKING:
    import httpx2

Verdict = Literal["ok", "refused", "unreachable", "unclear"]

_LOOPBACK = ("all://127.0.0.1", "all://localhost", "all://[::1]")
_ANSWER_BYTES = 8 * 1024
_REASON_CHARS = 200
_TIMEOUT_S = 10.0
_ASKED_BEFORE_RUN_S = 5.0
_VERSION = "2023-06-01"


@dataclass(frozen=True)
class Probe:
    """What a request with a credential came to."""

    verdict: Verdict
    """`ok`: it was taken. `refused`: 401 or 403. `unreachable`: no answer, or the server's own fault. `unclear`: the
    server does not know the request, so the credential was not looked at."""
    where: str
    """Scheme, host and port that were asked."""
    detail: str
    """What was answered, in a line, without the credential."""


def base_url_of(credential: Credential, environ: Mapping[str, str] | None = None) -> str:
    """Where the API is that takes a credential: as the provider's own clients find it."""
    environ = os.environ if environ is None else environ
    if credential.provider == "anthropic":
        return environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    is_login = credential.kind == "oauth"
    usual = "https://chatgpt.com/backend-api/codex" if is_login else "https://api.openai.com/v1"
    return environ.get("OPENAI_BASE_URL") or usual


async def probe(
    credential: Credential, *, base_url: str | None = None, model: str = "", timeout_s: float = _TIMEOUT_S
) -> Probe:
    """Ask the API whether a credential is good; never raises for what comes of it.

    Args:
        credential: What is asked about.
        base_url: Where the API is; None: as `base_url_of`.
        model: For the second question, where the first is not answered: how many tokens a word has for it.
        timeout_s: Of all questions together.
    """
    base = (base_url or base_url_of(credential)).rstrip("/")
    where = _origin(base)
    found = Probe("unreachable", where, f"no answer in {timeout_s:g} s")
    with anyio.move_on_after(timeout_s):
        for method, path, body in _questions(credential, model):
            found = await _ask(credential, method, base + path, body)
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
        return [("GET", "/models", None)]
    first: tuple[str, str, dict[str, Any] | None] = ("GET", "/v1/models?limit=1", None)
    if not model:
        return [first]
    # A token that is for inference alone may not list models, and a gateway may not know how to.
    message = {"model": model, "messages": [{"role": "user", "content": "a"}]}
    return [first, ("POST", "/v1/messages/count_tokens", message)]


async def _ask(credential: Credential, method: str, url: str, body: dict[str, Any] | None) -> Probe:
    httpx2 = await anyio.to_thread.run_sync(_import_client)
    where = _origin(url)
    headers = credential.headers()
    if credential.provider == "anthropic":
        headers["anthropic-version"] = _VERSION
    try:
        async with (
            httpx2.AsyncClient(
                mounts=dict.fromkeys(_LOOPBACK),
                follow_redirects=False,  # it would take the credential to another host
                timeout=_TIMEOUT_S,
            ) as client,
            client.stream(method, url, headers=headers, json=body) as response,
        ):
            return _read(credential, where, response.status_code, await _beginning(response))
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as exc:
        reason = credential.redact(f"{type(exc).__name__}: {exc}")[:_REASON_CHARS]
        return Probe("unreachable", where, " ".join(reason.split()))


def _import_client() -> Any:
    import httpx2

    return httpx2


async def _beginning(response: "httpx2.Response") -> bytes:
    raw = bytearray()
    async for chunk in response.aiter_bytes():
        raw += chunk
        if len(raw) > _ANSWER_BYTES:
            break
    return bytes(raw)


def _read(credential: Credential, where: str, status: int, raw: bytes) -> Probe:
    detail = f"{status} {_reason(credential, raw)}".strip() if status >= 300 else "it was taken"
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


def _origin(url: str) -> str:
    """Scheme, host and port: a base URL may hold a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

"""The calls of the models' APIs that the gateway forwards, and its answers to all others.

Pure. Calls that are not in the table are rejected by an error in the API's own form, so that clients can handle it.
"""

import json
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from ringfence.egress.http.rules import Request
from ringfence.errors import LimitReached
from ringfence.frozen import frozen
from ringfence.secret import Provider

FORBIDDEN, NOT_FOUND, QUOTA, BAD_GATEWAY, UNAVAILABLE = 403, 404, 429, 502, 503

_TYPES = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    426: "invalid_request_error",
    431: "request_too_large",
    429: "rate_limit_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_QUOTA_CODE = "insufficient_quota"
Api = Literal["messages", "count_tokens", "anthropic_models", "responses", "chat", "openai_models"]
"""`messages`: Anthropic's Messages API; `responses` and `chat`: OpenAI's two."""

_CALLS: Mapping[tuple[str, str], Api] = {
    ("POST", "/v1/messages"): "messages",
    ("POST", "/v1/messages/count_tokens"): "count_tokens",
    ("POST", "/v1/responses"): "responses",
    ("POST", "/v1/chat/completions"): "chat",
}
_MODELS = re.compile(r"/v1/models(/[A-Za-z0-9][A-Za-z0-9._:@-]{0,127})?", re.ASCII)
_QUERY: Mapping[str, re.Pattern[str]] = {
    "beta": re.compile("true"),
    "limit": re.compile(r"\d{1,4}", re.ASCII),
    "after_id": re.compile(r"[A-Za-z0-9._:@-]{1,128}", re.ASCII),
    "before_id": re.compile(r"[A-Za-z0-9._:@-]{1,128}", re.ASCII),
}
_TARGET_CHARS = 1024
_SHOWN_CHARS = 120


class Rejected(Exception):
    """A request that the gateway answers itself; the text is the reason, in one line.

    Args:
        status: The HTTP status of the response.
        reason: Why.
        is_final: Whether a retry is useless.
    """

    def __init__(self, status: int, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.status = status
        self.is_final = is_final


class OverBudget(Rejected):
    """The run has reached a limit."""

    def __init__(self, provider: Provider, limit: LimitReached) -> None:
        # Measured: the claude CLI gives up at once on 403, codex on 429; each retries most others.
        super().__init__(FORBIDDEN if provider == "anthropic" else QUOTA, str(limit))
        self.limit = limit


def error_value(provider: Provider, status: int, reason: str, *, is_quota: bool = False) -> dict[str, object]:
    """The JSON value of an error."""
    kind = _TYPES.get(status, "api_error")
    text = f"ringfence: {reason}"
    if provider == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": text}}
    code = _QUOTA_CODE if is_quota else None
    return {"error": {"message": text, "type": code or kind, "param": None, "code": code}}


def error_body(provider: Provider, status: int, reason: str, *, is_quota: bool = False) -> bytes:
    """The body of an error response."""
    return json.dumps(error_value(provider, status, reason, is_quota=is_quota)).encode()


def limit_event(provider: Provider, reason: str, *, is_responses_api: bool) -> bytes:
    """The event that ends a stream at a limit, in the form of the stream's API."""
    if is_responses_api:
        error = {"code": _QUOTA_CODE, "message": f"ringfence: {reason}"}
        failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
        return b"event: response.failed\ndata: " + json.dumps(failed).encode() + b"\n\n"
    body = error_body(provider, FORBIDDEN if provider == "anthropic" else QUOTA, reason, is_quota=True)
    return (b"event: error\n" if provider == "anthropic" else b"") + b"data: " + body + b"\n\n"


@frozen
class Route:
    """A call of the table."""

    api: Api
    path: str
    """The path below the provider's base URL; its query is rebuilt."""

    @property
    def provider(self) -> Provider:
        """The provider of the API."""
        return provider_of(self.api)

    @property
    def is_paid(self) -> bool:
        """Whether its response costs tokens."""
        return self.api in ("messages", "responses", "chat")


def provider_of(api: Api) -> Provider:
    """Return the provider of an API."""
    return "anthropic" if api in ("messages", "count_tokens", "anthropic_models") else "openai"


def likely_provider(request: Request) -> Provider:
    """Guess the provider whose API a client uses from a request that matches no route."""
    is_anthropic = request.header("anthropic-version") or request.target.startswith("/v1/messages")
    return "anthropic" if is_anthropic else "openai"


def find_route(request: Request) -> Route:
    """Find the call that a request makes.

    Raises:
        Rejected: The call is not in the table.
    """
    if request.wants_upgrade:
        raise Rejected(426, "the model gateway speaks HTTP/1.1 only; use plain requests")
    path, mark, query = request.target.partition("?")
    shown = f"{request.method[:20]} {path[:_SHOWN_CHARS]}"
    api = _CALLS.get((request.method, path))
    if api is None and request.method == "GET" and _MODELS.fullmatch(path):
        api = "anthropic_models" if likely_provider(request) == "anthropic" else "openai_models"
    if api is None or len(request.target) > _TARGET_CHARS:
        raise Rejected(NOT_FOUND, f"{shown} is not a call that the model gateway forwards")
    pairs = _read_query(query) if mark and query else []
    if pairs is None:
        raise Rejected(NOT_FOUND, f"the query of {shown} is not one that the model gateway forwards")
    below = path if provider_of(api) == "anthropic" else path.removeprefix("/v1")
    return Route(api, f"{below}?{urlencode(pairs)}" if pairs else below)


def _read_query(query: str) -> list[tuple[str, str]] | None:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=8)
    except ValueError:
        return None
    names = [name for name, _ in pairs]
    is_known = all(name in _QUERY and _QUERY[name].fullmatch(value) for name, value in pairs)
    return pairs if is_known and len(set(names)) == len(names) else None

"""The calls of the models' APIs that the gateway forwards. Pure; what is not in the table is rejected."""

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from ringfence.egress.gateway.rejection import NOT_FOUND, Rejected
from ringfence.egress.http.rules import Request
from ringfence.frozen import frozen
from ringfence.secret import Provider

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

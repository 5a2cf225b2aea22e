"""Which calls of the models' APIs there are for those inside. Pure; what is not in the table is refused."""

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from ringfence.frozen import frozen
from ringfence.secret import Provider

Api = Literal["messages", "count_tokens", "anthropic_models", "responses", "chat", "openai_models"]
"""`messages`: Anthropic's Messages API; `responses` and `chat`: OpenAI's two."""

_ASKED: Mapping[tuple[str, str], Api] = {
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
_LONGEST_TARGET = 1024
_SHOWN = 120


@frozen
class Route:
    """A request that is one of the table's."""

    api: Api
    path: str
    """Below the provider's base URL, with the query, built anew."""

    @property
    def provider(self) -> Provider:
        """Whose API it is."""
        return provider_of(self.api)

    @property
    def is_paid(self) -> bool:
        """Whether its answer takes tokens."""
        return self.api in ("messages", "responses", "chat")


@frozen
class Refusal:
    """A request that is not passed on, and why."""

    provider: Provider
    reason: str


def provider_of(api: Api) -> Provider:
    """Whose API it is."""
    return "anthropic" if api in ("messages", "count_tokens", "anthropic_models") else "openai"


def find_route(method: str, target: str, *, is_anthropic: bool) -> Route | Refusal:
    """The call that a request is.

    Args:
        method: As it came.
        target: As it came.
        is_anthropic: Whether the client says which version of Anthropic's API it speaks: both have `/v1/models`.
    """
    path, mark, query = target.partition("?")
    whose: Provider = "anthropic" if is_anthropic else "openai"
    shown = f"{method[:20]} {path[:_SHOWN]}"
    api = _ASKED.get((method, path))
    if api is None and method == "GET" and _MODELS.fullmatch(path):
        api = "anthropic_models" if is_anthropic else "openai_models"
    if api is None or len(target) > _LONGEST_TARGET:
        return Refusal(whose, f"{shown} is none of the calls that the model gateway passes on")
    pairs = _read_query(query) if mark and query else []
    if pairs is None:
        return Refusal(provider_of(api), f"the query of {shown} is not one that the model gateway passes on")
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

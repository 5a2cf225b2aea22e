"""From what came to what is asked: read, checked, cleaned, bounded, and written anew."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ringfence.egress.gateway.budget import Budget, UnknownPrice
from ringfence.egress.gateway.policy import ModelPolicy, check_pointers, clean
from ringfence.egress.gateway.routes import Api, Refusal, Route, find_route
from ringfence.egress.gateway.shapes import FORBIDDEN, NOT_FOUND, Denied, OverBudget
from ringfence.egress.reading import Asked
from ringfence.errors import LimitReached
from ringfence.events import Usage
from ringfence.frozen import frozen
from ringfence.secret import Provider

_BOUND: Mapping[Api, tuple[str, ...]] = {
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "chat": ("max_completion_tokens", "max_tokens"),
}
"""Fields that bound an answer; the first is set where none is said."""

_UNSAID = 64_000
"""Tokens that an answer may have, where the client sets no bound and there is a limit."""

_CHARS_PER_TOKEN = 4
_MOST_OF_DATA = 5_000
"""Tokens of a picture; a document in base64 is counted as one, since its bytes say nothing of its pages."""
_MOST_PARTS = 1_000_000
"""Of a body's lists and mappings; each takes some hundred bytes of memory once it is read."""

_LEAST: Mapping[Api, int] = {"messages": 1, "responses": 16, "chat": 1}
_LEAST_THINKING = 1024
_MOST_CHOICES = 16


@frozen
class Admitted:
    """A request as it is passed on."""

    route: Route
    body: bytes
    model: str = ""
    stripped: tuple[str, ...] = ()
    max_tokens: int | None = None
    most: Usage | None = None
    """What is held for it, where there is a limit."""
    is_bounded_by_budget: bool = False
    """Whether its answer may have fewer tokens than the request asks for, as no more are left."""
    is_turn: bool = False
    """Whether its answer counts as a turn."""


def find_asked(asked: Asked) -> Route:
    """The call that a request is.

    Raises:
        Denied: It is none.
    """
    if asked.wants_upgrade:
        raise Denied(426, "the model gateway speaks HTTP/1.1 only; use plain requests")
    route = find_route(asked.method, asked.target, is_anthropic=is_anthropic(asked))
    if isinstance(route, Refusal):
        raise Denied(NOT_FOUND, route.reason)
    return route


def is_anthropic(asked: Asked) -> bool:
    """Whether a request is in the words of Anthropic's API, as far as can be said without a route."""
    return bool(asked.header("anthropic-version")) or asked.target.startswith("/v1/messages")


def admit(
    asked: Asked, route: Route, policy: ModelPolicy, budget: Budget, *, is_turn: bool = False
) -> Admitted:
    """What is asked of the API for a request.

    Args:
        asked: As it came.
        route: The call that it is.
        policy: What may be asked.
        budget: What may be used.
        is_turn: Whether its answer counts as a turn.

    Raises:
        Denied: Nothing is.
        Taken: Nothing yet: what is left is held for others.
    """
    if asked.method == "GET":
        return Admitted(route, b"")
    if asked.header("content-encoding") not in ("", "identity"):
        raise Denied(
            415, "the model gateway reads no compressed bodies; switch compression off in the client"
        )
    body = _read(asked.body)
    model = policy.check_model(body.get("model"))
    stripped = clean(route.api, body, policy)
    max_tokens, most, wanted = None, None, None
    if route.is_paid:
        if is_turn:
            _check_turn(route.provider, budget)
        wanted = _wanted_tokens(route, body)
        left = _left(route.provider, budget, model)
        prompt = len(asked.body) // _CHARS_PER_TOKEN
        if budget.is_bounded:
            _check_prompt(route.provider, budget, model, _prompt_tokens(body))
        has_thinking = "thinking" in body
        max_tokens, choices = _bound(route, body, budget, left)
        stripped = (*stripped, "thinking") if has_thinking and "thinking" not in body else stripped
        if budget.is_bounded and max_tokens is not None:
            most = Usage(input_tokens=prompt, output_tokens=max_tokens * choices)
            budget.check_free(model, most)
        if not isinstance(body.get("stream", False), bool | None):
            raise Denied(400, "`stream` is neither true nor false")  # some servers would take 1 for true
        if body.get("stream") is True and route.api == "chat":
            body["stream_options"] = {"include_usage": True}
    encoded = _write(body)
    check_pointers(route.api, encoded, body, policy)
    return Admitted(
        route,
        encoded,
        model,
        stripped,
        max_tokens,
        most,
        is_bounded_by_budget=max_tokens is not None and max_tokens < (wanted or _UNSAID),
        is_turn=is_turn and route.is_paid,
    )


def _check_turn(provider: Provider, budget: Budget) -> None:
    try:
        budget.check_turn()
    except LimitReached as exc:
        raise OverBudget(provider, exc) from exc


def _read(raw: bytes) -> dict[str, Any]:
    if len(raw) > _MOST_PARTS and sum(raw.count(mark) for mark in b"[{,") > _MOST_PARTS:
        raise Denied(413, f"the body has more than {_MOST_PARTS} parts")
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as exc:
        raise Denied(400, f"the body is no JSON: {str(exc)[:200]}") from exc
    if not isinstance(body, dict):
        raise Denied(400, "the body is no JSON object")
    return body


def _write(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (ValueError, RecursionError) as exc:
        raise Denied(400, f"the body cannot be written as JSON: {str(exc)[:200]}") from exc


def _left(provider: Provider, budget: Budget, model: str) -> int | None:
    try:
        return budget.left(model)
    except LimitReached as exc:
        raise OverBudget(provider, exc) from exc
    except UnknownPrice:
        raise Denied(
            FORBIDDEN, f"the price of {model!r} is not known, so the limit on cost could not be kept"
        ) from None


def _check_prompt(provider: Provider, budget: Budget, model: str, prompt: int) -> None:
    """See that the prompt by itself does not pass what is left: it is paid for however short the answer is.

    Raises:
        OverBudget: It does.
    """
    try:
        budget.check_prompt(model, Usage(input_tokens=prompt))
    except LimitReached as exc:
        raise OverBudget(provider, exc) from exc


def _prompt_tokens(body: dict[str, Any]) -> int:
    """About how many tokens a prompt has, by its texts; what is in base64 counts no more than a picture."""
    tokens, waiting = 0, list[Any]([body])
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            most = _MOST_OF_DATA if value.startswith("data:") else len(value)
            tokens += min(len(value) // _CHARS_PER_TOKEN, most)
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            is_data = value.get("type") == "base64" and isinstance(value.get("data"), str)
            tokens += min(len(value["data"]) // _CHARS_PER_TOKEN, _MOST_OF_DATA) if is_data else 0
            waiting += [each for key, each in value.items() if not (is_data and key == "data")]
    return tokens


def _bound(route: Route, body: dict[str, Any], budget: Budget, left: int | None) -> tuple[int | None, int]:
    """Let the answer have no more tokens than are left; how many each choice of it may have, and how many there are."""
    api = route.api
    choices = body.get("n", 1) if api == "chat" else 1
    if not isinstance(choices, int) or not 1 <= choices <= _MOST_CHOICES:
        raise Denied(400, f"`n` is no number from 1 to {_MOST_CHOICES}")
    names = _bounding_fields(route, body)
    wanted = _wanted_tokens(route, body)
    if left is None:
        return wanted, choices
    most = left // choices
    if most < _LEAST[api]:
        raise OverBudget(route.provider, budget.used_up())
    bound = min(_UNSAID if wanted is None else wanted, most)
    for name in names:
        body[name] = bound
    _bound_thinking(body, bound)
    return bound, choices


def _bounding_fields(route: Route, body: dict[str, Any]) -> list[str]:
    return [name for name in _BOUND[route.api] if body.get(name) is not None] or [_BOUND[route.api][0]]


def _wanted_tokens(route: Route, body: dict[str, Any]) -> int | None:
    """How many tokens the client lets the answer have; None: it does not say."""
    name = _bounding_fields(route, body)[0]
    wanted = body.get(name)
    if wanted is not None and (not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1):
        raise Denied(400, f"`{name}` is no number of tokens")
    return wanted


def _bound_thinking(body: dict[str, Any], bound: int) -> None:
    thinking = body.get("thinking")
    tokens = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    if not isinstance(thinking, dict) or not isinstance(tokens, int) or tokens < bound:
        return
    if bound - 1 >= _LEAST_THINKING:
        body["thinking"] = {**thinking, "budget_tokens": bound - 1}
    else:
        del body["thinking"]

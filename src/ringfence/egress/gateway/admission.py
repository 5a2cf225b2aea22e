"""Turns a request from inside into the one that is forwarded: read, checked, cleaned, bounded and written anew."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ringfence.egress.gateway.budget import Budget, UnknownPrice
from ringfence.egress.gateway.policy import ModelPolicy, check_pointers, clean
from ringfence.egress.gateway.rejection import FORBIDDEN, OverBudget, Rejected
from ringfence.egress.gateway.routes import Api, Route
from ringfence.egress.http.rules import Request
from ringfence.errors import LimitReached
from ringfence.events import Usage
from ringfence.frozen import frozen

_BOUND: Mapping[Api, tuple[str, ...]] = {
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "chat": ("max_completion_tokens", "max_tokens"),
}
"""Fields that bound a response; the first is set where the request has none."""

_DEFAULT_TOKENS = 64_000
"""Bound of a response under a limit, where the client sets none."""

_CHARS_PER_TOKEN = 4
_DATA_TOKENS = 5_000
"""Tokens of a picture; a document in base64 counts as one, since its bytes say nothing of its pages."""

_MOST_PARTS = 1_000_000
"""Of a body's lists and mappings; each takes some hundred bytes of memory once it is parsed."""

_LEAST: Mapping[Api, int] = {"messages": 1, "responses": 16, "chat": 1}
_LEAST_THINKING = 1024
_MOST_CHOICES = 16


@frozen
class Admitted:
    """A request as it is forwarded."""

    route: Route
    body: bytes
    model: str = ""
    stripped: tuple[str, ...] = ()
    max_tokens: int | None = None
    most: Usage | None = None
    """What is reserved for it under a limit."""
    is_bounded_by_budget: bool = False
    """Whether the budget allows its response fewer tokens than the request does."""
    is_turn: bool = False
    """Whether its response counts as a turn."""


def admit(
    request: Request, route: Route, policy: ModelPolicy, budget: Budget, *, is_turn: bool = False
) -> Admitted:
    """Check a request against policy and budget, and build the one that is forwarded.

    Args:
        request: As it came.
        route: The call that it makes.
        policy: What may be requested.
        budget: What may be used.
        is_turn: Whether its response counts as a turn.

    Raises:
        Rejected: It is not forwarded.
        Reserved: It is not forwarded yet, as what is left is reserved for others.
    """
    if request.method == "GET":
        return Admitted(route, b"")
    if request.header("content-encoding") not in ("", "identity"):
        raise Rejected(
            415, "the model gateway reads no compressed bodies; switch compression off in the client"
        )
    body = _read(request.body)
    model = policy.check_model(body.get("model"))
    stripped = clean(route.api, body, policy)
    max_tokens, most, is_bounded_by_budget = None, None, False
    if route.is_paid:
        had_thinking = "thinking" in body
        wanted = _wanted_tokens(route, body)
        try:
            max_tokens, most = _apply_budget(route, body, model, len(request.body), budget, is_turn=is_turn)
        except LimitReached as exc:
            raise OverBudget(route.provider, exc) from exc
        is_bounded_by_budget = max_tokens is not None and max_tokens < (wanted or _DEFAULT_TOKENS)
        stripped = (*stripped, "thinking") if had_thinking and "thinking" not in body else stripped
        _check_stream(route, body)
    encoded = _write(body)
    check_pointers(route.api, encoded, body, policy)
    return Admitted(
        route,
        encoded,
        model,
        stripped,
        max_tokens,
        most,
        is_bounded_by_budget=is_bounded_by_budget,
        is_turn=is_turn and route.is_paid,
    )


def _check_stream(route: Route, body: dict[str, Any]) -> None:
    if not isinstance(body.get("stream", False), bool | None):
        raise Rejected(400, "`stream` is neither true nor false")  # some servers would take 1 for true
    if body.get("stream") is True and route.api == "chat":
        body["stream_options"] = {"include_usage": True}


def _read(raw: bytes) -> dict[str, Any]:
    if len(raw) > _MOST_PARTS and sum(raw.count(mark) for mark in b"[{,") > _MOST_PARTS:
        raise Rejected(413, f"the body has more than {_MOST_PARTS} parts")
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as exc:
        raise Rejected(400, f"the body is no JSON: {str(exc)[:200]}") from exc
    if not isinstance(body, dict):
        raise Rejected(400, "the body is no JSON object")
    return body


def _write(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (ValueError, RecursionError) as exc:
        raise Rejected(400, f"the body cannot be written as JSON: {str(exc)[:200]}") from exc


def _apply_budget(
    route: Route, body: dict[str, Any], model: str, request_bytes: int, budget: Budget, *, is_turn: bool
) -> tuple[int | None, Usage | None]:
    """Bound a response, in its request's body, to what the budget leaves.

    Returns:
        How many tokens each choice of the response may have, and what is to be reserved for it; None: no limit.

    Raises:
        LimitReached: Too little is left; a prompt is paid for however short the response is.
        Reserved: It is reserved for other responses.
    """
    if is_turn:
        budget.check_turn()
    try:
        left = budget.left(model)
    except UnknownPrice:
        raise Rejected(
            FORBIDDEN, f"the price of {model!r} is not known, so the limit on cost could not be kept"
        ) from None
    if budget.is_bounded:
        budget.check_prompt(model, Usage(input_tokens=_prompt_tokens(body)))
    max_tokens, choices = _bound(route, body, budget, left)
    if not budget.is_bounded or max_tokens is None:
        return max_tokens, None
    most = Usage(input_tokens=request_bytes // _CHARS_PER_TOKEN, output_tokens=max_tokens * choices)
    budget.check_free(model, most)
    return max_tokens, most


def _prompt_tokens(body: dict[str, Any]) -> int:
    """An estimate of a prompt's tokens by its texts; data in base64 counts no more than a picture."""
    tokens, waiting = 0, list[Any]([body])
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            most = _DATA_TOKENS if value.startswith("data:") else len(value)
            tokens += min(len(value) // _CHARS_PER_TOKEN, most)
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            is_data = value.get("type") == "base64" and isinstance(value.get("data"), str)
            tokens += min(len(value["data"]) // _CHARS_PER_TOKEN, _DATA_TOKENS) if is_data else 0
            waiting += [each for key, each in value.items() if not (is_data and key == "data")]
    return tokens


def _bound(route: Route, body: dict[str, Any], budget: Budget, left: int | None) -> tuple[int | None, int]:
    """Set the bound of the response to what is left; return the bound of each choice, and the number of choices."""
    api = route.api
    choices = body.get("n", 1) if api == "chat" else 1
    if not isinstance(choices, int) or not 1 <= choices <= _MOST_CHOICES:
        raise Rejected(400, f"`n` is no number from 1 to {_MOST_CHOICES}")
    names = _bounding_fields(route, body)
    wanted = _wanted_tokens(route, body)
    if left is None:
        return wanted, choices
    most = left // choices
    if most < _LEAST[api]:
        raise budget.used_up()
    bound = min(_DEFAULT_TOKENS if wanted is None else wanted, most)
    for name in names:
        body[name] = bound
    _bound_thinking(body, bound)
    return bound, choices


def _bounding_fields(route: Route, body: dict[str, Any]) -> list[str]:
    return [name for name in _BOUND[route.api] if body.get(name) is not None] or [_BOUND[route.api][0]]


def _wanted_tokens(route: Route, body: dict[str, Any]) -> int | None:
    """How many tokens the client allows the response; None: it sets no bound."""
    name = _bounding_fields(route, body)[0]
    wanted = body.get(name)
    if wanted is not None and (not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1):
        raise Rejected(400, f"`{name}` is no number of tokens")
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

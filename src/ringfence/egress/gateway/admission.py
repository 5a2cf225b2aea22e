"""Turns a request from inside into the one that is forwarded: parses, checks, strips, bounds and rebuilds it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ringfence.egress.gateway.budget import Budget, UnknownPrice
from ringfence.egress.gateway.policy import ModelPolicy, check_pointers, clean
from ringfence.egress.gateway.routes import FORBIDDEN, Api, OverBudget, Rejected, Route
from ringfence.egress.http.rules import Request
from ringfence.errors import LimitReached
from ringfence.events import Usage
from ringfence.frozen import frozen

_BOUND: Mapping[Api, tuple[str, ...]] = {
    "messages": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "chat": ("max_completion_tokens", "max_tokens"),
}
"""Fields that bound a response; the first one is set if the request has none of them."""

_DEFAULT_TOKENS = 64_000
"""The bound of a response in a run with a limit, if the client sets none."""

_CHARS_PER_TOKEN = 4
_DATA_TOKENS = 5_000
"""Estimated tokens of an image; also used for a document in base64, whose size does not tell its page count."""

_MOST_PARTS = 1_000_000
"""The limit for elements of a body's lists and mappings, each of which takes some hundred bytes of memory."""

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
    """The usage that is reserved for it in a run with a limit; None without one."""
    is_bounded_by_budget: bool = False
    """Whether the budget allows its response fewer tokens than the request does."""
    is_turn: bool = False
    """Whether its response counts as a turn."""


def admit(
    request: Request, route: Route, policy: ModelPolicy, budget: Budget, *, is_turn: bool = False
) -> Admitted:
    """Check a request against policy and budget, and build the one that is forwarded.

    Args:
        request: The request from inside.
        route: The call that it makes.
        policy: The models and features that may be requested.
        budget: The run's budget.
        is_turn: Whether its response counts as a turn.

    Raises:
        Rejected: The request is not forwarded.
        Reserved: The request must wait, because the rest of the budget is reserved for others.
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
        raise Rejected(400, f"the body is not JSON: {str(exc)[:200]}") from exc
    if not isinstance(body, dict):
        raise Rejected(400, "the body is not a JSON object")
    return body


def _write(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (ValueError, RecursionError) as exc:
        raise Rejected(400, f"the body cannot be written as JSON: {str(exc)[:200]}") from exc


def _apply_budget(
    route: Route, body: dict[str, Any], model: str, request_bytes: int, budget: Budget, *, is_turn: bool
) -> tuple[int | None, Usage | None]:
    """Limit the response, by fields of the request's body, to the rest of the budget.

    Returns:
        How many tokens each choice of the response may have, and the usage to reserve for it; None: no limit.

    Raises:
        LimitReached: Too little is left; a prompt must be paid for even if its response is short.
        Reserved: The rest is reserved for other responses.
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
    """Estimate a prompt's tokens from its texts; base64 data counts at most as much as an image."""
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
            waiting += [item for key, item in value.items() if not (is_data and key == "data")]
    return tokens


def _bound(route: Route, body: dict[str, Any], budget: Budget, left: int | None) -> tuple[int | None, int]:
    """Limit the response to the tokens left; return the limit for each choice, and the number of choices."""
    api = route.api
    choices = body.get("n", 1) if api == "chat" else 1
    if not isinstance(choices, int) or not 1 <= choices <= _MOST_CHOICES:
        raise Rejected(400, f"`n` is not a number from 1 to {_MOST_CHOICES}")
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
    """Return how many tokens the client allows the response; None if it sets no bound."""
    name = _bounding_fields(route, body)[0]
    wanted = body.get(name)
    if wanted is not None and (not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1):
        raise Rejected(400, f"`{name}` is not a number of tokens")
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

"""Turns a `ModelRequest` into the body of `POST /v1/messages`."""

import re
from collections.abc import Sequence
from typing import Any

from ringfence.errors import UsageError
from ringfence.model.base import JSONObject, ModelRequest

_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "document", "tool_result", "search_result"})
_CACHED_USER_MESSAGES = 2
"""The last two: one writes what the next turn reads. With system and tools that is the API's limit of 4."""

_TAKES_BUDGET = re.compile(r"claude-(3-7-sonnet|(opus|sonnet|haiku)-4(-[015])?)(-\d{8}|-latest)?")
"""Claude models up to 4.5 take a thinking budget; 4.7 and later refuse one with 400, 4.6 deprecates it
(platform.claude.com, "Troubleshooting thinking")."""

_LEAST_BUDGET = 1024


def request_body(request: ModelRequest) -> JSONObject:
    """The body, with cache breakpoints and `stream` set. The request itself is not changed.

    Raises:
        UsageError: The thinking budget does not fit.
    """
    body: JSONObject = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": _with_breakpoints(request.messages),
        "stream": True,
    }
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _EPHEMERAL}]
    if request.tools:
        body["tools"] = [*request.tools[:-1], {**request.tools[-1], "cache_control": _EPHEMERAL}]
    if request.thinking_tokens:
        body["thinking"] = _thinking(request)
    return body


def _thinking(request: ModelRequest) -> JSONObject:
    if request.model.startswith("claude") and not _TAKES_BUDGET.fullmatch(request.model):
        # Without `display` newer models send empty thinking, and the record would lack the reasoning.
        return {"type": "adaptive", "display": "summarized"}
    if not _LEAST_BUDGET <= request.thinking_tokens < request.max_tokens:
        raise UsageError(
            f"thinking budget {request.thinking_tokens!r} does not fit {request.model!r}: "
            f"give {_LEAST_BUDGET} or more, and less than max_tokens ({request.max_tokens})"
        )
    return {"type": "enabled", "budget_tokens": request.thinking_tokens}


def _with_breakpoints(messages: Sequence[JSONObject]) -> list[JSONObject]:
    marked = list(messages)
    users = [index for index, message in enumerate(marked) if message["role"] == "user"]
    for index in users[-_CACHED_USER_MESSAGES:]:
        marked[index] = {**marked[index], "content": _marked(marked[index]["content"])}
    return marked


def _marked(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content, "cache_control": _EPHEMERAL}] if content else content
    last = content[-1] if content else {}
    if last.get("type") not in _CACHEABLE or (last["type"] == "text" and not last["text"]):
        return content
    return [*content[:-1], {**last, "cache_control": _EPHEMERAL}]

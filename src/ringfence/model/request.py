"""Turns a `ModelRequest` into the body of `POST /v1/messages`."""

from collections.abc import Sequence
from typing import Any

from ringfence.model.base import JSONObject, ModelRequest

_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "document", "tool_result", "search_result"})
_CACHED_USER_MESSAGES = 2
"""The last two: one writes what the next turn reads. With system and tools that is the API's limit of 4."""


def request_body(request: ModelRequest) -> JSONObject:
    """The body, with cache breakpoints and `stream` set. The request itself is not changed."""
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
    return body


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

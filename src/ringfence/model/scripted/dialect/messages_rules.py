"""What the Messages API refuses and clients get wrong."""

from collections.abc import Iterator
from typing import Any

from ringfence.model.scripted.script import JSONObject

_BREAKPOINTS = 4


def broken_rule(body: Any) -> str | None:
    """Why the API would answer 400 to this body; None if it would not."""
    if not isinstance(body, dict):
        return "request body: Input should be an object"
    for key, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if key not in body:
            return f"{key}: Field required"
        if not isinstance(body[key], kind):
            return f"{key}: Input should be a valid {kind.__name__}"
    if body["max_tokens"] < 1:
        return "max_tokens: Input should be greater than or equal to 1"
    for index, item in enumerate(body["messages"]):
        if (
            not isinstance(item, dict)
            or item.get("role") not in ("user", "assistant", "system")
            or "content" not in item
        ):
            return f"messages.{index}: a role (user, assistant, system) and content are required"
    if not body["messages"] or body["messages"][0]["role"] != "user":
        return "messages: the first message must use the user role"
    if sum("cache_control" in part for part in _marked_parts(body)) > _BREAKPOINTS:
        return f"A maximum of {_BREAKPOINTS} blocks with cache_control may be provided."
    return _broken_conversation(body["messages"])


def _broken_conversation(messages: list[JSONObject]) -> str | None:
    called: list[str] = []
    for index, item in enumerate(messages):
        if item["role"] == "system":
            continue
        found = list(blocks_of(item))
        if any(block.get("type") == "text" and not block.get("text") for block in found):
            return f"messages.{index}: text content blocks must be non-empty"
        results = {str(block.get("tool_use_id")) for block in found if block.get("type") == "tool_result"}
        missing = [call for call in called if call not in results]
        if missing:
            return (
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}"
            )
        unasked = sorted(results - set(called))
        if unasked:
            return f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unasked[0]}"
        called = [str(block.get("id")) for block in found if block.get("type") == "tool_use"]
    if called:
        return f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks"
    return None


def blocks_of(item: JSONObject) -> Iterator[JSONObject]:
    """The blocks of a message."""
    content = item["content"]
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _marked_parts(body: JSONObject) -> Iterator[JSONObject]:
    system = body.get("system")
    for group in (system if isinstance(system, list) else [], body.get("tools") or []):
        yield from (part for part in group if isinstance(part, dict))
    for item in body["messages"]:
        yield from blocks_of(item)

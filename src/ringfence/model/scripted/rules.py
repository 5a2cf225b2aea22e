"""What the real API refuses and clients get wrong, refused here too; and what a script expects."""

from collections.abc import Iterator
from typing import Any

from ringfence.model.scripted.script import Expectation, JSONObject

_BREAKPOINTS = 4
_SHOWN = 200


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
            or item.get("role") not in ("user", "assistant")
            or "content" not in item
        ):
            return f"messages.{index}: a role (user, assistant) and content are required"
    if not body["messages"] or body["messages"][0]["role"] != "user":
        return "messages: the first message must use the user role"
    if sum("cache_control" in part for part in _marked_parts(body)) > _BREAKPOINTS:
        return f"A maximum of {_BREAKPOINTS} blocks with cache_control may be provided."
    return _broken_conversation(body["messages"])


def _broken_conversation(messages: list[JSONObject]) -> str | None:
    called: list[str] = []
    for index, item in enumerate(messages):
        blocks = list(_blocks(item))
        if any(block.get("type") == "text" and not block.get("text") for block in blocks):
            return f"messages.{index}: text content blocks must be non-empty"
        results = {str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}
        missing = [call for call in called if call not in results]
        if missing:
            return (
                f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}"
            )
        unasked = sorted(results - set(called))
        if unasked:
            return f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {unasked[0]}"
        called = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
    if called:
        return f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks"
    return None


def unmet(expected: Expectation, body: JSONObject) -> str | None:
    """The first thing a request lacks; None if it is as expected."""
    result = _last_tool_result(body)
    texts = (
        ("the last tool result", expected.last_tool_result, _text(result.get("content")) if result else None),
        ("the last user message", expected.last_user_text, _text(body["messages"][-1]["content"])),
        ("the system prompt", expected.system, _text(body.get("system"))),
    )
    for what, wanted, found in texts:
        if wanted is not None and (found is None or wanted not in found):
            return f"expected {what} to contain {wanted!r}, got {_cut(found)}"
    if expected.last_tool_is_error is not None:
        is_error = bool(result and result.get("is_error"))
        if result is None or is_error != expected.last_tool_is_error:
            return f"expected is_error of the last tool result to be {expected.last_tool_is_error}"
    offered = [tool.get("name") for tool in body.get("tools") or []]
    for name in expected.tools:
        if name not in offered:
            return f"expected the tool {name!r} to be offered, got {offered!r}"
    if expected.messages is not None and len(body["messages"]) != expected.messages:
        return f"expected {expected.messages} messages, got {len(body['messages'])}"
    return None


def _cut(text: str | None) -> str:
    if text is None:
        return "none"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def _last_tool_result(body: JSONObject) -> JSONObject | None:
    results = [
        block for item in body["messages"] for block in _blocks(item) if block.get("type") == "tool_result"
    ]
    return results[-1] if results else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [block for block in content or [] if isinstance(block, dict)]
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _blocks(item: JSONObject) -> Iterator[JSONObject]:
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
        yield from _blocks(item)

"""What the Chat Completions API refuses and clients get wrong."""

from typing import Any

from ringfence.model.scripted.dialect.base import Refusal
from ringfence.model.scripted.script import JSONObject

_ROLES = ("system", "developer", "user", "assistant", "tool")


def broken_rule(body: Any) -> Refusal | None:
    """Why the API would answer 400 to this body; None if it would not."""
    if not isinstance(body, dict):
        return Refusal(400, "We could not parse the JSON body of your request.")
    if not isinstance(body.get("model"), str):
        return Refusal(400, "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Refusal(
            400,
            "Missing required parameter: 'messages'.",
            code="missing_required_parameter",
            param="messages",
        )
    for index, item in enumerate(messages):
        if not isinstance(item, dict) or item.get("role") not in _ROLES:
            message = f"Invalid value for 'messages[{index}].role'. Supported values: {', '.join(_ROLES)}."
            return Refusal(400, message, code="invalid_value", param=f"messages[{index}].role")
    return _broken_conversation(messages)


def calls_of(item: JSONObject) -> list[JSONObject]:
    """The tool calls of a message."""
    return [call for call in item.get("tool_calls") or [] if isinstance(call, dict)]


def _broken_conversation(messages: list[JSONObject]) -> Refusal | None:
    open_calls: list[str] = []
    for index, item in enumerate(messages):
        if item["role"] == "tool":
            call = str(item.get("tool_call_id"))
            if call not in open_calls:
                message = (
                    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
                )
                return Refusal(400, f"Invalid parameter: {message}", param=f"messages[{index}].role")
            open_calls.remove(call)
            continue
        if open_calls:
            return _unanswered(open_calls)
        if item["role"] == "assistant":
            open_calls = [str(call.get("id")) for call in calls_of(item)]
    return _unanswered(open_calls) if open_calls else None


def _unanswered(calls: list[str]) -> Refusal:
    message = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(calls)}"
    )
    return Refusal(400, message, param="messages")

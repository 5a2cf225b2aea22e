"""What of a client's output the SDK is given: its control messages, each checked and made anew. Pure.

The SDK believes who writes to it: a field of another shape than it expects ends its reading, and nothing bounds how
much it does at once. What comes from inside may be anything, so nothing else reaches it.
"""

from collections.abc import Mapping
from typing import Any

from ringfence.runtime.transcript.base import dict_of, short, text_of
from ringfence.runtime.transcript.record import JSONObject

CONTROL = frozenset({"control_request", "control_response", "control_cancel_request"})
ASKS = frozenset({"can_use_tool", "hook_callback", "mcp_message"})
"""What a client may ask of the host."""

_ID_CHARS = 200
_TEXTS = (
    "tool_use_id",
    "agent_id",
    "blocked_path",
    "decision_reason",
    "title",
    "display_name",
    "description",
)


def is_control(value: Mapping[str, Any]) -> bool:
    """Whether a line is for the SDK, and no part of the conversation."""
    kind = value.get("type")
    return isinstance(kind, str) and kind in CONTROL


def control_of(value: JSONObject) -> JSONObject | None:
    """The control message that a line holds, with the fields that the SDK reads; None if it is none."""
    kind = value.get("type")
    if kind == "control_cancel_request":
        request_id = _id(value.get("request_id"))
        return {"type": kind, "request_id": request_id} if request_id else None
    if kind == "control_response":
        return _response(dict_of(value.get("response")))
    if kind == "control_request":
        request_id = _id(value.get("request_id"))
        request = _request(dict_of(value.get("request")))
        return (
            {"type": kind, "request_id": request_id, "request": request} if request_id and request else None
        )
    return None


def refusal(request_id: str, reason: str) -> JSONObject:
    """The answer to a request that is not carried out."""
    return {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": reason},
    }


def request_id_of(value: JSONObject) -> str:
    """The id of a request that is no good otherwise; empty if it has none that can be answered."""
    return _id(value.get("request_id")) if value.get("type") == "control_request" else ""


def _response(told: JSONObject) -> JSONObject | None:
    request_id = _id(told.get("request_id"))
    if not request_id:
        return None
    made: JSONObject = {"request_id": request_id}
    if told.get("subtype") == "error":
        made |= {"subtype": "error", "error": short(told.get("error")) or "no reason given"}
    else:
        made |= {"subtype": "success", "response": dict_of(told.get("response"))}
    return {"type": "control_response", "response": made}


def _request(asked: JSONObject) -> JSONObject | None:
    match asked.get("subtype"):
        case "can_use_tool":
            return _permission(asked)
        case "hook_callback":
            made = {"callback_id": _id(asked.get("callback_id")), "input": dict_of(asked.get("input"))}
            return {"subtype": "hook_callback", **made, "tool_use_id": _text(asked.get("tool_use_id"))}
        case "mcp_message":
            server, message = _id(asked.get("server_name")), dict_of(asked.get("message"))
            is_whole = bool(server and isinstance(message.get("method"), str))
            is_whole = is_whole and isinstance(message.get("id"), str | int | None)
            return {"subtype": "mcp_message", "server_name": server, "message": message} if is_whole else None
        case _:
            return None


def _permission(asked: JSONObject) -> JSONObject | None:
    tool = _id(asked.get("tool_name"))
    if not tool or not isinstance(asked.get("input"), dict):
        return None
    suggested = asked.get("permission_suggestions")
    suggestions = (
        [each for each in suggested if isinstance(each, dict)] if isinstance(suggested, list) else []
    )
    return {
        "subtype": "can_use_tool",
        "tool_name": tool,
        "input": asked["input"],
        "permission_suggestions": suggestions,
        **{name: _text(asked.get(name)) for name in _TEXTS},
    }


def _id(value: Any) -> str:
    """A name or an id; what is none, or too long for one, as empty."""
    text = text_of(value)
    return text if len(text) <= _ID_CHARS else ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

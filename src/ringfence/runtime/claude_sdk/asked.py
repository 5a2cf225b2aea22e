"""What a client asks of the host, and what it is answered, as events. Pure."""

import json
import time
from collections.abc import Callable
from dataclasses import field
from typing import Literal

from ringfence.events import Event, HookAnswered, PermissionDecided, ToolCalled, ToolReturned
from ringfence.frozen import frozen
from ringfence.runtime.transcript.base import dict_of, plain, short
from ringfence.runtime.transcript.record import JSONObject

CALL_ID = "claudecode/toolUseId"
"""Under which name a client tells an MCP server for which of the model's calls it is asked."""
CANCELLED = "cancelled: the client did not wait for the answer"

_TOOL_CALL = "tools/call"


@frozen
class Asked:
    """A request of a client's that is being answered."""

    kind: Literal["permission", "hook", "tool", "other"]
    name: str
    """The tool, or the hook's occasion."""
    call_id: str
    arguments: JSONObject
    tool: str = ""
    """Of a hook: the tool that it is about."""
    began: float = field(default_factory=time.monotonic)

    @property
    def called(self) -> Event | None:
        """What is told before the host acts."""
        if self.kind != "tool":
            return None
        return ToolCalled(call_id=self.call_id, tool=self.name, arguments=self.arguments)

    def answered(self, response: JSONObject) -> Event | None:
        """What is told before the client is.

        Args:
            response: The `response` of the control message that is the answer.
        """
        failure = short(response.get("error")) if response.get("subtype") == "error" else None
        return _TELLING[self.kind](self, dict_of(response.get("response")), failure)

    def cancelled(self) -> Event | None:
        """What is told where there will be no answer."""
        return self.answered({"subtype": "error", "error": CANCELLED})

    @property
    def duration_ms(self) -> float:
        """Since it was asked."""
        return round((time.monotonic() - self.began) * 1000, 3)


def asked_of(message: JSONObject, occasions: dict[str, str], number: int) -> Asked:
    """What a checked request asks for.

    Args:
        message: As `wire.control_of` made it.
        occasions: Of each hook, by its callback's id.
        number: Of the request in this run, for calls without an id.
    """
    request = message["request"]
    if request["subtype"] == "can_use_tool":
        return Asked(
            "permission", request["tool_name"], short(request["tool_use_id"]), dict_of(request["input"])
        )
    if request["subtype"] == "hook_callback":
        about = request["input"]
        occasion = occasions.get(request["callback_id"], "unknown")
        return Asked("hook", occasion, short(request["tool_use_id"]), {}, short(about.get("tool_name")))
    inner = request["message"]
    if inner["method"] != _TOOL_CALL:
        return Asked("other", inner["method"], "", {})
    asked = dict_of(inner.get("params"))
    call_id = short(dict_of(asked.get("_meta")).get(CALL_ID)) or f"host-{number}"
    name = f"mcp__{request['server_name']}__{short(asked.get('name'))}"
    return Asked("tool", name, call_id, dict_of(asked.get("arguments")))


def _told_permission(asked: Asked, answer: JSONObject, failure: str | None) -> Event:
    allowed = failure is None and answer.get("behavior") == "allow"
    changed = answer.get("updatedInput") if allowed else None
    return PermissionDecided(
        call_id=asked.call_id,
        tool=asked.name,
        allowed=allowed,
        reason="" if allowed else failure or str(answer.get("message", "")),
        arguments=asked.arguments,
        changed_arguments=changed if isinstance(changed, dict) and changed != asked.arguments else None,
    )


def _told_hook(asked: Asked, answer: JSONObject, failure: str | None) -> Event:
    return HookAnswered(
        hook=asked.name,
        call_id=asked.call_id,
        tool=asked.tool,
        is_error=failure is not None,
        answer=answer if failure is None else failure,
        duration_ms=asked.duration_ms,
    )


def _told_tool(asked: Asked, answer: JSONObject, failure: str | None) -> Event:
    told = dict_of(answer.get("mcp_response"))
    result = dict_of(told.get("result"))
    if failure is None and "error" in told:
        failure = short(dict_of(told["error"]).get("message")) or json.dumps(told["error"])
    return ToolReturned(
        call_id=asked.call_id,
        tool=asked.name,
        is_error=failure is not None or bool(result.get("isError")),
        content=plain(result.get("content")) if failure is None else failure,
        duration_ms=asked.duration_ms,
    )


def _told_nothing(_asked: Asked, _answer: JSONObject, _failure: str | None) -> None:
    return None


_TELLING: dict[str, Callable[[Asked, JSONObject, str | None], Event | None]] = {
    "permission": _told_permission,
    "hook": _told_hook,
    "tool": _told_tool,
    "other": _told_nothing,
}

"""Implements the control protocol between `claude` inside and the SDK on the host.

A message from inside is hostile: it is checked and rebuilt before the SDK reads it, since a field of an unexpected type
ends the SDK's reading, and the SDK does not bound how much it does at once. Each request of the CLI, and each answer to
one, is recorded before it has an effect. The SDK answers in separate tasks, which it may cancel at any time; so
recording and sending happen here, in one task that belongs to the run.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import Annotated, Any, Literal, Protocol

import anyio
import msgspec

from ringfence.events import (
    Emit,
    Event,
    HookAnswered,
    JSONObject,
    PermissionDecided,
    ToolCalled,
    ToolReturned,
)
from ringfence.frozen import frozen
from ringfence.runtime.transcript.translator import dict_of, plain, short, text_of
from ringfence.tool.text import is_unicode, replace_surrogates

CALL_ID = "claudecode/toolUseId"
"""The key under which the CLI names, for an MCP server, the model's call that it forwards."""
MAX_OPEN_REQUESTS = 64
"""Limit of requests of the CLI that are being answered; further ones are refused."""

_REQUESTS = ("can_use_tool", "hook_callback", "mcp_message")
"""The requests that the CLI may send to the host."""
_TOOL_CALL = "tools/call"
_BUFFER = 256
_BUSY = f"the host is answering {MAX_OPEN_REQUESTS} requests already"
_CANCELLED = "cancelled: the agent CLI did not wait for the answer"
_ENDED = "the agent CLI has ended"
_MALFORMED = f"the host answers {', '.join(_REQUESTS)}, each in its shape"

_MAX_ID_CHARS = 200
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID_CHARS)]
_Object = dict[str, Any]


class _Permission(msgspec.Struct, tag_field="subtype", tag="can_use_tool"):
    """The CLI asks whether it may use a tool."""

    tool_name: _Id
    input: _Object
    permission_suggestions: list[_Object] | None = None
    tool_use_id: str | None = None
    agent_id: str | None = None
    blocked_path: str | None = None
    decision_reason: str | None = None
    title: str | None = None
    display_name: str | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        self.permission_suggestions = self.permission_suggestions or []


class _Hook(msgspec.Struct, tag_field="subtype", tag="hook_callback"):
    """The CLI runs a hook of the host's."""

    callback_id: _Id
    input: _Object
    tool_use_id: str | None = None


class _McpMessage(msgspec.Struct, tag_field="subtype", tag="mcp_message"):
    """The CLI sends a message to an MCP server in the host's process, which reads the rest of it itself."""

    server_name: _Id
    message: _Object

    def __post_init__(self) -> None:
        if not isinstance(self.message.get("method"), str):
            raise TypeError("the message has no method")
        if not isinstance(self.message.get("id"), str | int | None):
            raise TypeError("the message's id is neither a string nor a number")


class _Success(msgspec.Struct, tag_field="subtype", tag="success"):
    request_id: _Id
    response: _Object | None = None

    def __post_init__(self) -> None:
        self.response = self.response or {}


class _Failure(msgspec.Struct, tag_field="subtype", tag="error"):
    request_id: _Id
    error: str | None = None

    def __post_init__(self) -> None:
        self.error = short(self.error) or "no reason given"


class _ControlRequest(msgspec.Struct, tag_field="type", tag="control_request"):
    request_id: _Id
    request: _Permission | _Hook | _McpMessage


class _ControlResponse(msgspec.Struct, tag_field="type", tag="control_response"):
    response: _Success | _Failure


class _ControlCancel(msgspec.Struct, tag_field="type", tag="control_cancel_request"):
    request_id: _Id


_CONTROL = ("control_request", "control_response", "control_cancel_request")


def is_control(value: Mapping[str, Any]) -> bool:
    """Return whether a line is a control message, and not part of the conversation."""
    return value.get("type") in _CONTROL


def checked_message(value: JSONObject) -> JSONObject | None:
    """Return the control message in a line, with only the fields that the SDK reads; None if it is malformed."""
    try:
        message = msgspec.convert(value, _ControlRequest | _ControlResponse | _ControlCancel)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
    made: JSONObject = msgspec.to_builtins(message)
    return made


def error_response(request_id: str, reason: str) -> JSONObject:
    """Return the answer to a request that is not carried out."""
    return {
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": reason},
    }


def request_id_of(value: JSONObject) -> str:
    """Return the id of a malformed request, or "" if it has none that can be answered."""
    request_id = text_of(value.get("request_id"))
    return request_id if value.get("type") == "control_request" and len(request_id) <= _MAX_ID_CHARS else ""


@frozen
class HostRequest:
    """A request of the CLI that the host is answering."""

    kind: Literal["permission", "hook", "tool", "other"]
    name: str
    """The tool, or the event that a hook is for."""
    call_id: str
    arguments: JSONObject
    tool: str = ""
    """The tool that a hook is about."""
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def from_message(cls, message: JSONObject, hook_events: Mapping[str, str], number: int) -> "HostRequest":
        """Return the request in a checked message.

        Args:
            message: As `checked_message` returns it.
            hook_events: The event of each hook, by its callback's id.
            number: The number of the request in this run, for calls without an id.
        """
        request = message["request"]
        if request["subtype"] == "can_use_tool":
            call_id = short(request["tool_use_id"])
            return cls("permission", request["tool_name"], call_id, dict_of(request["input"]))
        if request["subtype"] == "hook_callback":
            event = hook_events.get(request["callback_id"], "unknown")
            about = short(request["input"].get("tool_name"))
            return cls("hook", event, short(request["tool_use_id"]), {}, about)
        inner = request["message"]
        if inner["method"] != _TOOL_CALL:
            return cls("other", inner["method"], "", {})
        params = dict_of(inner.get("params"))
        call_id = short(dict_of(params.get("_meta")).get(CALL_ID)) or f"host-{number}"
        name = f"mcp__{request['server_name']}__{short(params.get('name'))}"
        return cls("tool", name, call_id, dict_of(params.get("arguments")))

    @property
    def called(self) -> Event | None:
        """The event to record before the host acts."""
        if self.kind != "tool":
            return None
        return ToolCalled(call_id=self.call_id, tool=self.name, arguments=self.arguments)

    def answered(self, response: JSONObject) -> Event | None:
        """Return the event to record before the answer is sent.

        Args:
            response: The `response` of the control message that is the answer.
        """
        failure = short(response.get("error")) if response.get("subtype") == "error" else None
        answer = dict_of(response.get("response"))
        if self.kind == "permission":
            return self._decided(answer, failure)
        if self.kind == "tool":
            return self._returned(dict_of(answer.get("mcp_response")), failure)
        if self.kind == "hook":
            return HookAnswered(
                hook=self.name,
                call_id=self.call_id,
                tool=self.tool,
                is_error=failure is not None,
                answer=answer if failure is None else failure,
                duration_ms=self._duration_ms,
            )
        return None

    def cancelled(self) -> Event | None:
        """Return the event to record if there will be no answer."""
        return self.answered({"subtype": "error", "error": _CANCELLED})

    def _decided(self, answer: JSONObject, failure: str | None) -> Event:
        allowed = failure is None and answer.get("behavior") == "allow"
        changed = answer.get("updatedInput") if allowed else None
        return PermissionDecided(
            call_id=self.call_id,
            tool=self.name,
            allowed=allowed,
            reason="" if allowed else failure or str(answer.get("message", "")),
            arguments=self.arguments,
            changed_arguments=changed if isinstance(changed, dict) and changed != self.arguments else None,
        )

    def _returned(self, response: JSONObject, failure: str | None) -> Event:
        result = dict_of(response.get("result"))
        if failure is None and "error" in response:
            error = response["error"]
            failure = short(dict_of(error).get("message")) or json.dumps(error)
        return ToolReturned(
            call_id=self.call_id,
            tool=self.name,
            is_error=failure is not None or bool(result.get("isError")),
            content=plain(result.get("content")) if failure is None else failure,
            duration_ms=self._duration_ms,
        )

    @property
    def _duration_ms(self) -> float:
        return round((time.monotonic() - self.began) * 1000, 3)


class Stdin(Protocol):
    """The CLI's input."""

    async def send(self, data: bytes) -> None:
        """Send bytes."""

    async def aclose(self) -> None:
        """Close it."""


@frozen
class _Outgoing:
    message: JSONObject
    is_answer: bool = False
    """Whether it answers a request that was admitted, and is recorded before it is sent."""


class Exchange:
    """The control messages of one run.

    Args:
        emit: Records an event.
        on_change: Called when a request is admitted, and when one is over.
    """

    def __init__(self, emit: Emit, on_change: Callable[[], None] = lambda: None) -> None:
        self._emit = emit
        self._on_change = on_change
        self._open: dict[str, HostRequest] = {}
        self._own: set[str] = set()
        """Requests of the SDK that are not answered yet."""
        self._hook_events: dict[str, str] = {}
        self._number = 0
        self.is_over = False
        """Whether the CLI's output has ended."""
        self._inward, self._outbox = anyio.create_memory_object_stream[_Outgoing | None](_BUFFER)
        self._upward, self._inbox = anyio.create_memory_object_stream[JSONObject](_BUFFER)

    # --- from the CLI to the SDK

    async def take(self, value: JSONObject) -> None:
        """Process a control message from inside, which can have any contents."""
        message = checked_message(value)
        if message is None or not is_unicode(message):
            await self._refuse(request_id_of(value), _MALFORMED)
        elif await self._admit(message):
            await self._upward.send(message)

    async def messages(self) -> AsyncIterator[JSONObject]:
        """Yield the messages for the SDK until the CLI's output has ended."""
        async for message in self._inbox:
            yield message

    async def finish(self) -> None:
        """End the open requests of the CLI and of the SDK, as the CLI's output has ended."""
        self.is_over = True
        for request in self._open.values():
            await self._record(request.cancelled())
        self._open.clear()
        for request_id in tuple(self._own):
            await self._upward.send(error_response(request_id, _ENDED))
        self._upward.close()

    async def _admit(self, message: JSONObject) -> bool:
        """Return whether the SDK should receive a message."""
        if message["type"] == "control_response":
            request_id = message["response"]["request_id"]
            is_expected = request_id in self._own
            self._own.discard(request_id)
            return is_expected
        request_id = message["request_id"]
        if message["type"] == "control_cancel_request":
            request = self._close_request(request_id)
            await self._record(request.cancelled() if request else None)
            return request is not None
        if len(self._open) >= MAX_OPEN_REQUESTS or request_id in self._open:
            await self._refuse(request_id, _BUSY)
            return False
        self._number += 1
        request = self._open[request_id] = HostRequest.from_message(message, self._hook_events, self._number)
        self._on_change()
        await self._record(request.called)
        return True

    async def _refuse(self, request_id: str, reason: str) -> None:
        if request_id and is_unicode(request_id):
            await self._send(_Outgoing(error_response(request_id, reason)))

    def _close_request(self, request_id: str) -> HostRequest | None:
        request = self._open.pop(request_id, None)
        self._on_change()
        return request

    @property
    def is_busy(self) -> bool:
        """Whether the CLI waits for an answer."""
        return bool(self._open)

    # --- from the SDK to the CLI

    async def write(self, message: JSONObject) -> None:
        """Process a message of the SDK. An answer that the CLI no longer waits for is dropped.

        Raises:
            ConnectionError: It is a request to a CLI that has ended.
        """
        if message.get("type") == "control_request":
            if self.is_over:
                raise ConnectionError(_ENDED)
            self._own.add(message["request_id"])
            self._learn_hooks(dict_of(message.get("request")))
        await self._send(_Outgoing(message, is_answer=message.get("type") == "control_response"))

    def _learn_hooks(self, request: JSONObject) -> None:
        """Note which callback is for which event, as the SDK numbers them in its first request."""
        for event, matchers in dict_of(request.get("hooks")).items():
            for matcher in matchers:
                self._hook_events |= dict.fromkeys(matcher["hookCallbackIds"], event)

    async def interrupt(self) -> None:
        """Request the CLI to stop, and signal that no more input follows."""
        interrupt = {
            "type": "control_request",
            "request_id": "interrupt",
            "request": {"subtype": "interrupt"},
        }
        await self._send(_Outgoing(interrupt))
        await self.end_input()

    async def end_input(self) -> None:
        """Signal the CLI that no more input follows."""
        await self._send(None)

    async def _send(self, outgoing: _Outgoing | None) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._inward.send(outgoing)

    async def serve(self, stdin: Stdin) -> None:
        """Record and send messages in order until the input is ended."""
        with self._outbox:
            async for outgoing in self._outbox:
                if outgoing is None:
                    break
                message = outgoing.message
                if not outgoing.is_answer or await self._record_answer(dict_of(message.get("response"))):
                    await stdin.send(_line(message))
        await stdin.aclose()

    async def _record_answer(self, response: JSONObject) -> bool:
        """Record an answer, unless the CLI no longer waits for it."""
        request = self._close_request(response["request_id"])
        await self._record(request.answered(response) if request else None)
        return request is not None

    def close(self) -> None:
        """Close all streams."""
        for stream in (self._inward, self._outbox, self._upward, self._inbox):
            stream.close()

    async def _record(self, event: Event | None) -> None:
        if event is not None:
            await self._emit(event if is_unicode(event) else _scrubbed(event))


def _line(message: JSONObject) -> bytes:
    """Return a line that any reader accepts: NaN and halves of surrogate pairs come from a function, not the SDK."""
    return msgspec.json.encode(message if is_unicode(message) else replace_surrogates(message)) + b"\n"


def _scrubbed(event: Event) -> Event:
    """Return an event without halves of surrogate pairs, which a user's function may return."""
    return msgspec.convert(replace_surrogates(msgspec.to_builtins(event)), type(event))

"""The APIs that a scripted model speaks: what a request asks for, what a reply holds, and the form of both in an API."""

import base64
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, Literal

from ringfence.frozen import frozen
from ringfence.model.scripted.script import Expectation, JSONObject, Malformed, StreamError, ToolCall, Turn

_PIECES = 20
_LEAST_PIECE = 24
_CHARS_PER_TOKEN = 4
_OF_A_REQUEST = ("system", "instructions", "tools", "messages", "input")
_SHOWN_CHARS = 200


@frozen
class Utterance:
    """One piece of the conversation so far. Results of tools stand in it as the user's, without text."""

    by: Literal["user", "model"]
    text: str = ""


@frozen
class ToolOutput:
    """What a tool gave back."""

    text: str
    is_error: bool | None
    """None: the API does not tell."""


@frozen
class ParsedRequest:
    """A request, as far as scripts care."""

    system: str
    user_text: str | None
    """The last message of the user."""
    tool_output: ToolOutput | None
    """The last one."""
    tools: Mapping[str, str]
    """Names of the tools that are offered, each with its kind; `custom` takes text as it is."""
    messages: int
    """Messages or items in the conversation."""
    utterances: tuple[Utterance, ...] = field(default=(), repr=False)
    """The conversation in order."""


@frozen
class Refusal:
    """An error, before it takes the form of an API."""

    status: int
    message: str
    type: str | None = None
    """None: the API's own for this status."""
    code: str | None = None
    param: str | None = None


@frozen
class Reply:
    """What is to be said, and to what request."""

    turn: Turn
    blocks: list[JSONObject]
    """In the shape of the Messages API."""
    stem: str
    """Part of all ids; another for each reply of a conversation."""
    request: JSONObject
    parsed: ParsedRequest


class Dialect(ABC):
    """One API.

    `check` sees whatever the client sent; the others only bodies that passed it. Nothing raises.
    """

    path: ClassVar[str]
    """Of requests for a reply."""
    request_id_header: ClassVar[str]
    call_prefix: ClassVar[str]
    """How ids of tool calls begin."""

    @abstractmethod
    def check(self, body: Any) -> Refusal | None:
        """Why the API would not take this body; None if it would."""

    @abstractmethod
    def parse(self, body: JSONObject) -> ParsedRequest:
        """What the request asks for."""

    @abstractmethod
    def reply_body(self, reply: Reply) -> JSONObject:
        """The reply as one object."""

    @abstractmethod
    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """The server-sent events by which the API streams what `reply_body` returned."""

    @abstractmethod
    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:
        """The event with which a stream breaks, after `sent` others."""

    @abstractmethod
    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:
        """The body of an error."""


# --- what OpenAI's two APIs share

CREATED: Final = 1_767_225_600
"""The hour of all replies, so that each is the same every time: 2026-01-01."""

_ERROR_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


class OpenAIDialect(Dialect):
    """An API of OpenAI's."""

    request_id_header: ClassVar[str] = "x-request-id"
    call_prefix: ClassVar[str] = "call"

    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:  # noqa: ARG002  # in a header only
        """The same shape in all errors."""
        return {
            "error": {
                "message": refusal.message,
                "type": refusal.type or _error_type(refusal.status),
                "param": refusal.param,
                "code": refusal.code or _ERROR_CODES.get(refusal.status),
            }
        }


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def call_input(arguments: JSONObject) -> str | None:
    """The text for a tool that takes text; None if the arguments are not one text called `input`."""
    text = arguments.get("input")
    return text if isinstance(text, str) and len(arguments) == 1 else None


# --- what a request lacks


def unmet_expectation(expected: Expectation, request: ParsedRequest) -> str | None:
    """The first thing a request lacks; None if it is as expected."""
    output = request.tool_output
    texts = (
        ("the last tool result", expected.last_tool_result, output.text if output else None),
        ("the last user message", expected.last_user_text, request.user_text),
        ("the system prompt", expected.system, request.system),
    )
    for what, wanted, found in texts:
        if wanted is not None and (found is None or wanted not in found):
            return f"expected {what} to contain {wanted!r}, got {_cut(found)}"
    if expected.last_tool_is_error is not None:
        problem = _unmet_error(expected.last_tool_is_error, output)
        if problem:
            return problem
    for name in expected.tools:
        if name not in request.tools:
            return f"expected the tool {name!r} to be offered, got {list(request.tools)!r}"
    if expected.messages is not None and request.messages != expected.messages:
        return f"expected {expected.messages} messages, got {request.messages}"
    return None


def _unmet_error(wanted: bool, output: ToolOutput | None) -> str | None:
    if output is not None and output.is_error is None:
        return f"expected is_error of the last tool result to be {wanted}, and this API does not tell it"
    if output is None or output.is_error != wanted:
        return f"expected is_error of the last tool result to be {wanted}"
    return None


def _cut(text: str | None) -> str:
    if text is None:
        return "none"
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}..."


# --- what a turn says, before it takes the form of an API

SHELLS: Final = {
    "shell": "command",
    "Bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "bash": "command",
    "exec": "input",
}
"""Tools that run a command, by name, with the argument that takes it; in the order of preference."""

_SCRIPTED_RUN: Final = "const done = await tools.exec_command({cmd: %s}); text(done.output);"
"""What `exec`, which takes JavaScript, is given."""


def content_blocks(
    turn: Turn, stem: str, offered: Collection[str], *, call_prefix: str = "toolu"
) -> list[JSONObject]:
    """The blocks of a turn's reply; ids and signatures are made up where the script gives none.

    Args:
        turn: What is said.
        stem: Part of all ids made up here; another for each reply of a conversation.
        offered: Names of the tools in the request, among them one of `SHELLS` if the turn has a `run`.
        call_prefix: How ids of calls begin.
    """
    blocks: list[JSONObject] = []
    if turn.content is not None:
        blocks += [block.model_dump() for block in turn.content]
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": turn.signature})
    if turn.redacted_thinking is not None:
        blocks.append({"type": "redacted_thinking", "data": turn.redacted_thinking})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    blocks += [_call(call, offered) for call in turn.tools]
    return [
        _completed(block, f"{call_prefix}_scripted_{stem}_{position:02d}")
        for position, block in enumerate(blocks)
    ]


def _call(call: ToolCall, offered: Collection[str]) -> JSONObject:
    name, arguments = call.name, call.input
    if call.run is not None:
        name = shell_of(offered)
        command = _SCRIPTED_RUN % json.dumps(call.run) if name == "exec" else call.run
        arguments = {SHELLS.get(name or "", "command"): command}
        if name == "shell":
            arguments["reasoning"] = "the script says so"
    return {"type": "tool_use", "id": call.id, "name": name, "input": arguments}


def shell_of(offered: Collection[str]) -> str | None:
    """The tool for commands among those offered; None if there is none."""
    return next((name for name in SHELLS if name in offered), None)


def _completed(block: JSONObject, call_id: str) -> JSONObject:
    if block["type"] == "tool_use" and not block.get("id"):
        return {**block, "id": call_id}
    if block["type"] == "thinking" and not block.get("signature"):
        digest = hashlib.sha256(block["thinking"].encode()).digest()
        return {**block, "signature": base64.b64encode(digest).decode()}
    return block


def stop_reason(turn: Turn, blocks: list[JSONObject]) -> str:
    """The turn's own, else `tool_use` or `end_turn` by the blocks."""
    calls = any(block["type"] == "tool_use" for block in blocks)
    return turn.stop_reason or ("tool_use" if calls else "end_turn")


def usage(turn: Turn, request: JSONObject, blocks: list[JSONObject]) -> dict[str, int]:
    """The turn's own numbers, estimates for those it leaves out."""
    given = turn.usage
    return {
        "input_tokens": estimate(request) if given.input_tokens is None else given.input_tokens,
        "cache_creation_input_tokens": given.cache_creation_input_tokens,
        "cache_read_input_tokens": given.cache_read_input_tokens,
        "output_tokens": estimate(blocks) if given.output_tokens is None else given.output_tokens,
    }


def estimate(value: Any) -> int:
    """Tokens in `value`, by its length as JSON."""
    if isinstance(value, dict):
        value = {key: value[key] for key in _OF_A_REQUEST if key in value}
    return max(1, len(encode(value)) // _CHARS_PER_TOKEN)


def pieces(text: str, piece_chars: int | None) -> list[str]:
    """`text` in the pieces that it is streamed in."""
    size = piece_chars or max(_LEAST_PIECE, -(-len(text) // _PIECES))
    return [text[at : at + size] for at in range(0, len(text), size)]


def text_of(content: Any) -> str:
    """The text in a message's content: text itself, or the `text` of its parts."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def encode(value: Any) -> bytes:
    """JSON as the APIs write it: UTF-8, not escaped where it need not be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode_event(name: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"

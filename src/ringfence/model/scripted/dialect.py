"""The contract of an API that a scripted model speaks, and the values that all of these APIs share."""

import base64
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Literal

from ringfence.events import JSONObject
from ringfence.frozen import frozen
from ringfence.model.scripted.script import Expectation, Malformed, StreamError, ToolCall, Turn

_MAX_PIECES = 20
_MIN_PIECE_CHARS = 24
_CHARS_PER_TOKEN = 4
_COUNTED_FIELDS = ("system", "instructions", "tools", "messages", "input")
_SHOWN_CHARS = 200

Speaker = Literal["guidance", "user", "model", "tool"]

SPEAKERS: Final[Mapping[str, Speaker]] = {
    "system": "guidance",
    "developer": "guidance",
    "user": "user",
    "assistant": "model",
    "tool": "tool",
}
"""The speaker for each role of a message in the APIs."""


@frozen
class Utterance:
    """One piece of a conversation: a message, or the result of a tool."""

    by: Speaker
    text: str = ""
    is_error: bool | None = None
    """Whether a tool's result is an error; None if the API does not say."""


@frozen
class ParsedRequest:
    """A request with the parts that a script can refer to."""

    body: JSONObject
    utterances: tuple[Utterance, ...]
    """The conversation in order."""
    tools: Mapping[str, str]
    """The names of the offered tools, each with its kind; a `custom` tool takes plain text."""
    messages: int
    """The number of messages, or of items in the Responses API."""

    @property
    def system(self) -> str:
        """The system prompt."""
        return "\n".join(each.text for each in self.utterances if each.by == "guidance")

    def last(self, by: Speaker) -> Utterance | None:
        """Return the last utterance of a speaker; None if there is none."""
        return next((each for each in reversed(self.utterances) if each.by == by), None)

    def with_replies(self) -> Iterator[tuple[Utterance, int]]:
        """Yield the utterances except guidance, each with the number of the model's replies so far, itself included."""
        replies, was_model = 0, False
        for each in self.utterances:
            if each.by != "guidance":
                replies += each.by == "model" and not was_model
                was_model = each.by == "model"
                yield each, replies


@frozen
class Refusal:
    """An error response, independent of the API that reports it."""

    status: int
    message: str
    type: str | None = None
    """None: the API's own type for this status."""
    code: str | None = None
    param: str | None = None


@frozen
class Reply:
    """A turn's reply to a request, independent of the API that sends it."""

    turn: Turn
    blocks: list[JSONObject]
    """The content in the shape of the Messages API."""
    stem: str
    """The part that all ids of this reply have in common; no other reply of the conversation has it."""
    request: ParsedRequest

    @property
    def stop_reason(self) -> str:
        """The turn's own stop reason; otherwise `tool_use` if the reply calls a tool, else `end_turn`."""
        calls = any(block["type"] == "tool_use" for block in self.blocks)
        return self.turn.stop_reason or ("tool_use" if calls else "end_turn")

    @property
    def usage(self) -> dict[str, int]:
        """The turn's own counts, with estimates for those that it does not give."""
        given = self.turn.usage
        return {
            "input_tokens": estimate_tokens(self.request.body)
            if given.input_tokens is None
            else given.input_tokens,
            "cache_creation_input_tokens": given.cache_creation_input_tokens,
            "cache_read_input_tokens": given.cache_read_input_tokens,
            "output_tokens": estimate_tokens(self.blocks)
            if given.output_tokens is None
            else given.output_tokens,
        }

    def pieces(self, text: str) -> list[str]:
        """Return `text` in the pieces in which it is streamed."""
        size = self.turn.piece_chars or max(_MIN_PIECE_CHARS, -(-len(text) // _MAX_PIECES))
        return [text[at : at + size] for at in range(0, len(text), size)]


class Dialect(ABC):
    """The contract of one API.

    `check` accepts any body; the other methods accept only bodies that have passed it. No method raises.
    """

    path: ClassVar[str]
    """The path of requests for a reply."""
    request_id_header: ClassVar[str]
    call_prefix: ClassVar[str]
    """The beginning of the ids of tool calls."""

    @abstractmethod
    def check(self, body: Any) -> Refusal | None:
        """Return the error with which the API rejects a body; None if it accepts the body."""

    @abstractmethod
    def parse(self, body: JSONObject) -> ParsedRequest:
        """Return the parts of a request that a script can refer to."""

    @abstractmethod
    def reply_body(self, reply: Reply) -> JSONObject:
        """Return the reply as one object."""

    @abstractmethod
    def frames(self, body: JSONObject, reply: Reply) -> Iterator[bytes]:
        """Yield the server-sent events with which the API streams the result of `reply_body`."""

    @abstractmethod
    def broken_frame(self, fault: StreamError | Malformed, body: JSONObject, sent: int) -> bytes:
        """Return the event that breaks a stream, after `sent` others."""

    @abstractmethod
    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:
        """Return the body of an error."""

    def reply(self, turn: Turn, request: ParsedRequest, stem: str) -> Reply:
        """Return a turn's reply to a request."""
        blocks = _content_blocks(turn, request, f"{self.call_prefix}_scripted_{stem}")
        return Reply(turn, blocks, stem, request)


# --- the parts that the two APIs of OpenAI share

CREATED: Final = 1_767_225_600
"""The time of all replies, 2026-01-01, so that equal requests get equal replies."""

_ERROR_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


class OpenAIDialect(Dialect):
    """An API of OpenAI."""

    request_id_header: ClassVar[str] = "x-request-id"
    call_prefix: ClassVar[str] = "call"

    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:  # noqa: ARG002  # in a header only
        """Return the body of an error, which has the same shape for every cause."""
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


def missing_parameter(name: str) -> Refusal:
    """Return the error for a parameter that a request lacks."""
    message = f"Missing required parameter: '{name}'."
    return Refusal(400, message, code="missing_required_parameter", param=name)


def openai_usage(reply: Reply, taken: str, written: str) -> JSONObject:
    """Return a reply's usage as OpenAI counts it: cached tokens are part of the input.

    Args:
        reply: The reply.
        taken: The API's name for input.
        written: The API's name for output.
    """
    counts = reply.usage
    read, created = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    total = counts["input_tokens"] + read + created
    return {
        f"{taken}_tokens": total,
        f"{taken}_tokens_details": {"cached_tokens": read, "cache_write_tokens": created},
        f"{written}_tokens": counts["output_tokens"],
        f"{written}_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total + counts["output_tokens"],
    }


# --- the expectations of a turn


def unmet_expectation(expected: Expectation, request: ParsedRequest) -> str | None:
    """Return the first expectation that a request does not meet; None if it meets all."""
    output, user = request.last("tool"), request.last("user")
    texts = (
        ("the last tool result", expected.last_tool_result, output.text if output else None),
        ("the last user message", expected.last_user_text, user.text if user else None),
        ("the system prompt", expected.system, request.system),
    )
    for what, wanted, found in texts:
        if wanted is not None and (found is None or wanted not in found):
            return f"expected {what} to contain {wanted!r}, got {_cut(found)}"
    is_error, wanted_error = output.is_error if output else False, expected.last_tool_is_error
    if wanted_error is not None and (output is None or is_error != wanted_error):
        unknown = ", which this API does not report" if is_error is None else ""
        return f"expected is_error of the last tool result to be {wanted_error}{unknown}"
    for name in expected.tools:
        if name not in request.tools:
            return f"expected the tool {name!r} to be offered, got {list(request.tools)!r}"
    if expected.messages is not None and request.messages != expected.messages:
        return f"expected {expected.messages} messages, got {request.messages}"
    return None


def _cut(text: str | None) -> str:
    if text is None:
        return "none"
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}..."


# --- the content of a turn in the shape of the Messages API

SHELLS: Final = {
    "shell": "command",
    "Bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "bash": "command",
    "exec": "input",
}
"""The tools that run a command, in order of preference, each with the name of its argument for the command."""

_SCRIPTED_RUN: Final = "const done = await tools.exec_command({cmd: %s}); text(done.output);"
"""The JavaScript that the tool `exec` receives for a command."""


def missing_result(turn: Turn, request: ParsedRequest) -> str | None:
    """Return why an argument is in no result of a tool; None if each is found."""
    for call in turn.tools:
        for argument, pattern in call.from_results.items():
            if _find_in_results(pattern, request) is None:
                return f"expected a tool result to match {pattern!r}, for {argument!r} of {call.name!r}"
    return None


def _find_in_results(pattern: str, request: ParsedRequest) -> str | None:
    results = (each.text for each in reversed(request.utterances) if each.by == "tool")
    return next((found[0] for text in results if (found := re.search(pattern, text))), None)


def _content_blocks(turn: Turn, request: ParsedRequest, id_stem: str) -> list[JSONObject]:
    """Return the blocks of a turn's reply, with ids and signatures where the script gives none."""
    blocks: list[JSONObject] = []
    if turn.content is not None:
        blocks += [block.model_dump() for block in turn.content]
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": turn.signature})
    if turn.redacted_thinking is not None:
        blocks.append({"type": "redacted_thinking", "data": turn.redacted_thinking})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    blocks += [_call(call, request) for call in turn.tools]
    return [_completed(block, f"{id_stem}_{position:02d}") for position, block in enumerate(blocks)]


def _call(call: ToolCall, request: ParsedRequest) -> JSONObject:
    found = {argument: _find_in_results(pattern, request) for argument, pattern in call.from_results.items()}
    name, arguments = call.name, {**call.input, **found}
    if call.run is not None:
        name = choose_shell(request.tools)
        command = _SCRIPTED_RUN % json.dumps(call.run) if name == "exec" else call.run
        arguments = {SHELLS.get(name or "", "command"): command}
        if name == "shell":
            arguments["reasoning"] = "the script requires it"
    return {"type": "tool_use", "id": call.id, "name": name, "input": arguments}


def choose_shell(offered: Iterable[str]) -> str | None:
    """Return the preferred tool for commands among those offered; None if there is none."""
    return next((name for name in SHELLS if name in offered), None)


def _completed(block: JSONObject, call_id: str) -> JSONObject:
    if block["type"] == "tool_use" and not block.get("id"):
        return {**block, "id": call_id}
    if block["type"] == "thinking" and not block.get("signature"):
        digest = hashlib.sha256(block["thinking"].encode()).digest()
        return {**block, "signature": base64.b64encode(digest).decode()}
    return block


# --- JSON and events


def estimate_tokens(value: Any) -> int:
    """Estimate the number of tokens in `value` from its length as JSON."""
    if isinstance(value, dict):
        value = {key: value[key] for key in _COUNTED_FIELDS if key in value}
    return max(1, len(encode(value)) // _CHARS_PER_TOKEN)


def text_of(content: Any) -> str:
    """Return the text of a message's content: a string, or the `text` of its parts."""
    if isinstance(content, str):
        return content
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def encode(value: Any) -> bytes:
    """Return JSON as the APIs write it: in UTF-8, without needless escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def encode_event(name: str, data: bytes) -> bytes:
    """Return one server-sent event; if `name` is empty, it has only data."""
    return (b"event: " + name.encode() + b"\n" if name else b"") + b"data: " + data + b"\n\n"

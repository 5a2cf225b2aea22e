"""Reads a streamed reply of the Messages API: bytes to events, events to one complete reply.

A reply exists only after `message_stop`, and its blocks are the API's own JSON with unchanged signatures. The official
SDK's accumulator accepts a stream that just ends as a finished reply, and completes half a tool call by a guess.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from sseclient import SSEClient

from ringfence.events import Event, JSONObject, TextStreamed, ThinkingStreamed, Usage
from ringfence.model.base import ModelReply
from ringfence.model.usage import MessagesUsage

MAX_EVENT_BYTES = 32 * 1024**2
"""The results of the provider's own tools arrive in one event."""
MAX_REPLY_BYTES = 128 * 1024**2

_BLANK_LINE = re.compile(rb"(?>\r\n|[\r\n])(?>\r\n|[\r\n])")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class BrokenStream(Exception):
    """The stream ended early, stalled, or violated the protocol. A new attempt may succeed."""


class ApiError(Exception):
    """The API answered with an error, by status or by an `error` event within the stream.

    Args:
        status: The HTTP status; None for an event, which names only the error's type.
        error_type: `overloaded_error`, `api_error`, ...
        message: The server's message.
        headers: The headers of the response, with names in lower case.
    """

    def __init__(
        self, status: int | None, error_type: str | None, message: str, headers: dict[str, str] | None = None
    ) -> None:
        self.status = status
        self.error_type = error_type
        self.message = message
        self.headers = headers or {}
        super().__init__(f"{error_type}: {message}")


class EventReader:
    """Splits a byte stream at blank lines, within limits, and lets `sseclient` parse each event."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> Iterator[tuple[str, str]]:
        """Yield the name and the data of each event that `data` completes.

        Raises:
            BrokenStream: The stream is too large or not UTF-8.
        """
        searched = max(0, len(self._buffer) - 3)
        self._buffer += data
        self._total += len(data)
        if self._total > MAX_REPLY_BYTES:
            raise BrokenStream(f"the reply is larger than {MAX_REPLY_BYTES} bytes")
        while found := _BLANK_LINE.search(self._buffer, searched):
            end, searched = found.end(), 0
            frame = bytes(memoryview(self._buffer)[:end])
            del self._buffer[:end]
            try:
                for event in SSEClient(iter([frame.removeprefix(_BYTE_ORDER_MARK)])).events():
                    yield event.event, event.data
            except UnicodeDecodeError as exc:
                raise BrokenStream(f"the stream is not UTF-8: {exc.reason}") from exc
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise BrokenStream(f"an event of the stream is larger than {MAX_EVENT_BYTES} bytes")


class _Message(msgspec.Struct):
    id: str
    model: str
    usage: MessagesUsage | None = None


class _MessageStart(msgspec.Struct, tag="message_start"):
    message: _Message


class _BlockStart(msgspec.Struct, tag="content_block_start"):
    index: int
    content_block: JSONObject


class _TextDelta(msgspec.Struct, tag="text_delta"):
    text: str


class _ThinkingDelta(msgspec.Struct, tag="thinking_delta"):
    thinking: str


class _SignatureDelta(msgspec.Struct, tag="signature_delta"):
    signature: str


class _InputDelta(msgspec.Struct, tag="input_json_delta"):
    partial_json: str


class _CitationsDelta(msgspec.Struct, tag="citations_delta"):
    citation: Any


class _BlockDelta(msgspec.Struct, tag="content_block_delta"):
    index: int
    delta: _TextDelta | _ThinkingDelta | _SignatureDelta | _InputDelta | _CitationsDelta


class _BlockStop(msgspec.Struct, tag="content_block_stop"):
    index: int


class _Stop(msgspec.Struct):
    stop_reason: str | None = None


class _MessageDelta(msgspec.Struct, tag="message_delta"):
    delta: _Stop
    usage: MessagesUsage | None = None


class _MessageStop(msgspec.Struct, tag="message_stop"):
    pass


class _Error(msgspec.Struct):
    type: str = "api_error"
    message: str = "no message"


class _ErrorEvent(msgspec.Struct, tag="error"):
    error: _Error | None = None


_StreamEvent = (
    _MessageStart | _BlockStart | _BlockDelta | _BlockStop | _MessageDelta | _MessageStop | _ErrorEvent
)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(_StreamEvent))
"""The API may add kinds of events; unknown ones are skipped, as the official SDK does."""
_CUT_SHORT = frozenset(
    {"max_tokens", "model_context_window_exceeded", "refusal", "stop_sequence", "pause_turn"}
)
"""Stop reasons after which the last tool call may be incomplete."""


class ReplyAssembly:
    """Assembles one reply: pass each event to `take`; `finish` returns the reply."""

    def __init__(self) -> None:
        self._message: _Message | None = None
        self._blocks: list[JSONObject] = []
        self._open: int | None = None
        self._input_json: list[str] = []
        self._cut: set[int] = set()
        self._stop_reason: str | None = None
        self._usage = Usage()
        self.is_complete = False

    def take(self, name: str, data: str) -> Event | None:
        """Take the next event; return the event for a live view, if any.

        Raises:
            BrokenStream: The event is malformed or out of order.
            ApiError: The event is an error.
        """
        if name not in _KNOWN:
            return None
        try:
            event = msgspec.convert({**json.loads(data), "type": name}, _StreamEvent)
            if isinstance(event, _ErrorEvent):
                error = event.error or _Error()
                raise ApiError(None, error.type, error.message)
            return self._apply(event)
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise BrokenStream(f"malformed event {name!r}: {data[:80]!r} ({exc!r})") from exc

    def finish(self) -> ModelReply:
        """Return the complete reply.

        Raises:
            BrokenStream: The stream ended before `message_stop`.
        """
        if self._message is None:
            raise BrokenStream("the response contains no events of a reply")
        if not self.is_complete:
            raise BrokenStream("the stream ended before the reply did")
        if self._stop_reason is None:
            raise BrokenStream("the reply ended without a stop_reason")
        if self._cut and self._stop_reason not in _CUT_SHORT:
            raise BrokenStream("the input of a tool call is not JSON")
        content = tuple(
            _as_input(block)
            for index, block in enumerate(self._blocks)
            if index not in self._cut and not _is_empty_text(block)
        )
        return ModelReply(
            content=content,
            stop_reason=self._stop_reason,
            usage=self._usage,
            model=self._message.model,
            message_id=self._message.id,
        )

    def _apply(self, event: Any) -> Event | None:
        match event:
            case _MessageStart(message=message):
                if self._message is not None:
                    raise ValueError("a second message_start")
                self._message = message
                self._count(message.usage)
            case _ if self._message is None:
                raise ValueError("an event before message_start")
            case _BlockStart():
                self._start_block(event)
            case _BlockDelta():
                return self._extend_block(event)
            case _BlockStop():
                self._stop_block(event.index)
            case _MessageDelta():
                self._stop_reason = event.delta.stop_reason or self._stop_reason
                self._count(event.usage)
            case _MessageStop():
                if self._open is not None:
                    raise ValueError("message_stop within a block")
                self.is_complete = True
        return None

    def _start_block(self, event: _BlockStart) -> None:
        if self._open is not None or event.index != len(self._blocks):
            raise ValueError("a block out of order")
        block = dict(event.content_block)
        if not isinstance(block["type"], str):
            raise TypeError("a block without a type")
        if block["type"] == "server_tool_use" and str(block.get("name")).endswith("code_execution"):
            self._usage = msgspec.structs.replace(
                self._usage, code_execution_containers=1
            )  # one per reply; the API does not report it
        self._blocks.append(block)
        self._open = event.index
        self._input_json = []

    def _extend_block(self, event: _BlockDelta) -> Event | None:
        if self._open is None or event.index != self._open:
            raise ValueError("a delta out of order")
        block = self._blocks[self._open]
        match event.delta:
            case _TextDelta(text=text):
                block["text"] += text
                return TextStreamed(text=text)
            case _ThinkingDelta(thinking=thinking):
                block["thinking"] += thinking
                return ThinkingStreamed(text=thinking)
            case _SignatureDelta(signature=signature):
                block["signature"] = signature
            case _InputDelta(partial_json=partial):
                self._input_json.append(partial)
            case _CitationsDelta(citation=citation):
                block["citations"] = [*(block.get("citations") or []), citation]
        return None

    def _stop_block(self, index: int) -> None:
        if self._open is None or index != self._open:
            raise ValueError("a block end out of order")
        if text := "".join(self._input_json):
            try:
                value = json.loads(text)
            except ValueError:
                self._cut.add(self._open)
            else:
                if not isinstance(value, dict):
                    raise TypeError("a tool input that is not an object")
                self._blocks[self._open]["input"] = value
        self._open = None

    def _count(self, usage: MessagesUsage | None) -> None:
        if usage is not None:
            self._usage = usage.update(self._usage)


def _is_empty_text(block: JSONObject) -> bool:
    # The API sends such blocks and rejects them in requests ("text content blocks must be non-empty").
    return block["type"] == "text" and not block.get("text")


def _as_input(block: JSONObject) -> JSONObject:
    """Return the block as the API accepts it in a request: without nulls and without the default caller.

    `caller` and `citations: null` are new in replies; servers of an earlier version reject them.
    """
    direct = {"type": "direct"}
    return {
        key: value
        for key, value in block.items()
        if value is not None and not (key == "caller" and value == direct)
    }

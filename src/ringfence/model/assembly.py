"""Puts a reply together from the events of a stream, and believes nothing that is not whole.

The SDK's own accumulator takes a stream that just ends for a finished reply and guesses at half a tool call.
Here a reply exists only after `message_stop`, and its blocks are the API's own JSON, signatures untouched.
"""

import json
from collections.abc import Callable
from typing import Any

from ringfence.events import Event, TextStreamed, ThinkingStreamed, Usage
from ringfence.model.base import JSONObject, ModelReply

_USAGE_KEYS = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "cache_creation_input_tokens": ("cache_creation_input_tokens",),
    "cache_read_input_tokens": ("cache_read_input_tokens",),
    "cache_creation_1h_input_tokens": ("cache_creation", "ephemeral_1h_input_tokens"),
    "web_search_requests": ("server_tool_use", "web_search_requests"),
}
"""Of `Usage`, where the API tells it."""
_CUT_SHORT = frozenset(
    {"max_tokens", "model_context_window_exceeded", "refusal", "stop_sequence", "pause_turn"}
)
"""Stop reasons after which the last tool call may lack its end."""


class BrokenStream(Exception):
    """The stream ended early, stalled, or holds what the protocol does not allow. Worth a new attempt."""


class StreamedError(Exception):
    """An `error` event came in the stream.

    Args:
        error_type: `overloaded_error`, `api_error`, ...
        message: The server's words.
    """

    def __init__(self, error_type: str, message: str) -> None:
        self.error_type = error_type
        self.message = message
        super().__init__(f"{error_type}: {message}")


class ReplyAssembly:
    """One reply in the making. Feed it each event; `finish` gives the reply."""

    def __init__(self) -> None:
        self._message: JSONObject | None = None
        self._blocks: list[JSONObject] = []
        self._open: int | None = None
        self._input_json: list[str] = []
        self._cut: set[int] = set()
        self._stop_reason: str | None = None
        self._usage: dict[str, int] = {}
        self.is_whole = False

    def take(self, event_name: str | None, data: str) -> Event | None:
        """Take the next event; return what a live view should be told.

        Raises:
            BrokenStream: It is malformed or out of order.
            StreamedError: It is an error event.
        """
        if event_name in (None, "ping") or not data:
            return None
        try:
            event = json.loads(data)
            if event_name == "error":
                raise _streamed_error(event)
            step = self._STEPS.get(event["type"])
            return step(self, event) if step else None  # the API may add kinds of events
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as exc:
            raise BrokenStream(f"malformed event {event_name!r}: {data[:80]!r} ({exc!r})") from exc

    def finish(self) -> ModelReply:
        """The whole reply.

        Raises:
            BrokenStream: The stream ended before `message_stop`.
        """
        if self._message is None:
            raise BrokenStream("the answer holds no events of a reply")
        if not self.is_whole:
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
            usage=Usage(**self._usage),
            model=str(self._message["model"]),
            message_id=str(self._message["id"]),
        )

    def _message_start(self, event: JSONObject) -> None:
        if self._message is not None:
            raise ValueError("a second message_start")
        self._message = event["message"]
        self._count(event["message"].get("usage"))

    def _block_start(self, event: JSONObject) -> None:
        if self._message is None or self._open is not None or event["index"] != len(self._blocks):
            raise ValueError("a block out of order")
        block = dict(event["content_block"])
        if not isinstance(block["type"], str):
            raise TypeError("a block without a type")
        if block["type"] == "server_tool_use" and str(block.get("name")).endswith("code_execution"):
            self._usage["code_execution_containers"] = 1  # one for a reply; the API does not count it
        self._blocks.append(block)
        self._open = event["index"]
        self._input_json = []

    def _block_delta(self, event: JSONObject) -> Event | None:
        if self._open is None or event["index"] != self._open:
            raise ValueError("a delta out of order")
        delta, block = event["delta"], self._blocks[self._open]
        kind = delta["type"]
        if kind == "input_json_delta":
            self._input_json.append(_text(delta["partial_json"]))
        elif kind == "text_delta":
            block["text"] += _text(delta["text"])
            return TextStreamed(text=delta["text"])
        elif kind == "thinking_delta":
            block["thinking"] += _text(delta["thinking"])
            return ThinkingStreamed(text=delta["thinking"])
        elif kind == "signature_delta":
            block["signature"] = _text(delta["signature"])
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        else:
            raise ValueError("a kind of delta that is not known")
        return None

    def _block_stop(self, event: JSONObject) -> None:
        if self._open is None or event["index"] != self._open:
            raise ValueError("a block end out of order")
        text = "".join(self._input_json)
        if text:
            try:
                value = json.loads(text)
            except ValueError:
                self._cut.add(self._open)
            else:
                if not isinstance(value, dict):
                    raise TypeError("a tool input that is not an object")
                self._blocks[self._open]["input"] = value
        self._open = None

    def _message_delta(self, event: JSONObject) -> None:
        if self._message is None:
            raise ValueError("a message_delta before message_start")
        self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
        self._count(event.get("usage"))

    def _message_stop(self, event: JSONObject) -> None:
        if self._message is None or self._open is not None:
            raise ValueError(f"{event['type']} out of order")
        self.is_whole = True

    def _count(self, usage: JSONObject | None) -> None:
        # Counts of message_delta are totals so far; what it leaves out stays as message_start had it.
        for name, path in _USAGE_KEYS.items():
            value: Any = usage
            for key in path:
                value = (value or {}).get(key)
            if value is not None:
                if not isinstance(value, int) or value < 0:
                    raise ValueError(f"usage.{'.'.join(path)} is {value!r}")
                self._usage[name] = value

    _STEPS: dict[str, Callable[..., Event | None]] = {  # noqa: RUF012  # never changed
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
    }


def _streamed_error(event: Any) -> StreamedError:
    error = event.get("error") or {}
    return StreamedError(str(error.get("type", "api_error")), str(error.get("message", "no message")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _is_empty_text(block: JSONObject) -> bool:
    # The API sends them and refuses to have them back ("text content blocks must be non-empty").
    return block["type"] == "text" and not block.get("text")


def _as_input(block: JSONObject) -> JSONObject:
    """The block as the API takes it back: without nulls, and without the caller that is the default anyway.

    `caller` and `citations: null` are new in replies; servers that speak an earlier version refuse them.
    """
    direct = {"type": "direct"}
    return {
        key: value
        for key, value in block.items()
        if value is not None and not (key == "caller" and value == direct)
    }

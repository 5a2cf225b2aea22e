"""Reads usage and outcome of a model's response, from its JSON or from its server-sent events as they arrive.

The fields of all three APIs are read from one decoded object. A field of an unexpected type counts as absent: servers
between us and the API put other types there than the API does.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ringfence.egress.gateway.event_stream import EventReader
from ringfence.egress.gateway.verdict import MAX_TOKENS, REFUSAL, Verdict
from ringfence.events import Usage

_CHARS_PER_TOKEN = 4
_TOKENS_PER_S = 100
"""Assumed rate of a model whose output was not received."""
_MOST_TOKENS = 10**12
"""Larger counts are not accepted, because they could neither be recorded nor priced."""
_MOST_PARTS = 1_000_000
"""An object with more elements is not decoded: each takes some hundred bytes of memory."""
_CONTENT = ("text", "thinking", "partial_json", "content", "reasoning_content")
"""Fields of a delta that hold output."""
_MESSAGE_CHARS = 500
_STOP_REASONS: Mapping[str, str] = {
    "max_output_tokens": MAX_TOKENS,
    "length": MAX_TOKENS,
    "content_filter": REFUSAL,
}
_DONE = b"[DONE]"


class ResponseReader:
    """Reads one response. Where the API reports no count, it is estimated at four characters a token.

    Args:
        request_bytes: Length of the request, for an estimate of the prompt.
    """

    def __init__(self, request_bytes: int) -> None:
        self.model = ""
        """The model that the response names."""
        self.is_final = False
        """Whether the API has reported the count of the whole response."""
        self.is_begun = False
        """Whether a part of the response has arrived."""
        self._request_bytes = request_bytes
        self._reported = Usage()
        self._has_prompt_count = False
        self._chars = 0
        self._events = EventReader()
        self._error = self._error_type = self._message = self._stop_reason = ""
        self._is_complete = False

    @property
    def usage(self) -> Usage:
        """The usage so far; an estimate if the API has not reported it."""
        if self.is_final or not self.is_begun:
            return self._reported
        prompt = (
            self._reported
            if self._has_prompt_count
            else Usage(input_tokens=max(1, self._request_bytes // _CHARS_PER_TOKEN))
        )
        chars = self._chars + self._events.dropped_bytes
        output = max(prompt.output_tokens, -(-chars // _CHARS_PER_TOKEN))
        return msgspec.structs.replace(prompt, output_tokens=output)

    def verdict(self, status: int, fault: str = "") -> Verdict:
        """Return the outcome as far as it is known.

        Args:
            status: The HTTP status.
            fault: Why the API could not be called, or aborted.
        """
        return Verdict(
            status=0 if fault and status < 400 else status,
            error=self._error,
            error_type=self._error_type,
            message=self._message or fault[:_MESSAGE_CHARS],
            stop_reason=self._stop_reason,
            is_complete=self._is_complete,
        )

    def assume(self, seconds: float, most: int | None) -> None:
        """Estimate the usage of a response that was abandoned before a part of it arrived.

        Args:
            seconds: The time since the request was sent, during which the model produced output.
            most: The limit for the tokens of the response; None: not known.
        """
        self.is_begun = True
        written = int(seconds * _TOKENS_PER_S)
        self._chars += _CHARS_PER_TOKEN * (written if most is None else min(written, most))

    def take_body(self, body: bytes, *, is_answer: bool = True) -> None:
        """Read a response that is not a stream.

        Args:
            body: All of it.
            is_answer: Whether it costs tokens; errors do not.
        """
        value = _decode(body)
        if value is not None:
            self._judge(value)
            self._is_complete = self._is_complete or not self._error
        if is_answer:
            self.is_begun = True
            self._count(value, len(body))

    def take_stream(self, piece: bytes) -> None:
        """Read a piece of a stream of events."""
        self.is_begun = True
        for data in self._events.feed(piece):
            self._take_event(data.strip())

    def end_stream(self) -> None:
        """Read an event that the end of the stream cut off."""
        data = self._events.finish()
        if data is not None:
            self._take_event(data.strip())

    def _take_event(self, data: bytes) -> None:
        if data == _DONE:
            self._is_complete = True
            return
        value = _decode(data)
        self._count(value, len(data))
        if value is not None:
            self._judge(value)
        elif not (data.startswith(b"{") and data.endswith(b"}")):
            self._fail({"code": "malformed", "message": "an event of the stream is not a JSON object"})

    # --- usage

    def _count(self, value: dict[str, Any] | None, size: int) -> None:
        """Count an event or a body; one that cannot be decoded by its size."""
        if value is None:
            self._chars += size
            return
        deltas = [value.get("delta"), *(choice.get("delta") for choice in _objects(value.get("choices")))]
        self._chars += sum(map(_chars_of, deltas))
        self._take_blocks(_objects([value.get("content_block")]))
        self._take_whole(value)
        self._take_whole(_object(value.get("message")), is_last=False)
        self._take_whole(_object(value.get("response")))

    def _take_whole(self, value: dict[str, Any], *, is_last: bool = True) -> None:
        self.model = self.model or _text(value.get("model"), 200)
        self._take_blocks(_objects(value.get("content")))
        if isinstance(value.get("usage"), dict):
            self._take_counts(value["usage"], is_last=is_last)

    def _take_blocks(self, blocks: Iterable[dict[str, Any]]) -> None:
        """Count one container if the provider executed code, by any of its tools; the API does not report it."""
        for block in blocks:
            name = block.get("name")
            if block.get("type") == "server_tool_use" and str(name).endswith("code_execution"):
                self._reported = msgspec.structs.replace(self._reported, code_execution_containers=1)

    def _take_counts(self, counts: dict[str, Any], *, is_last: bool) -> None:
        """Add counts; those at the end of a stream are for the whole response, and omit values reported before."""
        # OpenAI's count of input tokens includes those that the cache served or stored.
        details = _object(counts.get("input_tokens_details")) or _object(counts.get("prompt_tokens_details"))
        cached, written = _tokens(details, "cached_tokens"), _tokens(details, "cache_write_tokens")
        prompt = _tokens(counts, "input_tokens", "prompt_tokens")
        output = _tokens(counts, "output_tokens", "completion_tokens")
        found = {
            "input_tokens": None if prompt is None else max(0, prompt - (cached or 0) - (written or 0)),
            "output_tokens": output,
            "cache_creation_input_tokens": _tokens(counts, "cache_creation_input_tokens") or written,
            "cache_read_input_tokens": _tokens(counts, "cache_read_input_tokens") or cached,
            "cache_creation_1h_input_tokens": _tokens(
                _object(counts.get("cache_creation")), "ephemeral_1h_input_tokens"
            ),
            "web_search_requests": _tokens(_object(counts.get("server_tool_use")), "web_search_requests"),
        }
        changes = {name: count for name, count in found.items() if count is not None}
        self._reported = msgspec.structs.replace(self._reported, **changes)
        self._has_prompt_count = self._has_prompt_count or prompt is not None
        self.is_final = self.is_final or (is_last and output is not None)

    # --- outcome

    def _judge(self, value: dict[str, Any]) -> None:
        error, delta, response = value.get("error"), _object(value.get("delta")), value.get("response")
        if value.get("type") == "message_stop":
            self._is_complete = True
        if isinstance(error, dict):
            self._fail(error)
        elif isinstance(error, str):
            self._fail({"code": error})
        elif value.get("type") == "error":  # of the Responses API, where its fields are not in an `error`
            self._fail({"code": value.get("code"), "message": value.get("message")})
        self._stop(value.get("stop_reason") or delta.get("stop_reason"))
        for choice in _objects(value.get("choices")):
            self._stop(choice.get("finish_reason"))
        if isinstance(response, dict):
            self._judge_response(response)
        elif isinstance(value.get("status"), str):
            self._judge_response(value)

    def _judge_response(self, response: dict[str, Any]) -> None:
        """Take the outcome of a response of the Responses API."""
        status, error, cut = response.get("status"), response.get("error"), response.get("incomplete_details")
        if status in ("completed", "incomplete"):
            self._is_complete = True
        if status == "failed" or isinstance(error, dict):
            self._fail(_object(error) or {"code": "server_error"})
        if isinstance(cut, dict):
            self._stop(cut.get("reason"))
        elif status == "completed":
            self._stop(REFUSAL if _is_refusal(response.get("output")) else "end_turn")

    def _fail(self, error: dict[str, Any]) -> None:
        self._error = _text(error.get("code")) or _text(error.get("type")) or "error"
        self._error_type = _text(error.get("type"))
        self._message = _text(error.get("message"), _MESSAGE_CHARS)

    def _stop(self, reason: object) -> None:
        if isinstance(reason, str) and reason:
            self._stop_reason = _STOP_REASONS.get(reason, reason)[:100]


def verdict_of_body(body: bytes) -> Verdict:
    """Return the outcome that a body describes; an empty one if the body cannot be read."""
    reader = ResponseReader(0)
    reader.take_body(body, is_answer=False)
    return reader.verdict(0)


def _decode(data: bytes) -> dict[str, Any] | None:
    """Decode a JSON object; None if it is not one, or has too many parts."""
    if len(data) > _MOST_PARTS and sum(data.count(mark) for mark in b"[{,") > _MOST_PARTS:
        return None
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _text(value: object, limit_chars: int = 100) -> str:
    """Return a field's text; empty if it is neither text nor a number."""
    return str(value)[:limit_chars] if isinstance(value, str | int) else ""


def _tokens(counts: dict[str, Any], *names: str) -> int | None:
    """Return the first of these counts that is reported, at least 0; None if none is."""
    for name in names:
        count = counts.get(name)
        if isinstance(count, int | float) and not isinstance(count, bool) and abs(count) <= _MOST_TOKENS:
            return max(0, int(count))
    return None


def _chars_of(delta: object) -> int:
    """Count the characters of output in a delta; for values other than text, those of their JSON."""
    if not isinstance(delta, dict):
        return len(delta) if isinstance(delta, str) else 0
    calls = (_object(call.get("function")).get("arguments") for call in _objects(delta.get("tool_calls")))
    found = [*(delta.get(name) for name in _CONTENT), *calls]
    return sum(
        len(value if isinstance(value, str) else msgspec.json.encode(value))
        for value in found
        if value is not None
    )


def _is_refusal(output: object) -> bool:
    """Whether the model's last message consists of refusals only."""
    last = _objects(output)[-1:]
    texts = _objects(last[0].get("content")) if last and last[0].get("type") == "message" else []
    return bool(texts) and all(text.get("type") == "refusal" for text in texts)

"""The outcome of a model request, read from the API's response as it arrives: status, error, stop reason."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ringfence.frozen import frozen

MAX_TOKENS, REFUSAL, WINDOW_FULL = "max_tokens", "refusal", "model_context_window_exceeded"
"""Stop reasons of the Messages API that end an agent's work; the other APIs' own names are translated."""

_MESSAGE_CHARS = 500
_MARKS = (b"stop_reason", b"finish_reason", b'"error"', b'"response"', b"message_stop")
"""Each event that is parsed contains one of these; all others are parts of the content."""

_STOP_REASONS: Mapping[str, str] = {
    "max_output_tokens": MAX_TOKENS,
    "length": MAX_TOKENS,
    "content_filter": REFUSAL,
}
_DONE = b"[DONE]"


@frozen
class Verdict:
    """The outcome of one request, as the gateway saw it: what the API answered, or that the gateway rejected it."""

    status: int = 0
    """The HTTP status; 0 if there was no response."""
    error: str = ""
    """`error.code` of the body or of an event of the stream, else `error.type`; empty without an error."""
    error_type: str = ""
    """`error.type`."""
    message: str = ""
    """The message of the error, shortened; empty without an error."""
    stop_reason: str = ""
    """Why the model stopped; `MAX_TOKENS`, `REFUSAL` and `WINDOW_FULL` whichever API it was, else the API's own name;
    empty if the API did not say."""
    is_complete: bool = False
    """Whether all of the response arrived."""
    is_rejected_by_gateway: bool = False
    """Whether the gateway rejected the request, so that no API got it."""

    @property
    def is_failure(self) -> bool:
        """Whether the request failed, so that there is no answer of the model."""
        return self.is_rejected_by_gateway or bool(self.error) or not 200 <= self.status < 300


class _Text(msgspec.Struct):
    type: str | None = None


class _Item(msgspec.Struct):
    type: str | None = None
    content: list[_Text] | None = None


class _Error(msgspec.Struct):
    """An error; servers between us and the API put other types in its fields than the API does."""

    type: Any = None
    code: Any = None
    message: Any = None


class _Cut(msgspec.Struct):
    reason: str | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    error: _Error | None = None
    incomplete_details: _Cut | None = None
    output: list[_Item] | None = None


class _Body(msgspec.Struct):
    type: str | None = None
    stop_reason: str | None = None
    delta: _Delta | str | None = None
    error: _Error | str | None = None
    response: _Response | None = None
    choices: list[_Choice] | None = None
    status: str | int | None = None
    incomplete_details: _Cut | None = None
    output: list[_Item] | None = None
    code: Any = None
    message: Any = None


_decoder = msgspec.json.Decoder(_Body)


class VerdictReader:
    """Reads the outcome of one response: feed it each event of a stream, or the body."""

    def __init__(self) -> None:
        self._error = ""
        self._error_type = ""
        self._message = ""
        self._stop_reason = ""
        self._is_complete = False

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

    def take_event(self, data: bytes) -> None:
        """Read the data of one event of a stream."""
        if data == _DONE:
            self._is_complete = True
        elif not (data.startswith(b"{") and data.rstrip().endswith(b"}")):
            self._take_error(_Error(code="malformed", message="an event of the stream is not a JSON object"))
        elif any(mark in data for mark in _MARKS):
            self._take(data)

    def take_body(self, body: bytes) -> None:
        """Read the body of a response that is not a stream; only a JSON object is a complete response."""
        is_read = self._take(body)
        self._is_complete = self._is_complete or (is_read and not self._error)

    def _take(self, data: bytes) -> bool:
        """Read one JSON object; false if it is not one, or not one of the APIs'."""
        try:
            body = _decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            return False
        if body.type == "message_stop":
            self._is_complete = True
        if isinstance(body.error, _Error):
            self._take_error(body.error)
        elif isinstance(body.error, str):
            self._take_error(_Error(code=body.error))
        elif body.type == "error":  # of the Responses API, where its fields are not in an `error`
            self._take_error(_Error(code=body.code, message=body.message))
        delta = body.delta.stop_reason if isinstance(body.delta, _Delta) else None
        self._stop(body.stop_reason or delta)
        for choice in body.choices or ():
            self._stop(choice.finish_reason)
        if body.response is not None:
            self._take_response(body.response)
        elif isinstance(body.status, str):
            error = body.error if isinstance(body.error, _Error) else None
            self._take_response(_Response(body.status, error, body.incomplete_details, body.output))
        return True

    def _take_response(self, response: _Response) -> None:
        if response.status in ("completed", "incomplete"):
            self._is_complete = True
        if response.status == "failed" or response.error is not None:
            self._take_error(response.error or _Error(code="server_error"))
        if response.incomplete_details is not None:
            self._stop(response.incomplete_details.reason)
        elif response.status == "completed":
            self._stop(REFUSAL if _is_refusal(response.output or ()) else "end_turn")

    def _take_error(self, error: _Error) -> None:
        self._error = _text(error.code) or _text(error.type) or "error"
        self._error_type = _text(error.type)
        self._message = _text(error.message, _MESSAGE_CHARS)

    def _stop(self, reason: str | None) -> None:
        if reason:
            self._stop_reason = _STOP_REASONS.get(reason, reason)[:100]


def _text(value: object, limit_chars: int = 100) -> str:
    """Return a field's text; empty if it is neither text nor a number."""
    return str(value)[:limit_chars] if isinstance(value, str | int) else ""


def verdict_of_body(body: bytes) -> Verdict:
    """Return the outcome that a body describes; an empty one if the body cannot be read."""
    reader = VerdictReader()
    reader.take_body(body)
    return reader.verdict(0)


def _is_refusal(output: Sequence[_Item]) -> bool:
    """Whether the model's last message consists of refusals only."""
    last = output[-1] if output else None
    texts = last.content or [] if last is not None and last.type == "message" else []
    return bool(texts) and all(text.type == "refusal" for text in texts)

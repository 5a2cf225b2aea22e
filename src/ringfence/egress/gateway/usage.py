"""Counts the tokens of a response, from its JSON or from its server-sent events as they arrive."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from ringfence.egress.gateway.event_stream import EventReader
from ringfence.egress.gateway.verdict import VerdictReader
from ringfence.events import Usage

_CHARS_PER_TOKEN = 4
_TOKENS_PER_S = 100
"""Assumed rate of a model whose output was not received."""

_Count = Annotated[int, msgspec.Meta(ge=-(10**12), le=10**12)]
"""Larger numbers are not accepted, because they could neither be recorded nor priced."""


class _Details(msgspec.Struct):
    """Parts of OpenAI's count of input tokens, which includes them."""

    cached_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None


class _Created(msgspec.Struct):
    ephemeral_1h_input_tokens: _Count | None = None


class _Served(msgspec.Struct):
    web_search_requests: _Count | None = None


class _Counts(msgspec.Struct):
    """The fields of the three APIs for the same counts."""

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation: _Created | None = None
    server_tool_use: _Served | None = None
    input_tokens_details: _Details | None = None
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Block(msgspec.Struct):
    type: str | None = None
    name: str | None = None

    @property
    def is_executed_code(self) -> bool:
        """Whether it is the provider's execution of code, by any of its tools for that."""
        return self.type == "server_tool_use" and (self.name or "").endswith("code_execution")


class _Whole(msgspec.Struct):
    model: str | None = None
    usage: _Counts | None = None
    content: list[_Block] | None = None


class _Function(msgspec.Struct):
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function | None = None


class _Delta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None

    @property
    def chars(self) -> int:
        count = len(self.text or "") + len(self.thinking or "") + len(self.partial_json or "")
        count += len(self.content or "") + len(self.reasoning_content or "")
        for call in self.tool_calls or ():
            count += len(call.function.arguments or "") if call.function else 0
        return count


class _Choice(msgspec.Struct):
    delta: _Delta | None = None


class _Data(msgspec.Struct):
    type: str | None = None
    message: _Whole | str | None = None
    response: _Whole | None = None
    delta: _Delta | str | None = None
    content_block: _Block | None = None
    usage: _Counts | None = None
    choices: list[_Choice] | None = None
    model: str | None = None


_data = msgspec.json.Decoder(_Data)
_whole = msgspec.json.Decoder(_Whole)


class Counter:
    """Counts one response. Where the API reports no count, it is estimated at four characters a token.

    Args:
        request_bytes: Length of the request, for an estimate of the prompt.
    """

    def __init__(self, request_bytes: int) -> None:
        self.model = ""
        """The model that the response names."""
        self.is_final = False
        """Whether the API has reported the count of the whole response."""
        self._request_bytes = request_bytes
        self._reported = Usage()
        self._has_prompt_count = False
        self._chars = 0
        self._events = EventReader()
        self.is_begun = False
        """Whether a part of the response has arrived."""
        self.verdict = VerdictReader()
        """Reads the outcome of the response."""

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
        output = max(prompt.output_tokens, -(-(self._chars + self._events.dropped_bytes) // _CHARS_PER_TOKEN))
        return msgspec.structs.replace(prompt, output_tokens=output)

    def assume(self, seconds: float, most: int | None) -> None:
        """Estimate the usage of a response that was abandoned before a part of it arrived.

        Args:
            seconds: The time since the request was sent, during which the model produced output.
            most: The limit for the tokens of the response; None: not known.
        """
        self.is_begun = True
        written = int(seconds * _TOKENS_PER_S)
        self._chars += _CHARS_PER_TOKEN * (written if most is None else min(written, most))

    def take_json(self, body: bytes) -> None:
        """Count a whole response."""
        self.is_begun = True
        try:
            whole = _whole.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            self._chars += len(body)
            return
        self._take_whole(whole, is_last=True)

    def take_stream(self, piece: bytes) -> None:
        """Count a piece of a stream of events."""
        self.is_begun = True
        for data in self._events.feed(piece):
            self._take_data(data.strip())

    def end_stream(self) -> None:
        """Count an event that the end of the stream cut off."""
        data = self._events.finish()
        if data is not None:
            self._take_data(data.strip())

    def _take_data(self, text: bytes) -> None:
        self.verdict.take_event(text)
        if text == b"[DONE]":
            return
        try:
            data = _data.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            self._chars += len(text)
            return
        delta = data.delta
        if delta is not None:
            self._chars += len(delta) if isinstance(delta, str) else delta.chars
        for choice in data.choices or ():
            self._chars += choice.delta.chars if choice.delta is not None else 0
        if data.content_block is not None:
            self._take_blocks([data.content_block])
        if data.model and not self.model:
            self.model = data.model
        if isinstance(data.message, _Whole):
            self._take_whole(data.message, is_last=False)
        if data.response is not None:
            self._take_whole(data.response, is_last=True)
        if data.usage is not None:
            self._take_counts(data.usage, is_last=True)

    def _take_whole(self, whole: _Whole, *, is_last: bool) -> None:
        self.model = self.model or whole.model or ""
        self._take_blocks(whole.content or ())
        if whole.usage is not None:
            self._take_counts(whole.usage, is_last=is_last)

    def _take_blocks(self, blocks: Sequence[_Block]) -> None:
        """Count one container if the provider executed code; the API does not report it."""
        if any(block.is_executed_code for block in blocks):
            self._reported = msgspec.structs.replace(self._reported, code_execution_containers=1)

    def _take_counts(self, counts: _Counts, *, is_last: bool) -> None:
        """Add counts; those at the end of a stream are for the whole response, and omit values reported before."""
        details = counts.input_tokens_details or counts.prompt_tokens_details
        cached = max(0, (details.cached_tokens if details else None) or 0)
        written = max(0, (details.cache_write_tokens if details else None) or 0)
        prompt = counts.input_tokens if counts.input_tokens is not None else counts.prompt_tokens
        output = counts.output_tokens if counts.output_tokens is not None else counts.completion_tokens
        changes: dict[str, Any] = {}
        if prompt is not None:
            changes["input_tokens"] = max(0, prompt - cached - written)
            self._has_prompt_count = True
        if output is not None:
            changes["output_tokens"] = max(0, output)
        if counts.cache_creation_input_tokens is not None or written:
            changes["cache_creation_input_tokens"] = max(0, counts.cache_creation_input_tokens or written)
        if counts.cache_read_input_tokens is not None or cached:
            changes["cache_read_input_tokens"] = max(0, counts.cache_read_input_tokens or cached)
        if counts.cache_creation is not None and counts.cache_creation.ephemeral_1h_input_tokens is not None:
            changes["cache_creation_1h_input_tokens"] = max(
                0, counts.cache_creation.ephemeral_1h_input_tokens
            )
        if counts.server_tool_use is not None and counts.server_tool_use.web_search_requests is not None:
            changes["web_search_requests"] = max(0, counts.server_tool_use.web_search_requests)
        self._reported = msgspec.structs.replace(self._reported, **changes)
        self.is_final = self.is_final or (is_last and output is not None)

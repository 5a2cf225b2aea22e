"""The format of scripts, which docs/reference/scripted-model.md describes."""

import re
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    PrivateAttr,
    model_validator,
)

from ringfence.events import JSONObject
from ringfence.model.prices import Price


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorAnswer(_Part):
    """The request is answered with an HTTP error."""

    status: Annotated[int, Field(ge=300, le=599)]
    type: str | None = None
    """The body's `error.type`; None: the API's own type for this status."""
    message: str = "scripted error"
    retry_after: NonNegativeFloat | str | None = None
    """The `retry-after` header: seconds, or any text such as an HTTP date."""
    retry_after_ms: NonNegativeFloat | None = None
    headers: dict[str, str] = {}
    times: PositiveInt = 1


class StreamError(_Part):
    """The stream holds an error and ends."""

    after_events: NonNegativeInt = 2
    type: str | None = None
    """None: the API's own type for an overload or a fault of the server."""
    message: str = "Overloaded"
    times: PositiveInt = 1


class Drop(_Part):
    """The connection is closed in the middle of the answer."""

    after_events: NonNegativeInt | None = None
    after_bytes: NonNegativeInt | None = None
    times: PositiveInt = 1

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.after_events is None) == (self.after_bytes is None):
            raise ValueError("give after_events or after_bytes, one of them")
        return self


class Malformed(_Part):
    """The stream holds an event that is not JSON, and ends."""

    after_events: NonNegativeInt = 2
    data: str | None = None
    """None: the beginning of an event of the API."""
    times: PositiveInt = 1


class Stall(_Part):
    """The answer stops for some time, then continues."""

    after_events: NonNegativeInt = 2
    seconds: NonNegativeFloat
    times: PositiveInt = 1


class Slow(_Part):
    """Every answer of the turn is sent in small pieces, cut anywhere."""

    chunk_bytes: PositiveInt = 16
    delay_s: NonNegativeFloat = 0.01


def _regular_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"it is no regular expression: {exc}") from exc
    return text


class ToolCall(_Part):
    """One call of a tool."""

    name: Annotated[str, Field(min_length=1)] | None = None
    input: JSONObject = {}
    """For a tool that takes plain text: that text, as the only argument `input`."""
    run: Annotated[str, Field(min_length=1)] | None = None
    """A shell command, for the tool among those offered that runs one."""
    from_results: dict[str, Annotated[str, AfterValidator(_regular_expression)]] = {}
    """Arguments that are found in results of tools, such as a handle: the first match in the last result with one."""
    id: str | None = None

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.name is None) == (self.run is None):
            raise ValueError("give name or run, one of them")
        if self.run is not None and (self.input or self.from_results):
            raise ValueError("a run is the whole input; leave input and from_results out")
        return self


class ScriptedUsage(_Part):
    """The usage that the reply reports; counts that are left out are estimated (input, output) or 0."""

    input_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    cache_creation_input_tokens: NonNegativeInt = 0
    cache_read_input_tokens: NonNegativeInt = 0


class Expectation(_Part):
    """Expectations of the request; one that is not met is answered 400, and the turn stays."""

    last_tool_result: str | None = None
    """Text that the last tool result contains."""
    last_tool_is_error: bool | None = None
    last_user_text: str | None = None
    """Text that the last user message contains."""
    system: str | None = None
    """Text that the system prompt contains."""
    tools: tuple[str, ...] = ()
    """The names of tools that the request offers."""
    messages: PositiveInt | None = None
    """The number of messages in the conversation."""


class ContentBlock(BaseModel):
    """A block in the API's own shape, for replies whose order matters."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["text", "thinking", "redacted_thinking", "tool_use"]


Fault = ErrorAnswer | StreamError | Drop | Malformed | Stall


class Turn(_Part):
    """One turn: its faults, each `times` times, then its reply."""

    expect: Expectation | None = None
    error: ErrorAnswer | None = None
    stream_error: StreamError | None = None
    drop: Drop | None = None
    malformed: Malformed | None = None
    stall: Stall | None = None
    slow: Slow | None = None
    thinking: str | None = None
    signature: str | None = None
    redacted_thinking: str | None = None
    text: str | None = None
    tools: tuple[ToolCall, ...] = ()
    content: tuple[ContentBlock, ...] | None = None
    stop_reason: str | None = None
    usage: ScriptedUsage = ScriptedUsage()
    piece_chars: PositiveInt | None = None
    """The length of the pieces of text; None: at most 20 pieces of 24 characters or more."""

    @property
    def has_reply(self) -> bool:
        """Whether the turn ends with a reply, and not with an error."""
        given = (self.thinking, self.redacted_thinking, self.text, self.content, self.stop_reason)
        return bool(self.tools) or any(value is not None for value in given)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults in the order in which they happen, each as often as it happens."""
        given = (self.error, self.stream_error, self.drop, self.malformed, self.stall)
        return tuple(fault for fault in given if fault is not None for _ in range(fault.times))

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.content is not None and (self.thinking or self.redacted_thinking or self.text or self.tools):
            raise ValueError("give content, or thinking, text and tools, not both")
        if self.signature is not None and self.thinking is None:
            raise ValueError("signature needs thinking")
        if not self.has_reply and (self.error is None or len(self.faults) > self.error.times):
            raise ValueError(
                "a turn needs a reply: text, tools, thinking, content or stop_reason; or an error"
            )
        return self


class Case(_Part):
    """The turns for the conversations that begin in a certain way."""

    when: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts that the beginning of the conversation must contain; without any, every conversation fits."""
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]


class Source(NamedTuple):
    """The text that a script was read from."""

    path: Path = Path("<script>")
    lines: tuple[int, ...] = ()
    """The line at which each turn begins, those of the cases one after another."""
    case_lines: tuple[int, ...] = ()
    """The line at which each case begins."""

    def place(self, turn_index: int) -> str:
        """Return `file:line` of a turn."""
        return f"{self.path}:{self.lines[turn_index]}" if turn_index < len(self.lines) else str(self.path)


class Script(_Part):
    """A whole script: turns, or cases with turns of their own."""

    turns: Annotated[tuple[Turn, ...], Field(min_length=1)] = ()
    cases: Annotated[tuple[Case, ...], Field(min_length=1)] = ()
    """The first case that fits a conversation answers it."""
    price: Price | None = None
    """The price of the scripted model's tokens; None: unknown."""

    _source: Source = PrivateAttr(default=Source())

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if bool(self.turns) == bool(self.cases):
            raise ValueError("give turns or cases, one of them")
        return self

    @property
    def source(self) -> Source:
        """The text that the script was read from."""
        return self._source

    def from_source(self, source: Source) -> Self:
        """Note the text that the script was read from."""
        self._source = source
        return self

    def of_case(self, case_index: int) -> "Script":
        """Return the turns of one case as a script."""
        before = sum(len(case.turns) for case in self.cases[:case_index])
        turns = self.cases[case_index].turns
        lines = self.source.lines[before : before + len(turns)]
        source = Source(self.source.path, lines, self.source.case_lines[case_index : case_index + 1])
        return Script(turns=turns, price=self.price).from_source(source)

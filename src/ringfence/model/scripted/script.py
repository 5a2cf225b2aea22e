"""What a script says. The format is described in docs/reference/scripted-model.md."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from ringfence.model.prices import Price

JSONObject = dict[str, Any]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ErrorAnswer(_Part):
    """The request is answered with an HTTP error."""

    status: Annotated[int, Field(ge=300, le=599)]
    type: str | None = None
    """`error.type` of the body; None: the API's own for this status."""
    message: str = "scripted error"
    retry_after: NonNegativeFloat | str | None = None
    """The `retry-after` header: seconds, or any text such as an HTTP date."""
    retry_after_ms: NonNegativeFloat | None = None
    headers: dict[str, str] = {}
    times: PositiveInt = 1


class StreamError(_Part):
    """An error comes in the stream, and the stream ends."""

    after_events: NonNegativeInt = 2
    type: str | None = None
    """None: the API's own for an overload or a fault of the server's."""
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
    """An event that is not JSON comes in the stream, and the stream ends."""

    after_events: NonNegativeInt = 2
    data: str | None = None
    """None: the beginning of an event of the API's."""
    times: PositiveInt = 1


class Stall(_Part):
    """The answer stops for a while, then goes on."""

    after_events: NonNegativeInt = 2
    seconds: NonNegativeFloat
    times: PositiveInt = 1


class Slow(_Part):
    """Every answer of the turn is sent in small pieces, cut anywhere."""

    chunk_bytes: PositiveInt = 16
    delay_s: NonNegativeFloat = 0.01


class ToolCall(_Part):
    """One call of a tool."""

    name: Annotated[str, Field(min_length=1)] | None = None
    input: JSONObject = {}
    """For a tool that takes text as it is: that text, as the one argument `input`."""
    run: Annotated[str, Field(min_length=1)] | None = None
    """A shell command, for whichever tool the request offers that runs one."""
    id: str | None = None

    @model_validator(mode="after")
    def _says_what_to_call(self) -> Self:
        if (self.name is None) == (self.run is None):
            raise ValueError("give name or run, one of them")
        if self.run is not None and self.input:
            raise ValueError("run is all the input there is; leave input out")
        return self


class ScriptedUsage(_Part):
    """Tokens that the reply claims; what is left out is estimated (input, output) or 0."""

    input_tokens: NonNegativeInt | None = None
    output_tokens: NonNegativeInt | None = None
    cache_creation_input_tokens: NonNegativeInt = 0
    cache_read_input_tokens: NonNegativeInt = 0


class Expectation(_Part):
    """What the request must be like; otherwise it is answered 400 and the turn stays."""

    last_tool_result: str | None = None
    """Text that the last tool result contains."""
    last_tool_is_error: bool | None = None
    last_user_text: str | None = None
    """Text that the last user message contains."""
    system: str | None = None
    """Text that the system prompt contains."""
    tools: tuple[str, ...] = ()
    """Names of tools that are offered."""
    messages: PositiveInt | None = None
    """How many messages the conversation has."""


class ContentBlock(BaseModel):
    """A block in the API's own shape, for replies whose order matters."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Literal["text", "thinking", "redacted_thinking", "tool_use"]


Fault = ErrorAnswer | StreamError | Drop | Malformed | Stall


class Turn(_Part):
    """One turn: faults first, each so many times, then the reply."""

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
    """Length of the pieces that text comes in; None: at most 20 pieces of 24 characters or more."""

    @property
    def has_reply(self) -> bool:
        """Whether the turn ends with a reply, as against an error alone."""
        given = (self.thinking, self.redacted_thinking, self.text, self.content, self.stop_reason)
        return bool(self.tools) or any(value is not None for value in given)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults in the order they happen, each as often as it does."""
        given = (self.error, self.stream_error, self.drop, self.malformed, self.stall)
        return tuple(fault for fault in given if fault is not None for _ in range(fault.times))

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.content is not None and (self.thinking or self.redacted_thinking or self.text or self.tools):
            raise ValueError("give content, or thinking, text and tools, not both")
        if self.signature is not None and self.thinking is None:
            raise ValueError("signature needs thinking")
        if not self.has_reply and (self.error is None or len(self.faults) > self.error.times):
            raise ValueError("say what is replied: text, tools, thinking, content, stop_reason or error")
        return self


class Case(_Part):
    """What one kind of conversation is answered."""

    when: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts that the beginning of the conversation contains, all of them; none: any conversation."""
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]


class Script(_Part):
    """A whole script: turns, or cases with turns of their own."""

    turns: Annotated[tuple[Turn, ...], Field(min_length=1)] = ()
    cases: Annotated[tuple[Case, ...], Field(min_length=1)] = ()
    """The first that fits a conversation answers it."""
    price: Price | None = None
    """What the scripted model's tokens cost; None: unknown."""
    path: Annotated[Path, Field(exclude=True)] = Path("<script>")
    lines: Annotated[tuple[int, ...], Field(exclude=True)] = ()
    """Where each turn begins, those of the cases one after another; set by the loader."""
    case_lines: Annotated[tuple[int, ...], Field(exclude=True)] = ()
    """Where each case begins; set by the loader."""

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if bool(self.turns) == bool(self.cases):
            raise ValueError("give turns or cases, one of them")
        return self

    def place(self, turn_index: int) -> str:
        """`file:line` of a turn."""
        return f"{self.path}:{self.lines[turn_index]}" if turn_index < len(self.lines) else str(self.path)

    def of_case(self, case_index: int) -> "Script":
        """The turns of one case as a script."""
        before = sum(len(case.turns) for case in self.cases[:case_index])
        turns = self.cases[case_index].turns
        lines = self.lines[before : before + len(turns)]
        begins = self.case_lines[case_index : case_index + 1]
        return Script(turns=turns, price=self.price, path=self.path, lines=lines, case_lines=begins)

"""What all events share."""

from typing import Any, ClassVar

import msgspec

JSONObject = dict[str, Any]


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one reply, or a sum of them, as the Messages API counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    @property
    def total(self) -> int:
        """All tokens, cached ones included."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_creation_input_tokens
            + self.cache_read_input_tokens
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place in another program's transcript that an event was read from. Nobody vouches for what it says."""

    file: str
    line: int
    """Counted from 1."""
    at: str | None = None
    """When it happened, as the transcript says."""
    agent: str | None = None
    """Of a sub-agent, which."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Root of all events."""

    journaled: ClassVar[bool] = True
    """False for events that only a live view wants (text as it streams)."""

    origin: Origin | msgspec.UnsetType = msgspec.UNSET
    """Only of events that were read from a transcript."""

    @property
    def name(self) -> str:
        """The tag, such as `tool.called`."""
        return str(type(self).__struct_config__.tag)

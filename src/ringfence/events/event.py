"""What all events share."""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec

JSONObject = dict[str, Any]


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one reply, or a sum of them, as the Messages API counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_1h_input_tokens: int = 0
    """Of `cache_creation_input_tokens`, those of the cache that lasts an hour."""
    web_search_requests: int = 0
    """Searches of the web that the provider made."""
    code_execution_containers: int = 0
    """Answers for which the provider executed code in a container of its own."""

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
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


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


Emit = Callable[[Event], Awaitable[None]]
"""Writes an event to the record, or shows it; returns when that is done."""

"""The base class of all events, and the types that several events use."""

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
    """The part of `cache_creation_input_tokens` that is cached for an hour."""
    web_search_requests: int = 0
    """The number of web searches that the provider made."""
    code_execution_containers: int = 0
    """The number of replies for which the provider executed code in a container of its own."""

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
    """The position in another program's transcript from which an event was read. The transcript is not verified."""

    file: str
    line: int
    """The line number, counted from 1."""
    at: str | None = None
    """The time of the event according to the transcript."""
    agent: str | None = None
    """The sub-agent of the event, if it has one."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Root of all events."""

    journaled: ClassVar[bool] = True
    """Whether the journal stores the event; False for streamed text, which only live views use."""

    origin: Origin | msgspec.UnsetType = msgspec.UNSET
    """The origin of an event that was read from a transcript."""

    @property
    def name(self) -> str:
        """The tag, such as `tool.called`."""
        return str(type(self).__struct_config__.tag)


Emit = Callable[[Event], Awaitable[None]]
"""A function that writes an event to the record or shows it, and returns when that is done."""

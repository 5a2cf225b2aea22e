"""The contract of a model: a conversation in, one reply out, told as it comes."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.events import Event, Usage

JSONObject = dict[str, Any]
"""A JSON object in the Messages API's own shape, passed through untouched (thinking blocks carry signatures)."""

Emit = Callable[[Event], Awaitable[None]]
"""Takes an event; returns when it is in the journal ("written before told")."""


@dataclass(frozen=True)
class ModelRequest:
    """One request. `messages` and `tools` are in the Messages API's shape."""

    model: str
    system: str
    messages: tuple[JSONObject, ...]
    tools: tuple[JSONObject, ...] = ()
    max_tokens: int = 8192
    thinking_tokens: int = 0
    """Budget for extended thinking; 0 = off."""


@dataclass(frozen=True)
class ModelReply:
    """One whole reply of the model."""

    content: tuple[JSONObject, ...]
    stop_reason: str
    usage: Usage
    model: str
    message_id: str
    extra: Mapping[str, str] = field(default_factory=dict)


class Model(ABC):
    """Something that answers a conversation.

    A reply is returned only when it is whole: a stream that breaks in the middle is repeated inside `reply`, so a
    caller never sees a tool call of a reply that did not end.
    """

    @abstractmethod
    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Answer `request`, emitting `TextStreamed`, `ThinkingStreamed` and `ModelRetried` as they happen.

        Raises:
            AuthenticationFailed: 401 or 403; not retried.
            InfrastructureFault: Unreachable, overloaded or rate-limited beyond the retries.
            UsageError: The API refuses the request itself (400, 404, 413).
        """

    async def aclose(self) -> None:
        """Let go of connections."""

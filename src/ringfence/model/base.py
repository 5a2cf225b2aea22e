"""The contract of a model: a conversation in, one reply out, told as it comes."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import msgspec

from ringfence.errors import UsageError
from ringfence.events import Event, Usage
from ringfence.frozen import frozen

API_VERSION = "2026-10-21"
"""The `anthropic-version` of all our requests, as the official SDK 2.11 sends it."""

JSONObject = dict[str, Any]
"""A JSON object in the Messages API's own shape, passed through untouched (thinking blocks are signed)."""

Emit = Callable[[Event], Awaitable[None]]
"""Takes an event; returns when it is in the journal ("written before told")."""


class ContextExceeded(UsageError):
    """The conversation is longer than the model's window; a shorter one may be accepted."""


@frozen
class ModelRequest:
    """One request. `messages` and `tools` are in the Messages API's shape.

    Leave `cache_control` out: the model places the breakpoints on copies.
    """

    model: str
    system: str
    messages: tuple[JSONObject, ...]
    tools: tuple[JSONObject, ...] = ()
    max_tokens: int = 8192

    def digest(self) -> str:
        """SHA-256 of the request's canonical JSON; equal for equal requests, on any machine."""
        # By hand: `dataclasses.asdict` copies the whole conversation first, at every turn.
        shallow = {each.name: getattr(self, each.name) for each in fields(self)}
        return hashlib.sha256(msgspec.json.encode(shallow, order="deterministic")).hexdigest()


@frozen
class ModelReply:
    """One whole reply of the model."""

    content: tuple[JSONObject, ...]
    stop_reason: str
    usage: Usage
    model: str
    message_id: str


class Model(ABC):
    """Something that answers a conversation.

    A reply is returned only when it is whole: a stream that breaks in the middle is repeated inside `reply`,
    so a caller never sees a tool call of a reply that did not end. What it had emitted is void;
    the `ModelRetried` that follows says so. Tool calls are to be carried out only if `stop_reason` is
    `tool_use`; a call that another stop reason cut in the middle is left out of `content`, which may then be
    empty.
    """

    @abstractmethod
    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Answer `request`, emitting `TextStreamed`, `ThinkingStreamed` and `ModelRetried` as they happen.

        Raises:
            AuthenticationFailed: 401 or 403; not retried.
            InfrastructureFault: Unreachable, overloaded or rate-limited beyond the retries.
            ContextExceeded: The conversation is longer than the model's window.
            RequestRefused: The API refuses the request itself (400, 404, 422).
            UsageError: The conversation cannot be sent (413, or it is no Unicode).
        """

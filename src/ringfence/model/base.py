"""The contract of a model, which answers a conversation with one reply and emits it as it arrives."""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import fields

import msgspec

from ringfence.errors import UsageError
from ringfence.events import Emit, JSONObject, Usage
from ringfence.frozen import frozen

API_VERSION = "2026-10-21"
"""The `anthropic-version` of all requests, as the official SDK 2.11 sends it."""


class ContextExceeded(UsageError):
    """The conversation is longer than the model's window; a shorter one may be accepted."""


@frozen
class ModelRequest:
    """One request, with `messages` and `tools` in the shape of the Messages API.

    Leave `cache_control` out: the model sets the cache breakpoints on copies.
    """

    model: str
    system: str
    messages: tuple[JSONObject, ...]
    tools: tuple[JSONObject, ...] = ()
    max_tokens: int = 8192

    def digest(self) -> str:
        """Return the SHA-256 of the request's canonical JSON, which is equal for equal requests on any machine."""
        # Not `dataclasses.asdict`, which would copy the whole conversation at every turn.
        shallow = {each.name: getattr(self, each.name) for each in fields(self)}
        return hashlib.sha256(msgspec.json.encode(shallow, order="deterministic")).hexdigest()


@frozen
class ModelReply:
    """One complete reply of the model."""

    content: tuple[JSONObject, ...]
    stop_reason: str
    usage: Usage
    model: str
    message_id: str


class Model(ABC):
    """A model that answers conversations.

    A reply is returned only when it is complete: `reply` repeats a stream that breaks in the middle, so a caller never
    sees a tool call of an incomplete reply. A `ModelRetried` event voids what the broken stream had emitted. Carry out
    tool calls only if `stop_reason` is `tool_use`; a call that another stop reason cut in the middle is left out of
    `content`, which may then be empty.
    """

    @abstractmethod
    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Answer `request`, emitting `TextStreamed`, `ThinkingStreamed` and `ModelRetried` as they happen.

        Raises:
            AuthenticationFailed: 401 or 403; not retried.
            InfrastructureFault: The API is unreachable, overloaded or rate-limited beyond the retries.
            ContextExceeded: The conversation is longer than the model's window.
            RequestRefused: The API rejects the request itself (400, 404, 422).
            UsageError: The conversation cannot be sent (413, or it is not Unicode).
        """

"""What the host did because a client inside asked it to: hooks and permissions. Its tools are told as tools are."""

from typing import Any

import msgspec

from ringfence.events.event import Event, JSONObject


class PermissionDecided(Event, frozen=True, kw_only=True, tag="permission.decided"):
    """The host decided whether a client may use a tool. In the journal before the client is told."""

    call_id: str
    """The client's, of the call it asks for; empty if it named none."""
    tool: str
    allowed: bool
    reason: str
    """Why it may not, as the client is told."""
    arguments: JSONObject
    """As the client wants to call the tool."""
    changed_arguments: JSONObject | None = None
    """As it may call it, where that is something else."""


class HookAnswered(Event, frozen=True, kw_only=True, tag="hook.answered"):
    """A hook of the host's ran, and this is its answer. In the journal before the client is told."""

    hook: str
    """The client's name of the occasion: `PreToolUse`, `Stop`, ..."""
    call_id: str
    """Of the tool call that it is about; empty if it is about none."""
    tool: str
    is_error: bool
    answer: Any = msgspec.field(default_factory=dict)
    """What it says; its failure, where it failed."""
    duration_ms: float = 0.0

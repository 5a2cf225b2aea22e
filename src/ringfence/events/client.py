"""A client inside, as seen from outside: what was started, and how it ended. What it says of itself has an origin."""

from typing import Any

import msgspec

from ringfence.events.event import Event


class ClientStarted(Event, frozen=True, kw_only=True, tag="client.started"):
    """A client's program is started in a sandbox. In the journal before it is."""

    sandbox_id: str
    client: str
    """`claude` or `codex`."""
    version: str
    """Empty where it is not known."""
    argv: list[str]
    files: list[str] = msgspec.field(default_factory=list)
    """Written inside for it before."""


class ClientEnded(Event, frozen=True, kw_only=True, tag="client.ended"):
    """A client's program is over, or was ended."""

    sandbox_id: str
    client: str
    exit_code: int
    """Negative: the number of the signal that ended it."""
    ending: str
    """What it is taken for: `done`, `denied`, `silent`, ...; see the page of runtimes."""
    reason: str
    signals: list[str] = msgspec.field(default_factory=list)
    """That we sent, in order."""
    stderr: str = ""
    """Its end."""
    turns: int = 0
    """Answers of its model, counted by the gateway; in records of 0.1 as far as it told of them."""
    tool_calls: int = 0
    duration_ms: float = 0.0


class AgentAnswered(Event, frozen=True, kw_only=True, tag="agent.answered"):
    """An agent that is no loop of our own came to an end, and this is what it says. Nobody vouches for it."""

    ended_by: str
    """`done`, `denied`, `context`, ..."""
    final_text: str
    structured_output: Any = None
    """By the output schema, where one was asked for."""
    denied: list[str] = msgspec.field(default_factory=list)
    """Tools that it wanted to use and was not permitted to."""

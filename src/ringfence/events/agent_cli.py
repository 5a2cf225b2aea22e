"""Events of agent CLIs: their start and end, what the host decides for them, their sessions, their transcripts."""

from typing import Any

import msgspec

from ringfence.events.event import Event, JSONObject


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


class SessionResumed(Event, frozen=True, kw_only=True, tag="session.resumed"):
    """An earlier session is gone on with."""

    session_id: str
    """Ours, by which it is found again; of a fork, the new one's."""
    run: str
    """The last run of the session that is gone on with."""
    is_forked: bool
    differences: list[str]
    """What is not as it was then: `model: was A, is B`."""


class SessionKept(Event, frozen=True, kw_only=True, tag="session.kept"):
    """A session's files were brought out, to be gone on with."""

    session_id: str
    client_session_id: str
    """As the client names it."""
    files: int
    size_bytes: int
    problem: str = ""
    """Why not all of it could be kept."""


class SessionLost(Event, frozen=True, kw_only=True, tag="session.lost"):
    """The client did not find the session that it was to go on with; it was started afresh, once."""

    session_id: str
    client_session_id: str
    reason: str
    """In the client's words."""


class TranscriptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that version 0.1 imported: as many of its bytes as there were, and their hash."""

    path: str
    size_bytes: int
    sha256: str
    agent: str | None = None


class SessionImported(Event, frozen=True, kw_only=True, tag="session.imported"):
    """What follows was read from files of another program. It proves what they held then, not that it happened.

    Only version 0.1 wrote this event.
    """

    client: str
    """`claude` or `codex`."""
    client_version: str
    session_id: str
    files: list[TranscriptFile]


class TranscriptNoted(Event, frozen=True, kw_only=True, tag="transcript.noted"):
    """A record of a transcript that is no other event, kept as it was."""

    kind: str
    text: str
    """What it says to people; empty for bookkeeping."""
    record: Any


class TranscriptDamaged(Event, frozen=True, kw_only=True, tag="transcript.damaged"):
    """A place of a transcript that could not be read, or only in part; or its file changed while it was read."""

    reason: str
    offset: int
    """Of the line's first byte."""
    size_bytes: int
    sha256: str | None = None


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

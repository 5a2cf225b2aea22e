"""Events of agent CLIs: their start and end, permissions and hooks, sessions and transcripts."""

from typing import Any

import msgspec

from ringfence.events.event import Event, JSONObject


class ClientStarted(Event, frozen=True, kw_only=True, tag="client.started"):
    """An agent CLI is started in a sandbox. The event is recorded before the start."""

    sandbox_id: str
    client: str
    """`claude` or `codex`."""
    version: str
    """The version of the agent CLI; empty if it is not known."""
    argv: list[str]
    files: list[str] = msgspec.field(default_factory=list)
    """Files that were written in the sandbox for the agent CLI."""


class ClientEnded(Event, frozen=True, kw_only=True, tag="client.ended"):
    """An agent CLI exited, or was stopped."""

    sandbox_id: str
    client: str
    exit_code: int
    """The exit code; a negative one is the number of the signal that ended the process."""
    ending: str
    """The end reason: `done`, `denied`, `silent`, ...; see the page about runtimes."""
    reason: str
    signals: list[str] = msgspec.field(default_factory=list)
    """The signals that were sent to it, in order."""
    stderr: str = ""
    """The end of its standard error."""
    turns: int = 0
    """The number of model replies, counted by the gateway; in records of version 0.1, as reported by the agent CLI."""
    tool_calls: int = 0
    duration_ms: float = 0.0


class AgentAnswered(Event, frozen=True, kw_only=True, tag="agent.answered"):
    """The final answer of an agent CLI. Its fields are the agent's own statements and are not verified."""

    ended_by: str
    """The end reason: `done`, `denied`, `context`, ..."""
    final_text: str
    structured_output: Any = None
    """The output that follows the output schema, if the run has one."""
    denied: list[str] = msgspec.field(default_factory=list)
    """Tools that the agent requested and was not permitted to use."""


class SessionResumed(Event, frozen=True, kw_only=True, tag="session.resumed"):
    """The run resumes an earlier session."""

    session_id: str
    """Ringfence's id of the session; for a fork, the id of the new session."""
    run: str
    """The last run of the resumed session."""
    is_forked: bool
    differences: list[str]
    """Settings that differ from those of the earlier run: `model: was A, is B`."""


class SessionKept(Event, frozen=True, kw_only=True, tag="session.kept"):
    """The files of a session were saved, so that the session can be resumed."""

    session_id: str
    client_session_id: str
    """The agent CLI's id of the session."""
    files: int
    size_bytes: int
    problem: str = ""
    """The reason why a part of the session could not be saved."""


class SessionLost(Event, frozen=True, kw_only=True, tag="session.lost"):
    """The agent CLI did not find the session to resume; it was restarted once with a new session."""

    session_id: str
    client_session_id: str
    reason: str
    """The message of the agent CLI."""


class TranscriptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that version 0.1 imported: its size at that time, and the hash of those bytes."""

    path: str
    size_bytes: int
    sha256: str
    agent: str | None = None


class SessionImported(Event, frozen=True, kw_only=True, tag="session.imported"):
    """The following events were read from files of another program.

    They prove what the files contained, not that the events happened. Only version 0.1 wrote this event.
    """

    client: str
    """`claude` or `codex`."""
    client_version: str
    session_id: str
    files: list[TranscriptFile]


class TranscriptNoted(Event, frozen=True, kw_only=True, tag="transcript.noted"):
    """A record of a transcript for which no other event exists, stored unchanged."""

    kind: str
    text: str
    """The text of the record for people; empty for bookkeeping."""
    record: Any


class TranscriptDamaged(Event, frozen=True, kw_only=True, tag="transcript.damaged"):
    """A line of a transcript could not be read completely, or its file changed while it was read."""

    reason: str
    offset: int
    """The offset of the line's first byte."""
    size_bytes: int
    sha256: str | None = None


class PermissionDecided(Event, frozen=True, kw_only=True, tag="permission.decided"):
    """The host decided whether an agent CLI may use a tool. The decision is recorded before it is sent."""

    call_id: str
    """The agent CLI's id of the requested call; empty if it named none."""
    tool: str
    allowed: bool
    reason: str
    """The reason for a refusal, as sent to the agent CLI."""
    arguments: JSONObject
    """The arguments that the agent CLI requested."""
    changed_arguments: JSONObject | None = None
    """The arguments that are permitted, if they differ."""


class HookAnswered(Event, frozen=True, kw_only=True, tag="hook.answered"):
    """A hook ran on the host and returned an answer. The answer is recorded before it is sent to the agent CLI."""

    hook: str
    """The agent CLI's name of the hook: `PreToolUse`, `Stop`, ..."""
    call_id: str
    """The id of the tool call that the hook concerns; empty if there is none."""
    tool: str
    is_error: bool
    answer: Any = msgspec.field(default_factory=dict)
    """The answer of the hook, or its error."""
    duration_ms: float = 0.0

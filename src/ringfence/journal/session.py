"""The session file: one JSON document with every message and every tool call with its result, in order.

The file is for reading, while the journal is the evidence. It is built only from the journal's events.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from ringfence.errors import InfrastructureFault, next_step
from ringfence.events import (
    Event,
    JobCreated,
    JobEnded,
    JournalOpened,
    MessageSent,
    ModelReplied,
    Origin,
    ToolCalled,
    ToolReturned,
    Usage,
)
from ringfence.filesystem import replace_file
from ringfence.journal.layout import session_name
from ringfence.journal.reader import read
from ringfence.journal.record import format_time

_SHELL_KEYS = {"stdout", "stderr", "exit_code", "timed_out"}


class Message(msgspec.Struct, kw_only=True):
    """A message of the conversation. `content` has the shape of the Messages API."""

    timestamp: str
    role: Literal["user", "assistant"]
    content: Any


class ToolCall(msgspec.Struct, kw_only=True):
    """A tool call with its result; `result` is null if the run ended before the call returned."""

    timestamp: str
    type: Literal["tool_call"] = "tool_call"
    call_id: str
    tool: str
    parameters: dict[str, Any]
    reasoning: str | None
    result: Any = None
    """The object {stdout, stderr, exit_code, timed_out} if the shell returned one, else the text."""
    is_error: bool | None = None
    duration_ms: float | None = None


class Outcome(msgspec.Struct, kw_only=True):
    """The end of the run."""

    state: str
    exit_code: int
    reason: str
    turns: int
    tool_calls: int
    usage: Usage
    cost_usd: float | None
    duration_s: float


class SessionDocument(msgspec.Struct, kw_only=True):
    """One session. `ended_at` and `outcome` are null until the run has ended."""

    session_id: str
    run_id: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    model: str | None = None
    workspace: str | None = None
    message_count: int = 0
    messages: list[Message | ToolCall] = []
    outcome: Outcome | None = None

    def encode(self) -> bytes:
        """Return the document as JSON with an indentation of two spaces."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def write(self, path: Path) -> None:
        """Write the document to `path`, readable by its owner only, and replace an older file atomically.

        Raises:
            InfrastructureFault: The document could not be written.
        """
        _write(path, self.encode())


def export(run_dir: Path) -> SessionDocument:
    """Return the session of the run in `run_dir`, or of a journal file. The journal may still be open.

    Raises:
        RecordError: The journal is absent or does not parse.
    """
    document = SessionDocument(session_id="")
    calls: dict[str, ToolCall] = {}
    for record in read(run_dir):
        origin = record.event.origin
        time = origin.at if isinstance(origin, Origin) and origin.at else format_time(record.time)
        _add(document, calls, event=record.event, time=time)
    document.message_count = len(document.messages)
    return document


def write_session(run_dir: Path, session: bytes) -> None:
    """Write the session of a run beside its journal as `<run id>.json`, and replace an older one atomically.

    Raises:
        InfrastructureFault: The session could not be written.
    """
    _write(run_dir / session_name(run_dir.name), session)


def _write(path: Path, session: bytes) -> None:
    try:
        replace_file(path, session)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(path)!r}: {exc.strerror}; {next_step(exc)}") from exc


def _add(document: SessionDocument, calls: dict[str, ToolCall], *, event: Event, time: str) -> None:
    match event:
        case JournalOpened():
            document.session_id = document.run_id = event.run_id
            document.started_at = time
        case JobCreated():
            document.session_id = event.session_id
            document.model, document.workspace = event.model, event.workspace
        case MessageSent() if not is_only_results(event.content):
            document.messages.append(Message(timestamp=time, role="user", content=event.content))
        case ModelReplied():
            document.messages.append(Message(timestamp=time, role="assistant", content=event.content))
        case ToolCalled():
            calls[event.call_id] = call = _call(event, time)
            document.messages.append(call)
        case ToolReturned() if event.call_id in calls:
            _return(calls.pop(event.call_id), event)
        case JobEnded():
            document.ended_at = time
            document.outcome = Outcome(**{name: getattr(event, name) for name in Outcome.__struct_fields__})


def is_only_results(content: Any) -> bool:
    """Whether a message has only tool results, which the session shows with their calls."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(block, dict) and block.get("type") == "tool_result" for block in content)
    )


def _call(event: ToolCalled, time: str) -> ToolCall:
    return ToolCall(
        timestamp=time,
        call_id=event.call_id,
        tool=event.tool,
        parameters=event.arguments,
        reasoning=event.reasoning,
    )


def _return(call: ToolCall, event: ToolReturned) -> None:
    call.result = _shell_result(event.content) if event.tool == "shell" else event.content
    call.is_error = event.is_error
    call.duration_ms = event.duration_ms


def _shell_result(content: str) -> Any:
    try:
        result = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return content
    return result if isinstance(result, dict) and result.keys() >= _SHELL_KEYS else content

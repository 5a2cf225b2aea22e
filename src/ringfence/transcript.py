"""The text of a journal's events as people read them, for terminals and for pages.

An agent wrote most of it, and nothing here is escaped: what prints it escapes it.
"""

import re
import shlex
from datetime import datetime
from typing import Any

import msgspec

from ringfence.escape import safe_json
from ringfence.events import (
    ClientEnded,
    ClientStarted,
    CommandEnded,
    EgressClosed,
    EgressDecided,
    Event,
    JobCreated,
    JobEnded,
    JournalSealed,
    MessageSent,
    ModelAsked,
    ModelExchanged,
    ModelReplied,
    Origin,
    SessionImported,
    SessionKept,
    SessionLost,
    SessionResumed,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
    VerificationEnded,
)
from ringfence.frozen import frozen
from ringfence.journal import UnknownEvent

_MAX_FIELD = 200
_PLAIN = re.compile(r"[^\s\"=]+")
UNREACHABLE = 502
"""The status of a connection whose target cannot be reached."""


@frozen
class EventText:
    """An event as text."""

    clock: str
    """The time of day, as `14:05:59`; dashes where it is not known."""
    title: str
    """One line."""
    title_style: str
    """A style of rich, such as `bold cyan`."""
    body: str
    """Any number of lines."""
    body_style: str


def describe_event(event: Event, time: datetime | None) -> EventText:
    """The text of an event; of one that was read elsewhere with the time that it had there."""
    title, title_style, body, body_style = _parts(event)
    return EventText(_clock(event, time), f"{_whose(event)}{title}", title_style, body, body_style)


class ShellResult(msgspec.Struct):
    """The result of the shell tool."""

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool = False
    ended_by: str = "exit"

    @property
    def end_text(self) -> str:
        """How the command ended, as text."""
        return f"exit code {self.exit_code}" if self.ended_by == "exit" else f"ended by {self.ended_by}"


def shell_result(event: ToolReturned) -> ShellResult | None:
    """Decode the result of a shell; None for other tools and for errors."""
    if event.tool != "shell" or event.is_error:
        return None
    try:
        return msgspec.json.decode(event.content, type=ShellResult)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def decision_line(event: EgressDecided) -> str:
    """Format a decision of the proxy."""
    if event.allowed:
        method = "" if event.method == "CONNECT" else f"{event.method} "
        through = f", through {event.through}" if event.through else ""
        return f"{method}{event.host}:{event.port}{event.path}, by rule {event.rule!r}{through}"
    times = f" ({event.repeated} times by now)" if event.repeated > 1 else ""
    return f"refused: {event.reason}{times}"


def end_line(event: EgressClosed) -> str:
    """Format the end of a connection."""
    target = f"{event.host}:{event.port}"
    if event.status == UNREACHABLE:
        return f"{target} cannot be reached: {event.ended_by}"
    ended = "" if event.ended_by == "closed" else f", ended by {event.ended_by}"
    return (
        f"{target}: {event.sent_bytes:,} bytes out, {event.received_bytes:,} in, "
        f"{event.duration_ms / 1000:.2f} s{ended}"
    )


def model_request_line(event: ModelAsked) -> str:
    """Format a request for a model."""
    model = f" {event.model}" if event.model else ""
    stripped = f", without {', '.join(event.stripped)}" if event.stripped else ""
    refused = "" if event.allowed else f", refused: {event.reason}"
    return f"{event.exchange}: {event.method} {event.path}{model}{stripped}{refused}"


def model_response_line(event: ModelExchanged) -> str:
    """Format the response to a request for a model."""
    cost = "" if event.cost_usd is None else f", ${event.cost_usd:.4f}"
    ended = "" if event.ended_by == "closed" else f", ended by {event.ended_by}"
    spent = f"{_counted(event.usage.total, 'token')}{cost}"
    return f"{event.exchange}: {event.status}, {spent}, {event.duration_ms / 1000:.2f} s{ended}"


def _clock(event: Event, time: datetime | None) -> str:
    at = event.origin.at if isinstance(event.origin, Origin) else None
    if at is not None:
        try:
            time = datetime.fromisoformat(at).astimezone()
        except (ValueError, OverflowError):
            time = None
    return f"{time.astimezone():%H:%M:%S}" if time is not None else "--:--:--"


def _whose(event: Event) -> str:
    """The sub-agent that an event is of, if it is one's."""
    agent = event.origin.agent if isinstance(event.origin, Origin) else None
    return f"[{agent}] " if agent else ""


def _parts(event: Event) -> tuple[str, str, str, str]:
    """The title and the body of an event, each with its style."""
    match event:
        case JobCreated():
            named = (event.model, event.runtime, event.toolset, event.workspace)
            title = f"{event.name}  {' · '.join(each for each in named if each)}"
            continues = f"continues run {event.continues}\n" if event.continues else ""
            return title, "bold", continues + event.prompt, ""
        case MessageSent():
            return "user", "bold cyan", _content(event.content), ""
        case ModelReplied():
            return _reply_title(event), "bold green", _content(event.content), ""
        case ToolCalled():
            return event.tool, "bold yellow", _arguments(event), ""
        case ToolReturned():
            return _ended(event.tool, event.is_error, event.duration_ms), "yellow", _result(event), "dim"
        case _:
            return _housekeeping(event)


def _housekeeping(event: Event) -> tuple[str, str, str, str]:
    match event:
        case CommandEnded():
            title = _ended(shlex.join(event.argv), event.exit_code != 0, event.duration_ms)
            return title, "", event.stdout + event.stderr, "dim"
        case ClientStarted() | ClientEnded():
            return _client_title(event), "bold", getattr(event, "stderr", ""), "dim"
        case VerificationEnded():
            verdict = "passed" if event.passed else f"failed with exit code {event.exit_code}"
            return f"check {verdict}: {event.command}", "bold", event.output, "dim"
        case JobEnded():
            return f"{event.state}: {event.reason}", "bold", _spent(event), ""
        case SessionImported() | SessionResumed() | SessionKept() | SessionLost():
            title, body = _session(event)
            return title, "bold", body, "dim"
        case TranscriptNoted():
            return f"({event.kind})", "dim", event.text, ""
        case TranscriptDamaged():
            where = f" ({event.origin.file}:{event.origin.line})" if isinstance(event.origin, Origin) else ""
            return f"not read: {event.reason}{where}", "bold red", "", ""
        case ModelAsked() | ModelExchanged() | EgressDecided() | EgressClosed():
            return _outward(event), "dim", "", ""
        case JournalSealed():
            return "sealed", "dim", "", ""
        case _:
            fields = event.fields if isinstance(event, UnknownEvent) else msgspec.to_builtins(event)
            return f"{event.name}  {_fields(fields)}".rstrip(), "dim", "", ""


def _client_title(event: ClientStarted | ClientEnded) -> str:
    if isinstance(event, ClientStarted):
        return f"{event.client} {event.version or '(version not known)'} started"
    sent = f", after {', '.join(event.signals)}" if event.signals else ""
    return f"{event.client} ended: {event.ending}, exit code {event.exit_code}{sent}: {event.reason}"


def _session(event: SessionImported | SessionResumed | SessionKept | SessionLost) -> tuple[str, str]:
    """Title and body of what happened to a client's session."""
    match event:
        case SessionImported():
            title = f"imported from the {event.client} CLI {event.client_version}, session {event.session_id}"
            return title, _sources(event)
        case SessionResumed():
            how = "forked from that of run" if event.is_forked else "goes on from run"
            return f"session {event.session_id} {how} {event.run}", "\n".join(event.differences)
        case SessionKept():
            size = f"{_counted(event.files, 'file')}, {event.size_bytes} bytes"
            return f"session {event.session_id} kept: {size}", event.problem
        case SessionLost():
            return f"session {event.session_id} lost; it begins anew", event.reason


def _outward(event: ModelAsked | ModelExchanged | EgressDecided | EgressClosed) -> str:
    match event:
        case ModelAsked():
            return f"gateway: request {model_request_line(event)}"
        case ModelExchanged():
            return f"gateway: answer {model_response_line(event)}"
        case EgressDecided():
            return f"proxy: {decision_line(event)}"
        case EgressClosed():
            return f"proxy: {end_line(event)}"


def _sources(event: SessionImported) -> str:
    lines = [f"{file.path}  {file.size_bytes} bytes, SHA-256 {file.sha256}" for file in event.files]
    return "\n".join([*lines, "what follows proves what these files held, not that it happened"])


def _reply_title(event: ModelReplied) -> str:
    cost = "" if event.cost_usd is None else f" · ${event.cost_usd:.4f}"
    # What a client's reply used is told by the gateway's answer, not by the client.
    is_told = event.usage.total or not isinstance(event.origin, Origin)
    return f"agent  {event.model}" + (f" · {event.usage.total} tokens{cost}" if is_told else "")


def _ended(what: str, is_error: bool, duration_ms: float) -> str:
    after = f" after {duration_ms / 1000:.2f} s" if duration_ms else ""
    return f"{what} {'failed' if is_error else 'returned'}{after}"


def _spent(event: JobEnded) -> str:
    cost = "cost unknown" if event.cost_usd is None else f"${event.cost_usd:.4f}"
    return (
        f"{_counted(event.turns, 'turn')}, {_counted(event.tool_calls, 'tool call')}, "
        f"{_counted(event.usage.total, 'token')}, {cost}, {event.duration_s:.1f} s"
    )


def _result(event: ToolReturned) -> str:
    """A result, whole; that of a shell as its output and how it ended."""
    shell = shell_result(event)
    if shell is None:
        return event.content
    parts = [shell.stdout, f"stderr:\n{shell.stderr}" if shell.stderr else "", shell.end_text]
    return "\n".join(part.rstrip("\n") for part in parts if part)


def _arguments(event: ToolCalled) -> str:
    rest = {key: value for key, value in event.arguments.items() if key != "reasoning"}
    command = rest.pop("command", None)
    if command is None and isinstance(rest.get("cmd"), str):
        command = rest.pop("cmd")
    lines = [f"# {event.reasoning}"] if event.reasoning else []
    if isinstance(command, str):
        lines.append(f"$ {command}")
    lines += [
        f"{key}: {value if isinstance(value, str) else safe_json(value)}" for key, value in rest.items()
    ]
    return "\n".join(lines)


def _content(content: Any) -> str:
    """The text of a message in the Messages API's shape; tool calls and results have lines of their own."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(line for line in map(_block, blocks) if line)


def _block(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return str(block.get("text", ""))
    if kind == "thinking":
        return f"(thinking) {block.get('thinking', '')}"
    if kind in ("tool_use", "tool_result"):
        return ""
    return safe_json(block)


def _fields(fields: Any) -> str:
    """The fields of an event that are not empty, as `key=value`: objects, lists and texts with spaces as JSON."""
    if not isinstance(fields, dict):
        return _shortened(safe_json(fields))
    shown = {key: value for key, value in fields.items() if key not in ("event", "origin")}
    return " ".join(
        f"{key}={_shortened(_field(value))}"
        for key, value in shown.items()
        if value not in (None, "", [], {})
    )


def _field(value: Any) -> str:
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else safe_json(value)


def _shortened(text: str) -> str:
    cut = f"{text[:_MAX_FIELD]}… ({len(text)} characters; --json has all)"
    return text if len(text) <= _MAX_FIELD else cut


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

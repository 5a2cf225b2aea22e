"""A journal's events as people read them. Every text in it is escaped: an agent wrote most of it."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ringfence.cli.output import counted
from ringfence.cli.render.agent import shell_result
from ringfence.cli.render.egress import decision_line, end_line, model_request_line, model_response_line
from ringfence.escape import safe_json, visible
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
from ringfence.journal import UnknownEvent

if TYPE_CHECKING:
    from rich.console import Console

_MAX_FIELDS = 400
_INDENT = "    "


def print_event(console: "Console", event: Event, time: datetime | None) -> None:
    """Print an event as some lines of a transcript; one that was read elsewhere with the time it had there.

    On a terminal a title is cut to its line and a body is wrapped under its indent, so that no text of an
    agent begins at the left edge, where the titles stand. Elsewhere no line is cut or wrapped.
    """
    from rich.padding import Padding
    from rich.text import Text

    title, title_style, body, body_style = _parts(event)
    title = f"{_whose(event)}{title}"
    head = Text(_clock(event, time), style="dim")
    head.append(visible(title, one_line=True), style=title_style)
    lines = visible(body).rstrip("\n").split("\n") if body else []
    if console.is_terminal:
        console.print(head, no_wrap=True, overflow="ellipsis")
        if lines:
            console.print(Padding(Text("\n".join(lines), style=body_style, overflow="fold"), (0, 0, 0, 4)))
        return
    console.print(head, soft_wrap=True)
    for line in lines:
        console.print(Text(f"{_INDENT}{line}", style=body_style), soft_wrap=True)


def _clock(event: Event, time: datetime | None) -> str:
    at = event.origin.at if isinstance(event.origin, Origin) else None
    if at is not None:
        try:
            time = datetime.fromisoformat(at).astimezone()
        except (ValueError, OverflowError):
            time = None
    return f"{time.astimezone():%H:%M:%S}  " if time is not None else "--:--:--  "


def _whose(event: Event) -> str:
    """The sub-agent that an event is of, if it is one's."""
    agent = event.origin.agent if isinstance(event.origin, Origin) else None
    return f"[{agent}] " if agent else ""


def _parts(event: Event) -> tuple[str, str, str, str]:
    """Title and body of an event, each with its style."""
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
            title = _ended(safe_json(event.argv), event.exit_code != 0, event.duration_ms)
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
            size = f"{counted(event.files, 'file')}, {event.size_bytes} bytes"
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
        f"{counted(event.turns, 'turn')}, {counted(event.tool_calls, 'tool call')}, "
        f"{counted(event.usage.total, 'token')}, {cost}, {event.duration_s:.1f} s"
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
    if isinstance(fields, dict):
        fields = {key: value for key, value in fields.items() if key not in ("event", "origin")}
    text = safe_json(fields) if fields else ""
    return (
        text
        if len(text) <= _MAX_FIELDS
        else f"{text[:_MAX_FIELDS]}… ({len(text)} characters; --json has all)"
    )

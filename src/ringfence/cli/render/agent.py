"""Formats an agent's tool calls and results, and the notes of agent CLIs, as lines for people.

Long results are cut in the middle. The caller escapes the lines.
"""

import msgspec

from ringfence.escape import safe_json
from ringfence.events import (
    AgentAnswered,
    ModelReplied,
    PermissionDecided,
    SessionKept,
    SessionLost,
    SessionResumed,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
)
from ringfence.transcript import ShellResult, shell_result

Line = tuple[str, str]
"""A line and its style."""

CALL = "cyan"
"""Style of the action, as opposed to its reason."""
_HEAD, _TAIL = 4, 8
_COMMAND_LINES = 6
_ARGUMENT_CHARS = 120
_PARTIAL_CHARS = 4000
"""Characters kept of a line that is not complete yet."""


def call_lines(event: ToolCalled) -> list[Line]:
    """Format a tool call: its reason, if there is one, and then the action."""
    lines: list[Line] = [
        (f"  # {line}", "italic dim") for line in _lines(event.reasoning or "", head=2, tail=0)
    ]
    command = event.arguments.get("command")
    if isinstance(command, str):
        first, *more = _lines(command, head=_COMMAND_LINES, tail=0) or [""]
        return [
            *lines,
            (f"  $ {first}", CALL),
            *((f"    {line}", CALL) for line in more),
        ]
    return [*lines, (f"  > {event.tool}  {_arguments(event)}".rstrip(), CALL)]


def _arguments(event: ToolCalled) -> str:
    """The path or pattern of a Ringfence tool's call; otherwise all arguments, shortened."""
    for name in ("path", "pattern"):
        if isinstance(event.arguments.get(name), str):
            return str(event.arguments[name])
    rest = {name: value for name, value in event.arguments.items() if name != "reasoning"}
    text = msgspec.json.encode(rest).decode() if rest else ""
    return text if len(text) <= _ARGUMENT_CHARS else f"{text[:_ARGUMENT_CHARS]}..."


class StreamedOutput:
    """Selects the output to show of a running command: the first lines at once, and the last lines at its end."""

    def __init__(self) -> None:
        self._partial = {False: "", True: ""}
        self._printed = {False: 0, True: 0}
        self.latest = ""
        """The newest line, if it has not been printed."""

    @property
    def printed_count(self) -> int:
        """The number of lines that have been printed."""
        return sum(self._printed.values())

    def add(self, text: str, *, is_stderr: bool) -> list[Line]:
        """Add a piece of output; return the lines to print."""
        *lines, partial = (self._partial[is_stderr] + text).split("\n")
        self._partial[is_stderr] = partial[-_PARTIAL_CHARS:]
        left = max(0, _HEAD + _TAIL - self.printed_count)
        self._printed[is_stderr] += min(left, len(lines))
        hidden = next((line for line in reversed([*lines[left:], partial]) if line.strip()), "")
        self.latest = hidden.rpartition("\r")[2] or self.latest
        return [_output_line(line, is_stderr=is_stderr) for line in lines[:left]]

    def remaining_lines(self, shell: ShellResult) -> list[Line]:
        """The lines to print at the end of the command."""
        lines = []
        for is_stderr, text in ((False, shell.stdout), (True, shell.stderr)):
            remaining = text.strip("\n").split("\n")[self._printed[is_stderr] :] if text else []
            lines += [
                _output_line(line, is_stderr=is_stderr) for line in _lines("\n".join(remaining), head=0)
            ]
        return lines


def _output_line(line: str, *, is_stderr: bool) -> Line:
    return f"    {line.rstrip(chr(13)).rpartition(chr(13))[2]}", "yellow" if is_stderr else "dim"


def result_lines(event: ToolReturned, streamed: StreamedOutput | None = None) -> list[Line]:
    """Format a result; a shell's result as its output and how the command ended.

    Args:
        event: The result.
        streamed: The output that has been printed already, if any.
    """
    shell = shell_result(event)
    if shell is None:
        style = "red" if event.is_error else "dim"
        return [(f"    {line}", style) for line in _lines(event.content)]
    output = (
        [_output_line(line, is_stderr=False) for line in _lines(shell.stdout)]
        + [_output_line(line, is_stderr=True) for line in _lines(shell.stderr)]
        if streamed is None
        else streamed.remaining_lines(shell)
    )
    seconds = f"{event.duration_ms / 1000:.1f} s"
    if shell.exit_code == 0 and shell.ended_by == "exit":
        return [*output, (f"    exit code 0, {seconds}", "green dim")]
    return [*output, (f"    {shell.end_text}, {seconds}", "red")]


def _lines(text: str, *, head: int = _HEAD, tail: int = _TAIL) -> list[str]:
    """The lines of a text; only the first and the last ones if there are too many."""
    lines = text.strip("\n").split("\n") if text.strip("\n") else []
    if len(lines) <= head + tail + 1:
        return lines
    cut = f"... {len(lines) - head - tail} lines ..."
    return [*lines[:head], cut, *lines[len(lines) - tail :]]


def reply_texts(event: ModelReplied) -> list[tuple[str, bool]]:
    """The texts of an agent CLI's reply, each with whether it is thinking; none for a reply that was streamed."""
    if isinstance(event.origin, msgspec.UnsetType):
        return []
    texts = []
    for block in event.content:
        kind = block.get("type")
        text = block.get("thinking" if kind == "thinking" else "text")
        if kind in ("text", "thinking") and isinstance(text, str) and text:
            texts.append((text, kind == "thinking" or event.origin.agent is not None))
    return texts


def note_lines(event: TranscriptNoted) -> list[Line]:
    """Format an agent CLI's note if it has text; notes without text are in the record only."""
    return [(f"  agent CLI: {line}", "yellow") for line in event.text.strip().split("\n")[:1] if line]


def answer_lines(event: AgentAnswered) -> list[Line]:
    """Format a structured answer; a text answer was streamed."""
    if event.structured_output is None:
        return []
    return [(f"  answer: {safe_json(event.structured_output)}", "bold")]


def damage_lines(event: TranscriptDamaged) -> list[Line]:
    """Format a part of an agent CLI's output that could not be read."""
    where = "" if isinstance(event.origin, msgspec.UnsetType) else f" (line {event.origin.line})"
    return [(f"  agent CLI: not read{where}: {event.reason}", "yellow")]


def permission_lines(event: PermissionDecided) -> list[Line]:
    """Format a refused permission; a granted one is visible from the tool's result."""
    reason = f": {event.reason}" if event.reason else ""
    return [] if event.allowed else [(f"  {event.tool} was not permitted{reason}", "yellow")]


def resumed_lines(event: SessionResumed) -> list[Line]:
    """Format which session is resumed, and which settings differ."""
    how = "forks" if event.is_forked else "resumes"
    lines = [(f"  {how} the session of run {event.run}", "dim")]
    return [*lines, *((f"    {difference}", "yellow") for difference in event.differences)]


def lost_lines(event: SessionLost) -> list[Line]:
    """Format that the agent CLI did not find its session."""
    return [
        (f"  agent CLI: its session was not found, so it starts a new one: {event.reason}", "bold yellow")
    ]


def kept_lines(event: SessionKept) -> list[Line]:
    """Format that a session was saved only in part; a complete save is in the record only."""
    return [(f"  session: saved only in part: {event.problem}", "yellow")] if event.problem else []

"""What an agent said and did, as lines for a person: tool calls, results, and notes of an agent CLI.

Long results are cut in the middle. Nothing is escaped here.
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

Line = tuple[str, str]
"""A line and its style."""

CALL = "cyan"
"""Style of what is done, beside why."""
_HEAD, _TAIL = 4, 8
_COMMAND_LINES = 6
_ARGUMENT_CHARS = 120
_PARTIAL_CHARS = 4000
"""Kept of a line that has no end yet."""


class ShellResult(msgspec.Struct):
    """What a shell's result holds."""

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool = False
    ended_by: str = "exit"

    @property
    def how(self) -> str:
        """How it ended, in words."""
        return f"exit code {self.exit_code}" if self.ended_by == "exit" else f"ended by {self.ended_by}"


def call_lines(event: ToolCalled) -> list[Line]:
    """A call: the reason if there is one, and last what is done."""
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
    """What a call is about: the path or pattern of our own tools, else everything, short."""
    for name in ("path", "pattern"):
        if isinstance(event.arguments.get(name), str):
            return str(event.arguments[name])
    rest = {name: value for name, value in event.arguments.items() if name != "reasoning"}
    text = msgspec.json.encode(rest).decode() if rest else ""
    return text if len(text) <= _ARGUMENT_CHARS else f"{text[:_ARGUMENT_CHARS]}..."


class StreamedOutput:
    """The output of a command that runs: the first lines as they come, of the rest only the last at its end."""

    def __init__(self) -> None:
        self._partial = {False: "", True: ""}
        self._shown = {False: 0, True: 0}
        self.latest = ""
        """The newest line, if it was not shown."""

    @property
    def shown(self) -> int:
        """The number of lines that were shown."""
        return sum(self._shown.values())

    def take(self, text: str, *, is_stderr: bool) -> list[Line]:
        """Take the next piece; return the lines to show."""
        *lines, partial = (self._partial[is_stderr] + text).split("\n")
        self._partial[is_stderr] = partial[-_PARTIAL_CHARS:]
        left = max(0, _HEAD + _TAIL - self.shown)
        self._shown[is_stderr] += min(left, len(lines))
        hidden = next((line for line in reversed([*lines[left:], partial]) if line.strip()), "")
        self.latest = hidden.rpartition("\r")[2] or self.latest
        return [_output_line(line, is_stderr=is_stderr) for line in lines[:left]]

    def rest(self, shell: ShellResult) -> list[Line]:
        """The lines to show at the end of the command."""
        lines = []
        for is_stderr, text in ((False, shell.stdout), (True, shell.stderr)):
            remaining = text.strip("\n").split("\n")[self._shown[is_stderr] :] if text else []
            lines += [
                _output_line(line, is_stderr=is_stderr) for line in _lines("\n".join(remaining), head=0)
            ]
        return lines


def _output_line(line: str, *, is_stderr: bool) -> Line:
    return f"    {line.rstrip(chr(13)).rpartition(chr(13))[2]}", "yellow" if is_stderr else "dim"


def result_lines(event: ToolReturned, streamed: StreamedOutput | None = None) -> list[Line]:
    """A result; that of a shell as its output and how it ended.

    Args:
        event: The result.
        streamed: What was shown of the output already; None: nothing.
    """
    shell = shell_result(event)
    if shell is None:
        style = "red" if event.is_error else "dim"
        return [(f"    {line}", style) for line in _lines(event.content)]
    output = (
        [_output_line(line, is_stderr=False) for line in _lines(shell.stdout)]
        + [_output_line(line, is_stderr=True) for line in _lines(shell.stderr)]
        if streamed is None
        else streamed.rest(shell)
    )
    seconds = f"{event.duration_ms / 1000:.1f} s"
    if shell.exit_code == 0 and shell.ended_by == "exit":
        return [*output, (f"    exit code 0, {seconds}", "green dim")]
    return [*output, (f"    {shell.how}, {seconds}", "red")]


def shell_result(event: ToolReturned) -> ShellResult | None:
    """The result of a shell, unpacked; None if it is another tool's, or none."""
    if event.tool != "shell" or event.is_error:
        return None
    try:
        return msgspec.json.decode(event.content, type=ShellResult)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _lines(text: str, *, head: int = _HEAD, tail: int = _TAIL) -> list[str]:
    """The lines of a text; where there are more than wanted, the first and the last ones."""
    lines = text.strip("\n").split("\n") if text.strip("\n") else []
    if len(lines) <= head + tail + 1:
        return lines
    cut = f"... {len(lines) - head - tail} lines ..."
    return [*lines[:head], cut, *lines[len(lines) - tail :]]


def speech(event: ModelReplied) -> list[tuple[str, bool]]:
    """Texts of a client's reply, and of each whether it is thinking; none of a reply that was shown as it came."""
    if isinstance(event.origin, msgspec.UnsetType):
        return []
    found = []
    for block in event.content:
        kind = block.get("type")
        text = block.get("thinking" if kind == "thinking" else "text")
        if kind in ("text", "thinking") and isinstance(text, str) and text:
            found.append((text, kind == "thinking" or event.origin.agent is not None))
    return found


def note_lines(event: TranscriptNoted) -> list[Line]:
    """A note that says something to people; bookkeeping is in the record only."""
    return [(f"  client: {line}", "yellow") for line in event.text.strip().split("\n")[:1] if line]


def answer_lines(event: AgentAnswered) -> list[Line]:
    """An answer by a schema; a text was shown as it came."""
    if event.structured_output is None:
        return []
    return [(f"  answer: {safe_json(event.structured_output)}", "bold")]


def damage_lines(event: TranscriptDamaged) -> list[Line]:
    """What of its output could not be read."""
    where = "" if isinstance(event.origin, msgspec.UnsetType) else f" (line {event.origin.line})"
    return [(f"  client: not read{where}: {event.reason}", "yellow")]


def permission_lines(event: PermissionDecided) -> list[Line]:
    """A refusal of the host's; what it permits is seen by what comes of it."""
    reason = f": {event.reason}" if event.reason else ""
    return [] if event.allowed else [(f"  {event.tool} was not permitted{reason}", "yellow")]


def resumed_lines(event: SessionResumed) -> list[Line]:
    """Whose session is gone on with, and what is not as it was then."""
    how = "forks" if event.is_forked else "goes on with"
    lines = [(f"  {how} the session of run {event.run}", "dim")]
    return [*lines, *((f"    {difference}", "yellow") for difference in event.differences)]


def lost_lines(event: SessionLost) -> list[Line]:
    """A session that the client did not find."""
    return [(f"  client: its session is gone, it begins anew: {event.reason}", "bold yellow")]


def kept_lines(event: SessionKept) -> list[Line]:
    """A session that could not be kept whole; that it was kept is in the record only."""
    return [(f"  session: not all of it was kept: {event.problem}", "yellow")] if event.problem else []

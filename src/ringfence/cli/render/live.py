"""The live view of a run: the agent's text, each command with its result, and the usage against the limits.

It prints plain lines when the output is not a terminal. All text of an agent is escaped, and printed behind a mark or
an indent: only Ringfence's own lines begin at the left edge.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.cli.output import counted
from ringfence.cli.render.agent import (
    CALL,
    Line,
    StreamedOutput,
    answer_lines,
    call_lines,
    damage_lines,
    kept_lines,
    lost_lines,
    note_lines,
    permission_lines,
    reply_texts,
    result_lines,
    resumed_lines,
)
from ringfence.cli.render.egress import EgressView
from ringfence.cli.render.policy import merge_notes
from ringfence.escape import visible
from ringfence.events import (
    AgentAnswered,
    CheckpointCreated,
    ConversationCompacted,
    EgressClosed,
    EgressDecided,
    EngineCalled,
    Event,
    ForwardRefused,
    JobCreated,
    JobEnded,
    JobStarted,
    ModelExchanged,
    ModelReplied,
    ModelRetried,
    OutputStreamed,
    PermissionDecided,
    SandboxCreated,
    SecretExpiring,
    SessionKept,
    SessionLost,
    SessionResumed,
    TextStreamed,
    ThinkingStreamed,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
    VerificationEnded,
    VerificationStarted,
)
from ringfence.job.recorder import Used
from ringfence.sandbox.registry import is_fence

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from ringfence.runtime.limits import Limits

_LINE_CHARS = 400
_PARAGRAPH_CHARS = 2000
_CHECK_LINES = 10
_CHECK = "the check"
_TICK_S = 1.0
_SPEECH = {TextStreamed: "", ThinkingStreamed: "dim italic"}


class UsageMeter(Used):
    """Sums up a run's usage so far from its events, and formats it with its limits.

    Args:
        limits: The limits of the run.
    """

    def __init__(self, limits: "Limits") -> None:
        super().__init__()
        self._limits = limits
        self._started_at = time.monotonic()

    def line(self) -> str:
        """The usage in one line."""
        limits, cost = self._limits, "cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        parts = [
            f"turn {_of(self.turns, limits.turns)}",
            f"tokens {_of(self.usage.total, limits.tokens)}",
            cost + (f"/{limits.cost_usd:.2f}" if limits.cost_usd else ""),
            f"{time.monotonic() - self._started_at:.0f} s"
            + (f"/{limits.wall_clock_s:.0f}" if limits.wall_clock_s else ""),
        ]
        return "  " + "  ".join(parts)


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,}/{limit:,}"


class LiveView:
    """Prints events as they happen.

    Args:
        console: The console to print to.
        limits: The limits of the run.
    """

    def __init__(self, console: "Console", limits: "Limits") -> None:
        self._console = console
        self._speech = ""
        self._speech_style = ""
        self._calls: dict[str, ToolCalled] = {}
        self._running: dict[str, tuple[str, float]] = {}
        """Running commands with their start times, in the order of their start."""
        self._outputs: dict[str, StreamedOutput] = {}
        self._model_wait_start: float | None = None
        """When the run began to wait for the model; None if it does not wait."""
        self._status: Live | None = None
        self._last_call = ""
        self._is_enforcement_shown = False
        self._egress_view = EgressView()
        self._usage = UsageMeter(limits)
        self._is_streamed = False
        self._last_note: list[Line] = []

    async def show(self, event: Event) -> None:
        """Show one event.

        Raises:
            OSError: The output was closed.
        """
        self._end_status()
        if isinstance(event, TextStreamed | ThinkingStreamed):
            self._is_streamed = True
            self._model_wait_start = time.monotonic()
            self._say(event.text, _SPEECH[type(event)])
            return
        self._end_speech()
        render = _RENDERERS.get(type(event))
        for line, style in render(self, event) if render is not None else []:
            self._print(line, style)

    async def tick(self) -> None:
        """On a terminal, show the current activity and its duration, until cancelled."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        with suppress(OSError):  # the terminal was closed; the run continues
            try:
                while True:
                    await anyio.sleep(_TICK_S)
                    self._show_status()
            finally:
                self._end_status()

    def _show_status(self) -> None:
        from rich.live import Live
        from rich.text import Text

        line = self._status_line()
        if line is None:
            return
        shown = Text(visible(line, one_line=True), style="dim", no_wrap=True, overflow="ellipsis")
        if self._status is None:
            self._status = Live(console=self._console, auto_refresh=False, transient=True)
            self._status.start()
        self._status.update(shown, refresh=True)

    def _status_line(self) -> str | None:
        """The current activity and its duration; None if there is none."""
        if not self._running:
            if self._model_wait_start is None:
                return None
            return f"  waiting for the model {time.monotonic() - self._model_wait_start:.0f} s"
        (key, (command, since)), *others = self._running.items()
        more = f" (and {len(others)} more)" if others else ""
        latest = self._outputs[key].latest if key in self._outputs else ""
        tail = f"  | {latest.expandtabs(4)}" if latest else ""
        return f"  running {time.monotonic() - since:.0f} s{more}: {command.expandtabs(4)}{tail}"

    def _end_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _say(self, text: str, style: str) -> None:
        """Print the complete lines of the agent's text; the last line waits until it is complete."""
        if style != self._speech_style:
            self._end_speech()
            self._speech_style = style
        *lines, self._speech = (self._speech + text).split("\n")
        for line in lines:
            self._print_speech(line)
        while len(self._speech) > _PARAGRAPH_CHARS:
            self._print_speech(self._speech[:_PARAGRAPH_CHARS])
            self._speech = self._speech[_PARAGRAPH_CHARS:]

    def _end_speech(self) -> None:
        if self._speech.strip():
            self._print_speech(self._speech)
        self._speech = ""

    def _print_speech(self, line: str) -> None:
        from rich.text import Text

        shown = Text(visible(line.expandtabs(4), one_line=True), style=self._speech_style)
        parts = [shown]
        if self._console.is_terminal and shown:
            parts = list(shown.wrap(self._console, max(20, self._console.width - 2)))
        for part in parts:
            self._console.print(Text.assemble(("| ", "cyan"), part), soft_wrap=True)

    def _created(self, event: JobCreated) -> list[Line]:
        lines = [(f"run {event.job_id}  {event.model}", "bold")]
        if event.continues and event.runtime == "api":  # for an agent CLI, SessionResumed says more
            lines.append((f"  resumes the conversation of run {event.continues}", "dim"))
        return lines

    def _sandbox(self, event: SandboxCreated) -> list[Line]:
        fenced = is_fence(event.backend)
        where = event.backend if fenced else "NO FENCE (host)"
        weak = [name for name, how in event.enforced.items() if how != "kernel" and name != "disk"]
        tail = (
            f"; {', '.join(weak)} not enforced by the kernel"
            if weak and not self._is_enforcement_shown
            else ""
        )
        self._is_enforcement_shown = True
        network = f"network: {event.policy.get('network', 'unknown')}"
        line = f"  {event.purpose} sandbox: {where}, {network}, {event.started_in_ms:.0f} ms{tail}"
        lines = [(line, "dim" if fenced else "bold red")]
        if event.purpose == "agent":
            lines += [(f"    {note}", "dim") for note in merge_notes(event.policy.get("notes", []))]
            lines += [
                (f"    {line}", "dim")
                for key in ("forward", "engine", "egress")
                for line in event.policy.get(key, [])
            ]
        return lines

    def _checkpoint(self, event: CheckpointCreated) -> list[Line]:
        if event.when != "before":
            return []
        return [(f"  checkpoint of {counted(event.files, 'file')} in {event.duration_ms:.0f} ms", "dim")]

    def _expiring(self, event: SecretExpiring) -> list[Line]:
        return [(f"  secret {event.secret} expires at {event.expires_at}: {event.reason}", "bold yellow")]

    def _retried(self, event: ModelRetried) -> list[Line]:
        return [
            (f"  model: {event.reason}; retrying in {event.wait_s:.1f} s (attempt {event.attempt})", "yellow")
        ]

    def _compacted(self, event: ConversationCompacted) -> list[Line]:
        return [(f"  dropped {counted(event.dropped_results, 'old tool result')}: {event.reason}", "yellow")]

    def _started(self, _event: JobStarted) -> list[Line]:
        self._model_wait_start = time.monotonic()
        return []

    def _output(self, event: OutputStreamed) -> list[Line]:
        key = event.call_id or _CHECK
        return self._outputs.setdefault(key, StreamedOutput()).add(event.text, is_stderr=event.is_stderr)

    def _call(self, event: ToolCalled) -> list[Line]:
        self._calls[event.call_id] = event
        self._last_call = event.call_id
        lines = call_lines(event)
        action = next(line for line, style in lines if style == CALL)  # the reason comes before it
        self._running[event.call_id] = (action.strip(), time.monotonic())
        return lines

    def _result(self, event: ToolReturned) -> list[Line]:
        call = self._calls.pop(event.call_id, None)
        self._running.pop(event.call_id, None)
        self._model_wait_start = time.monotonic()
        lines = result_lines(event, self._outputs.pop(event.call_id, None))
        if call is not None and event.call_id != self._last_call:
            title, _ = call_lines(call)[-1]
            lines = [(f"  result of {title}", "cyan"), *lines]
        return lines

    def _check(self, event: VerificationStarted) -> list[Line]:
        self._running[_CHECK] = (event.command, time.monotonic())
        self._outputs.pop(_CHECK, None)
        return [(f"check: {event.command}", "bold")]

    def _verdict(self, event: VerificationEnded) -> list[Line]:
        self._running.pop(_CHECK, None)
        if event.passed:
            return [("  passed", "green"), *((f"    {caveat}", "dim") for caveat in event.caveats)]
        output = event.output.strip("\n").split("\n")
        shown = self._outputs[_CHECK].printed_count if _CHECK in self._outputs else 0
        tail = output[-_CHECK_LINES:] if len(output) > shown else []
        how = f"exit code {event.exit_code}" if event.ended_by == "exit" else f"ended by {event.ended_by}"
        return [*((f"    {line}", "dim") for line in tail), (f"  failed, {how}", "red")]

    def _replied(self, event: ModelReplied) -> list[Line]:
        if not self._is_streamed:
            for text, is_aside in reply_texts(event):
                self._say(text, _SPEECH[ThinkingStreamed if is_aside else TextStreamed])
                self._end_speech()
        self._is_streamed = False
        self._model_wait_start = None
        self._usage.take(event)
        return [(self._usage.line(), "dim")]

    def _noted(self, event: TranscriptNoted) -> list[Line]:
        """Print a repeated note once, because Codex reports twice why it ends."""
        lines = note_lines(event)
        is_new = lines != self._last_note
        self._last_note = lines or self._last_note
        return lines if is_new else []

    def _exchanged(self, event: ModelExchanged) -> list[Line]:
        self._usage.take(event)
        return []

    def _engine(self, event: EngineCalled) -> list[Line]:
        """Print calls that change something and refused calls; other reads are in the record only."""
        if not event.allowed:
            return [(f"  engine: refused: {event.reason or event.path}", "yellow")]
        if event.method != "POST" or event.action == "exec_resize":
            return []
        return [(f"  engine: {event.action} {(event.container or '')[:12]}", "dim")]

    def _unforwarded(self, event: ForwardRefused) -> list[Line]:
        return [(f"  forward {event.forward}: refused: {event.reason}", "yellow")]

    def _egress(self, event: EgressDecided | EgressClosed) -> list[Line]:
        return self._egress_view.lines(event)

    def _print(self, line: str, style: str) -> None:
        from rich.text import Text

        shown = visible(line.expandtabs(4), one_line=True)
        shown = shown if len(shown) <= _LINE_CHARS else f"{shown[:_LINE_CHARS]} ..."
        if self._console.is_terminal:
            self._console.print(Text(shown, style=style), no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(Text(shown, style=style), soft_wrap=True)

    def _ended(self, _event: JobEnded) -> list[Line]:
        self._running.clear()
        self._model_wait_start = None
        return []


_RENDERERS: Mapping[type[Event], Callable[[LiveView, Any], list[Line]]] = {
    JobCreated: LiveView._created,
    JobStarted: LiveView._started,
    OutputStreamed: LiveView._output,
    JobEnded: LiveView._ended,
    SandboxCreated: LiveView._sandbox,
    CheckpointCreated: LiveView._checkpoint,
    ModelRetried: LiveView._retried,
    SecretExpiring: LiveView._expiring,
    ModelReplied: LiveView._replied,
    ModelExchanged: LiveView._exchanged,
    PermissionDecided: lambda _, event: permission_lines(event),
    AgentAnswered: lambda _, event: answer_lines(event),
    SessionResumed: lambda _, event: resumed_lines(event),
    SessionLost: lambda _, event: lost_lines(event),
    SessionKept: lambda _, event: kept_lines(event),
    TranscriptNoted: LiveView._noted,
    TranscriptDamaged: lambda _, event: damage_lines(event),
    ConversationCompacted: LiveView._compacted,
    ToolCalled: LiveView._call,
    ToolReturned: LiveView._result,
    VerificationStarted: LiveView._check,
    VerificationEnded: LiveView._verdict,
    EngineCalled: LiveView._engine,
    ForwardRefused: LiveView._unforwarded,
    EgressDecided: LiveView._egress,
    EgressClosed: LiveView._egress,
}
"""The renderer of each event that is shown. Loosened settings are printed before the run starts."""

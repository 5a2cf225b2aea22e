"""The live view of a run: what the agent says, each command, its result, what is spent against the limits.

Plain lines when stdout is not a terminal. Everything an agent wrote is escaped first.
"""

import time
from typing import TYPE_CHECKING

from ringfence.cli.escape import visible
from ringfence.events import (
    CheckpointCreated,
    CommandEnded,
    ConversationCompacted,
    Event,
    JobCreated,
    ModelReplied,
    ModelRetried,
    PolicyLoosened,
    SandboxCreated,
    TextStreamed,
    ToolCalled,
    ToolReturned,
    VerificationEnded,
    VerificationStarted,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ringfence.runtime.limits import Limits

_RESULT_LINES = 6
_LINE_CHARS = 400


class LiveView:
    """Prints events as they come.

    Args:
        console: Where to.
        limits: What spending is shown against.
    """

    def __init__(self, console: "Console", limits: "Limits") -> None:
        self._console = console
        self._limits = limits
        self._began = time.monotonic()
        self._is_in_text = False
        self._turns = 0
        self._tokens = 0
        self._cost: float | None = 0.0

    async def show(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, TextStreamed):
            self._text(event.text)
            return
        self._end_text()
        for line, style in self._lines(event):
            self._print(line, style)

    def _lines(self, event: Event) -> list[tuple[str, str]]:
        match event:
            case JobCreated():
                return [(f"run {event.job_id}  {event.model}", "bold")]
            case PolicyLoosened():
                return [(f"! weaker than the default: {event.what} (by {event.by})", "bold red")]
            case SandboxCreated():
                return self._sandbox(event)
            case CheckpointCreated() if event.when == "before":
                return [(f"  checkpoint of {event.files} files in {event.duration_ms:.0f} ms", "dim")]
            case ModelRetried():
                return [
                    (
                        f"  model: {event.reason}; again in {event.wait_s:.1f} s (try {event.attempt})",
                        "yellow",
                    )
                ]
            case ModelReplied():
                return self._spent(event)
            case ConversationCompacted():
                return [(f"  dropped {event.dropped_results} old tool results: {event.reason}", "yellow")]
            case ToolCalled():
                return self._call(event)
            case ToolReturned():
                return self._result(event)
            case CommandEnded():
                return [(f"  {' '.join(event.argv)}: exit code {event.exit_code}", "dim")]
            case VerificationStarted():
                return [(f"check: {event.command}", "bold")]
            case VerificationEnded():
                return self._verdict(event)
            case _:
                return []

    def _sandbox(self, event: SandboxCreated) -> list[tuple[str, str]]:
        weak = [name for name, how in event.enforced.items() if how != "kernel" and name != "disk"]
        tail = f"; {', '.join(weak)} not enforced by the kernel" if weak else ""
        where = "NO FENCE (host)" if event.backend == "host" else event.backend
        style = "bold red" if event.backend == "host" else "dim"
        return [
            (f"  {event.purpose} sandbox: {where}, network none, {event.started_in_ms:.0f} ms{tail}", style)
        ]

    def _call(self, event: ToolCalled) -> list[tuple[str, str]]:
        lines = [(f"  # {event.reasoning}", "italic dim")] if event.reasoning else []
        arguments = event.arguments
        shown = arguments.get("command") or arguments.get("path") or arguments.get("pattern") or ""
        return [*lines, (f"> {event.tool}  {shown}", "cyan")]

    def _result(self, event: ToolReturned) -> list[tuple[str, str]]:
        lines = event.content.strip("\n").split("\n")
        shown = (
            lines
            if len(lines) <= _RESULT_LINES
            else [*lines[:2], f"... {len(lines) - 5} lines ...", *lines[-3:]]
        )
        style = "red" if event.is_error else "dim"
        return [(f"    {line}", style) for line in shown]

    def _verdict(self, event: VerificationEnded) -> list[tuple[str, str]]:
        if event.passed:
            return [("  passed", "green")]
        tail = event.output.strip("\n").split("\n")[-10:]
        return [*((f"    {line}", "dim") for line in tail), (f"  failed, exit code {event.exit_code}", "red")]

    def _spent(self, event: ModelReplied) -> list[tuple[str, str]]:
        self._turns += 1
        self._tokens += event.usage.total
        unknown = event.cost_usd is None or self._cost is None
        self._cost = None if unknown else (self._cost or 0.0) + (event.cost_usd or 0.0)
        parts = [
            f"turn {_of(self._turns, self._limits.turns)}",
            f"tokens {_of(self._tokens, self._limits.tokens)}",
        ]
        if self._cost is not None:
            limit = f"/{self._limits.cost_usd:.2f}" if self._limits.cost_usd else ""
            parts.append(f"${self._cost:.4f}{limit}")
        seconds = time.monotonic() - self._began
        limit_s = self._limits.wall_clock_s
        parts.append(f"{seconds:.0f} s" + (f"/{limit_s:.0f}" if limit_s else ""))
        return [("  " + "  ".join(parts), "dim")]

    def _text(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(visible(text)), end="", soft_wrap=True)
        self._is_in_text = True

    def _end_text(self) -> None:
        if self._is_in_text:
            self._console.print()
            self._is_in_text = False

    def _print(self, line: str, style: str) -> None:
        from rich.text import Text

        shown = visible(line, one_line=True)
        shown = shown if len(shown) <= _LINE_CHARS else f"{shown[:_LINE_CHARS]} ..."
        self._console.print(Text(shown, style=style), soft_wrap=True, highlight=False)


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,}/{limit:,}"

"""The recorder of a run: every event is redacted, written to the journal, counted, then shown."""

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ringfence.errors import RecordError
from ringfence.events import (
    AgentAnswered,
    Event,
    ModelExchanged,
    ModelReplied,
    OutputStreamed,
    TextStreamed,
    ThinkingStreamed,
    ToolCalled,
    Usage,
    WorkExported,
)
from ringfence.journal import Journal, read

if TYPE_CHECKING:
    from ringfence.secret import Redactor

View = Callable[[Event], Awaitable[None]]
"""Displays an event; called after the event is in the journal."""

Streamed = TextStreamed | ThinkingStreamed | OutputStreamed
"""Displays pieces of a text as they arrive, which are not kept in the journal."""

_VIEW_CLOSED = "stopped: nobody reads the output any more"


class Recorder:
    """Writes events before it shows them: `emit` returns when the event is in the journal and was shown.

    Args:
        journal: The run's journal.
        redactor: Removes secrets from every event first.
        view: Shows the events, if set. After its first exception it is not called again.
        on_view_error: Called once with a reason when the view has raised an exception.
        on_event: Called with each event that was written.
    """

    def __init__(
        self,
        journal: Journal,
        redactor: "Redactor",
        view: View | None,
        *,
        on_view_error: Callable[[str], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._on_event = on_event
        self._journal = journal
        self._redactor = redactor
        self._view = view
        self._on_view_error = on_view_error
        self._held: Streamed | None = None
        self.used = Used()
        self.tool_calls = 0
        self.final_text = ""
        self.structured_output: Any = None
        self.view_error: Exception | None = None
        """The exception that the view raised."""
        self.work: WorkExported | None = None

    async def emit(self, event: Event) -> None:
        """Record and show one event.

        Raises:
            InfrastructureFault: It cannot be written; the action that it reports must not happen then.
        """
        if isinstance(event, Streamed):
            await self._stream(event)
            return
        event = self._redactor.redact(event)
        await self._journal.emit(event)
        self._count(event)
        if self._on_event is not None:
            self._on_event(event)
        await self._show_held()
        await self._show(event)

    async def _stream(self, event: Streamed) -> None:
        """Show a piece of text; hold back an end that may be the beginning of a secret until the next piece."""
        replace = msgspec.structs.replace
        if self._held is not None and replace(self._held, text="") != replace(event, text=""):
            await self._show_held()
        earlier = self._held.text if self._held is not None else ""
        text = self._redactor.redact(earlier + event.text)
        shown = len(text) - self._redactor.partial_match(text)
        self._held = replace(event, text=text[shown:]) if shown < len(text) else None
        if shown:
            await self._show(replace(event, text=text[:shown]))

    async def _show_held(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await self._show(held)

    async def _show(self, event: Event) -> None:
        if self._view is None:
            return
        try:
            await self._view(event)
        except Exception as exc:  # noqa: BLE001 -- the caller's own code; recording continues without it
            self._view = None
            self.view_error = exc
            has_reader = not isinstance(exc, BrokenPipeError) and getattr(exc, "errno", None) != errno.EIO
            if self._on_view_error is not None:
                self._on_view_error(f"stopped: on_event raised {exc!r}" if has_reader else _VIEW_CLOSED)

    def _count(self, event: Event) -> None:
        self.used.take(event)
        if isinstance(event, WorkExported):
            self.work = event
        elif isinstance(event, ToolCalled):
            self.tool_calls += 1
        elif isinstance(event, AgentAnswered):
            self.final_text = event.final_text or self.final_text
            self.structured_output = event.structured_output
        elif isinstance(event, ModelReplied):
            self._keep_text(event)

    def _keep_text(self, event: ModelReplied) -> None:
        """Keep the agent's last message."""
        if not isinstance(event.origin, msgspec.UnsetType) and event.origin.agent is not None:
            return  # a sub-agent's message
        texts = [
            text
            for block in event.content
            if block.get("type") == "text" and isinstance(text := block.get("text"), str)
        ]
        self.final_text = "\n".join(texts) or self.final_text


class Used:
    """The usage of a run as counted by the gateway, which sees every request and response.

    A user's own agent may use a model without the gateway: then its replies are counted, as in records of 0.1.
    """

    def __init__(self) -> None:
        self._inside = _Sum()
        """Requests from inside."""
        self._loop = _Sum()
        """Requests of the runtime `api`."""
        self._replies = _Sum()
        """Replies of an agent in this process. Reports of a program inside are not counted."""
        self._turns: int | None = None

    @property
    def turns(self) -> int:
        """Requests of the agent that got a response."""
        return self._replies.count if self._turns is None else self._turns

    @property
    def usage(self) -> Usage:
        """Tokens."""
        return self._inside.usage + self._own.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None if some price is unknown."""
        costs = (self._inside.cost_usd, self._own.cost_usd)
        return None if None in costs else sum(cost or 0.0 for cost in costs)

    @property
    def known(self) -> tuple[int, float]:
        """Tokens, and US dollars as far as they are known."""
        return self.usage.total, self.cost_usd or 0.0

    @property
    def _own(self) -> "_Sum":
        return self._loop if self._loop.count else self._replies

    def take(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, ModelReplied) and isinstance(event.origin, msgspec.UnsetType):
            self._replies.add(event.usage, event.cost_usd)
        elif isinstance(event, ModelExchanged):
            if event.turn is not None:
                self._turns = max(self._turns or 0, event.turn)
            if event.usage.total:
                (self._inside if event.sandbox_id else self._loop).add(event.usage, event.cost_usd)


@dataclass
class _Sum:
    count: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0

    def add(self, usage: Usage, cost_usd: float | None) -> None:
        self.count += 1
        self.usage += usage
        unknown = cost_usd is None or self.cost_usd is None
        self.cost_usd = None if unknown else (self.cost_usd or 0.0) + (cost_usd or 0.0)


def spent_by(run: Path) -> tuple[int, float]:
    """Tokens and US dollars of a run, from as much of its record as can be read; zero without a record.

    Args:
        run: The run's directory.
    """
    used = Used()
    with suppress(RecordError):  # a run that died before it had a record, or one that was damaged since
        for record in read(run):
            used.take(record.event)
    return used.known

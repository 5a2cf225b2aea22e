"""What every event of a run goes through: secrets out, into the journal, counted, then shown."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ringfence.events import (
    AgentAnswered,
    Event,
    ModelReplied,
    OutputStreamed,
    TextStreamed,
    ThinkingStreamed,
    ToolCalled,
    WorkExported,
)
from ringfence.job.used import Used
from ringfence.journal import Journal
from ringfence.secret import Redactor

View = Callable[[Event], Awaitable[None]]
"""Shows an event to somebody; called after it is in the journal."""

Streamed = TextStreamed | ThinkingStreamed | OutputStreamed
"""Pieces of a text, shown as they come and not in the journal."""

VIEW_LOST = "stopped: nobody reads the output any more"


class Recorder:
    """Written before told: `emit` returns when the event is in the journal and was shown.

    Args:
        journal: The run's journal.
        redactor: Takes secrets out of every event first.
        view: Who is shown the events, if anybody.
        on_view_lost: Called with a reason, once, when the view's reader has left.
    """

    def __init__(
        self,
        journal: Journal,
        redactor: Redactor,
        view: View | None,
        *,
        on_view_lost: Callable[[str], None] | None = None,
    ) -> None:
        self._journal = journal
        self._redactor = redactor
        self._view = view
        self._on_view_lost = on_view_lost
        self._held: Streamed | None = None
        self.used = Used()
        self.tool_calls = 0
        self.final_text = ""
        self.structured_output: Any = None
        self.is_view_lost = False
        """Whether the view's reader has left."""
        self.work: WorkExported | None = None

    async def emit(self, event: Event) -> None:
        """Record and show one event.

        Raises:
            InfrastructureFault: It cannot be written; the act it tells of must not happen.
        """
        if isinstance(event, Streamed):
            await self._stream(event)
            return
        event = self._redactor.redact(event)
        await self._journal.emit(event)
        self._count(event)
        await self._let_go()
        await self._show(event)

    async def _stream(self, event: Streamed) -> None:
        """Show a piece of text, but for an end that may be the beginning of a secret: it waits for the next."""
        replace = msgspec.structs.replace
        if self._held is not None and replace(self._held, text="") != replace(event, text=""):
            await self._let_go()
        earlier = self._held.text if self._held is not None else ""
        text = self._redactor.redact(earlier + event.text)
        shown = len(text) - self._redactor.partial_match(text)
        self._held = replace(event, text=text[shown:]) if shown < len(text) else None
        if shown:
            await self._show(replace(event, text=text[:shown]))

    async def _let_go(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            await self._show(held)

    async def _show(self, event: Event) -> None:
        if self._view is None:
            return
        try:
            await self._view(event)
        except OSError:  # a pipe without a reader, a terminal that was closed, a full disk
            self._view = None
            self.is_view_lost = True
            if self._on_view_lost is not None:
                self._on_view_lost(VIEW_LOST)

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
            self._hear(event)

    def _hear(self, event: ModelReplied) -> None:
        """Keep the agent's last word."""
        if not isinstance(event.origin, msgspec.UnsetType) and event.origin.agent is not None:
            return  # a sub-agent's is not the agent's
        texts = [
            text
            for block in event.content
            if block.get("type") == "text" and isinstance(text := block.get("text"), str)
        ]
        self.final_text = "\n".join(texts) or self.final_text

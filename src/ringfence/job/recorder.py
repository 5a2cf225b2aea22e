"""What every event of a run goes through: secrets out, into the journal, counted, then shown."""

from collections.abc import Awaitable, Callable

from ringfence.events import Event, ModelReplied, ToolCalled, Usage
from ringfence.journal import Journal
from ringfence.secret import Redactor

View = Callable[[Event], Awaitable[None]]
"""Shows an event to somebody; called after it is in the journal."""


class Recorder:
    """Written before told: `emit` returns when the event is in the journal and was shown.

    Args:
        journal: The run's journal.
        redactor: Takes secrets out of every event first.
        view: Who is shown the events, if anybody.
    """

    def __init__(self, journal: Journal, redactor: Redactor, view: View | None) -> None:
        self._journal = journal
        self._redactor = redactor
        self._view = view
        self.turns = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.cost_usd: float | None = 0.0
        self.final_text = ""

    async def emit(self, event: Event) -> None:
        """Record and show one event.

        Raises:
            InfrastructureFault: It cannot be written; the act it tells of must not happen.
        """
        event = self._redactor.redact_event(event)
        await self._journal.emit(event)
        self._count(event)
        if self._view is not None:
            await self._view(event)

    def _count(self, event: Event) -> None:
        if isinstance(event, ToolCalled):
            self.tool_calls += 1
        elif isinstance(event, ModelReplied):
            self.turns += 1
            self.usage += event.usage
            unknown = event.cost_usd is None or self.cost_usd is None
            self.cost_usd = None if unknown else (self.cost_usd or 0.0) + (event.cost_usd or 0.0)
            texts = [block.get("text", "") for block in event.content if block.get("type") == "text"]
            self.final_text = "\n".join(texts) or self.final_text

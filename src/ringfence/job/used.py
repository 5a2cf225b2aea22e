"""What a run has used so far, as its events tell it."""

from contextlib import suppress
from pathlib import Path

import msgspec

from ringfence.errors import RecordError
from ringfence.events import Event, ModelExchanged, ModelReplied, Usage
from ringfence.journal import read


class Used:
    """Counts as the record does: of a client's replies only how many, of its tokens and cost what the gateway saw.

    Attributes:
        turns: Replies of the model.
        usage: Tokens.
        cost_usd: None: the price of some is unknown.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.usage = Usage()
        self.cost_usd: float | None = 0.0

    @property
    def known(self) -> tuple[int, float]:
        """Tokens, and US dollars as far as they are known."""
        return self.usage.total, self.cost_usd or 0.0

    def take(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, ModelReplied):
            self.turns += 1
            if isinstance(event.origin, msgspec.UnsetType):
                self._spend(event.usage, event.cost_usd)
        elif isinstance(event, ModelExchanged) and event.usage.total and _is_counted(event):
            self._spend(event.usage, event.cost_usd)

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        self.usage += usage
        unknown = cost_usd is None or self.cost_usd is None
        self.cost_usd = None if unknown else (self.cost_usd or 0.0) + (cost_usd or 0.0)


def _is_counted(event: ModelExchanged) -> bool:
    """What the agent's own loop asks is counted by the reply that it makes of it; of what a limit cut, it makes none."""
    return bool(event.sandbox_id) or event.ended_by == "limit"


def spent_by(run: Path) -> tuple[int, float]:
    """Tokens and US dollars of a run, by as much of its record as can be read; none where there is no record.

    Args:
        run: Its directory.
    """
    used = Used()
    with suppress(RecordError):  # a run that died before it had a record, or one that was damaged since
        for record in read(run):
            used.take(record.event)
    return used.known

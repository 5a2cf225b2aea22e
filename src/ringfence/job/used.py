"""What a run has used so far, as its events tell it."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ringfence.errors import RecordError
from ringfence.events import Event, ModelExchanged, ModelReplied, Usage
from ringfence.journal import read


class Used:
    """What the gateway counted, which sees every request and its answer, whoever asks and whatever comes of it.

    An agent of a user's own may have a model of its own instead: then its replies count, as they do in records of 0.1.
    """

    def __init__(self) -> None:
        self._inside = _Sum()
        """What was asked from inside."""
        self._loop = _Sum()
        """What our own loop asked."""
        self._replies = _Sum()
        """Replies of an agent of our process. What a program inside says of itself does not count."""
        self._turns: int | None = None

    @property
    def turns(self) -> int:
        """Requests of the agent that were answered."""
        return self._replies.count if self._turns is None else self._turns

    @property
    def usage(self) -> Usage:
        """Tokens."""
        return self._inside.usage + self._own.usage

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None: the price of some is unknown."""
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
    """Tokens and US dollars of a run, by as much of its record as can be read; none where there is no record.

    Args:
        run: Its directory.
    """
    used = Used()
    with suppress(RecordError):  # a run that died before it had a record, or one that was damaged since
        for record in read(run):
            used.take(record.event)
    return used.known

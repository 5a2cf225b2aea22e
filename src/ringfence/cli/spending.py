"""What a run has used so far, as its events tell it, against its limits."""

import time
from typing import TYPE_CHECKING

import msgspec

from ringfence.events import ModelExchanged, ModelReplied, Usage

if TYPE_CHECKING:
    from ringfence.runtime.limits import Limits


class Spending:
    """Counts as the record does: of a client's replies only how many, of its tokens and cost what the gateway saw.

    Args:
        limits: What it is shown against.
    """

    def __init__(self, limits: "Limits") -> None:
        self._limits = limits
        self._began = time.monotonic()
        self._turns = 0
        self._tokens = 0
        self._cost: float | None = 0.0

    def take(self, event: ModelReplied | ModelExchanged) -> None:
        """Count an event."""
        if isinstance(event, ModelReplied):
            self._turns += 1
            if isinstance(event.origin, msgspec.UnsetType):
                self._spend(event.usage, event.cost_usd)
        elif event.sandbox_id and event.usage.total:
            self._spend(event.usage, event.cost_usd)

    def _spend(self, usage: Usage, cost_usd: float | None) -> None:
        self._tokens += usage.total
        unknown = cost_usd is None or self._cost is None
        self._cost = None if unknown else (self._cost or 0.0) + (cost_usd or 0.0)

    def line(self) -> str:
        """All of it in a line."""
        limits, cost = self._limits, "cost unknown" if self._cost is None else f"${self._cost:.4f}"
        parts = [
            f"turn {_of(self._turns, limits.turns)}",
            f"tokens {_of(self._tokens, limits.tokens)}",
            cost + (f"/{limits.cost_usd:.2f}" if limits.cost_usd else ""),
            f"{time.monotonic() - self._began:.0f} s"
            + (f"/{limits.wall_clock_s:.0f}" if limits.wall_clock_s else ""),
        ]
        return "  " + "  ".join(parts)


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,}/{limit:,}"

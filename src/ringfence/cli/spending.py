"""What a run has used so far, as its events tell it, against its limits."""

import time
from typing import TYPE_CHECKING

from ringfence.job.used import Used

if TYPE_CHECKING:
    from ringfence.runtime.limits import Limits


class Spending(Used):
    """The same, against limits.

    Args:
        limits: What it is shown against.
    """

    def __init__(self, limits: "Limits") -> None:
        super().__init__()
        self._limits = limits
        self._began = time.monotonic()

    def line(self) -> str:
        """All of it in a line."""
        limits, cost = self._limits, "cost unknown" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        parts = [
            f"turn {_of(self.turns, limits.turns)}",
            f"tokens {_of(self.usage.total, limits.tokens)}",
            cost + (f"/{limits.cost_usd:.2f}" if limits.cost_usd else ""),
            f"{time.monotonic() - self._began:.0f} s"
            + (f"/{limits.wall_clock_s:.0f}" if limits.wall_clock_s else ""),
        ]
        return "  " + "  ".join(parts)


def _of(used: int, limit: int | None) -> str:
    return f"{used:,}" if limit is None else f"{used:,}/{limit:,}"

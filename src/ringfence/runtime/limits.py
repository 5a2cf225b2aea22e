"""Bounds on a run, kept outside of the agent: whatever it says, the next request or call is not made."""

import time
from collections.abc import Callable, Mapping

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from ringfence.config.arguments import Arguments
from ringfence.config.units import Seconds
from ringfence.errors import LimitReached
from ringfence.events import Usage
from ringfence.model.prices import Price, PriceList, is_client_alias

_RESOLVES_ALIASES = frozenset({"claude-cli", "claude-sdk"})


class Limits(Arguments):
    """What a run may use. None is no limit.

    Raises:
        UsageError: An argument is unknown, or its value does not fit.
    """

    turns: PositiveInt | None = 100
    """Replies of the model."""
    tool_calls: NonNegativeInt | None = 1000
    """Calls of tools."""
    tokens: PositiveInt | None = None
    """Of all requests together, cached ones included."""
    cost_usd: PositiveFloat | None = None
    """By the price table; refused for a model whose price is unknown."""
    wall_clock_s: Seconds | None = 3600.0
    """From the first request."""

    def check_price(
        self, model: str, prices: Mapping[str, Price] | None = None, *, runtime: str = "api"
    ) -> None:
        """See that a limit on cost can be kept for `model`.

        Raises:
            PolicyRefused: Its price is not known.
        """
        if self.cost_usd is not None:
            check_price_known(model, prices, runtime=runtime)


def check_price_known(model: str, prices: Mapping[str, Price] | None = None, *, runtime: str) -> None:
    """See that what a runtime asks of `model` can be priced.

    An alias of Claude Code (`sonnet`) passes for the runtimes that are Claude Code: which model it means is in the
    requests, and the gateway refuses one whose price it does not know.

    Raises:
        PolicyRefused: Its price is not known.
    """
    if runtime not in _RESOLVES_ALIASES or not is_client_alias(model):
        PriceList(prices).require(model)


class Meter:
    """Counts what a run uses and refuses what would go beyond its limits.

    A request is admitted while there is room; its prompt is not known to the meter, so the last one may go
    over by what its prompt takes. Its answer never does: `admit_request` bounds `max_tokens` by what is left.

    Args:
        limits: The bounds.
        model: Whose prices apply.
        prices: Beside or in place of those in the table.
        clock: Seconds that never go back.

    Raises:
        PolicyRefused: A limit on cost, and the price of `model` is not known.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        model: str,
        prices: Mapping[str, Price] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits.check_price(model, prices)
        self.limits = limits
        self.usage = Usage()
        self.turns = 0
        self.tool_calls = 0
        self._prices = PriceList(prices)
        self.cost_usd: float | None = self._prices.cost(model, Usage())
        """USD so far; None where the price is not known."""
        self._model = model
        self._clock = clock
        self._started = clock()

    def admit_request(self, max_tokens: int) -> int:
        """Ask for one more request.

        Returns:
            `max_tokens`, or as much of it as the limits on tokens and cost leave.

        Raises:
            LimitReached: There is no room for a request.
        """
        used: dict[str, float] = {
            "wall_clock_s": self._clock() - self._started,
            "turns": self.turns,
            "tokens": self.usage.total,
            "cost_usd": self.cost_usd or 0.0,
        }
        for name, amount in used.items():
            allowed = getattr(self.limits, name)
            if allowed is not None and amount >= allowed:
                raise LimitReached(name, allowed=allowed, used=amount)
        if self.limits.tokens is not None:
            max_tokens = min(max_tokens, self.limits.tokens - self.usage.total)
        return min(max_tokens, self._affordable_tokens(max_tokens))

    def _affordable_tokens(self, wanted: int) -> int:
        if self.limits.cost_usd is None:
            return wanted
        token_usd = self._prices.output_price(self._model)
        left = self.limits.cost_usd - (self.cost_usd or 0.0)
        affordable = int(left / token_usd) if token_usd else wanted
        if affordable < 1:
            raise LimitReached("cost_usd", allowed=self.limits.cost_usd, used=self.cost_usd or 0.0)
        return affordable

    def record_reply(self, usage: Usage) -> float | None:
        """Count a reply; return what it cost, None where the price is not known."""
        self.turns += 1
        self.usage += usage
        spent = self._prices.cost(self._model, usage)
        self.cost_usd = None if spent is None or self.cost_usd is None else self.cost_usd + spent
        return spent

    def grant_tool_calls(self, wanted: int) -> int:
        """Count the tool calls of a turn; return how many of them may be made, the first ones first."""
        allowed = self.limits.tool_calls
        granted = wanted if allowed is None else min(wanted, allowed - self.tool_calls)
        self.tool_calls += granted
        return granted

    def tool_calls_reached(self) -> LimitReached:
        """The error for a turn whose calls were not all granted."""
        return LimitReached("tool_calls", allowed=self.limits.tool_calls or 0, used=self.tool_calls)

"""Enforces the limits of a run outside of the agent: beyond a limit no request and no tool call is made."""

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
    """The limits of a run. None is no limit.

    Raises:
        UsageError: An argument is unknown, or its value is not valid.
    """

    turns: PositiveInt | None = 100
    """Number of replies of the model."""
    tool_calls: NonNegativeInt | None = 1000
    """Number of tool calls."""
    tokens: PositiveInt | None = None
    """Tokens of all requests together, including cached ones."""
    cost_usd: PositiveFloat | None = None
    """The cost by the price table; refused for a model whose price is unknown."""
    wall_clock_s: Seconds | None = 3600.0
    """The time since the start of the runtime."""

    def check_price(
        self, model: str, prices: Mapping[str, Price] | None = None, *, runtime: str = "api"
    ) -> None:
        """Check that a limit on cost can be enforced for `model`.

        Raises:
            PolicyRefused: Its price is unknown.
        """
        if self.cost_usd is not None:
            check_price_known(model, prices, runtime=runtime)


def check_price_known(model: str, prices: Mapping[str, Price] | None = None, *, runtime: str) -> None:
    """Check that the price of the requests of a runtime to `model` is known.

    An alias of Claude Code (`sonnet`) is accepted for runtimes that run Claude Code: their requests name the model, and
    the gateway refuses a model whose price it does not know.

    Raises:
        PolicyRefused: The price is unknown.
    """
    if runtime not in _RESOLVES_ALIASES or not is_client_alias(model):
        PriceList(prices).require(model)


class Meter:
    """Counts the usage of a run and enforces its limits.

    A request is admitted while no limit is reached. The meter does not know the request's prompt, so the prompt of the
    last one may exceed the limit. Its reply does not: `admit_request` reduces `max_tokens` to what is left.

    Args:
        limits: The limits.
        model: The model whose prices apply.
        prices: Prices in addition to those of the table, or in place of them.
        clock: Returns the seconds of a monotonic clock.

    Raises:
        PolicyRefused: There is a limit on cost, and the price of `model` is unknown.
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
        """The cost so far in USD; None if the price is unknown."""
        self._model = model
        self._clock = clock
        self._started = clock()

    def admit_request(self, max_tokens: int) -> int:
        """Admit one more request.

        Returns:
            `max_tokens`, or as much of it as the limits on tokens and cost leave.

        Raises:
            LimitReached: A limit is reached.
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
        """Count a reply; return its cost, or None if the price is unknown."""
        self.turns += 1
        self.usage += usage
        spent = self._prices.cost(self._model, usage)
        self.cost_usd = None if spent is None or self.cost_usd is None else self.cost_usd + spent
        return spent

    def grant_tool_calls(self, wanted: int) -> int:
        """Count the tool calls of a turn; return how many of them, from the first on, may be carried out."""
        allowed = self.limits.tool_calls
        granted = wanted if allowed is None else min(wanted, allowed - self.tool_calls)
        self.tool_calls += granted
        return granted

    def tool_calls_reached(self) -> LimitReached:
        """Return the error for a turn whose calls were not all granted."""
        return LimitReached("tool_calls", allowed=self.limits.tool_calls or 0, used=self.tool_calls)

"""Limits on a run's use of models, enforced while responses arrive, for any number of concurrent requests."""

from typing import Protocol

import anyio

from ringfence.errors import LimitReached
from ringfence.events import Usage


class Pricing(Protocol):
    """The prices of models."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of one response in USD; None if the price is not known."""

    def output_price(self, model: str) -> float | None:
        """Return the highest price of one output token in USD; None if the price is not known."""


class UnknownPrice(Exception):
    """There is a limit on cost, and the price of the model is not known."""


class Reserved(Exception):
    """The rest of the budget is reserved for responses in progress; enough may be free when one of them ends."""


class Budget:
    """Counts usage, and refuses requests that would exceed the limits.

    The most that a response may use is reserved for it until it ends, so that concurrent requests together cannot use
    more than is left. A prompt is only estimated before it is sent: one that alone costs more than is left is refused.
    The last request may exceed the limit by its prompt and by fees for the provider's tools, but never by the tokens
    of its response.

    A turn is a request that an API answered. Each request in progress holds one.

    Args:
        tokens: The limit for all requests together, including cached tokens; None: no limit.
        cost_usd: The limit on cost by `pricing`; None: no limit.
        pricing: The prices; None: no price is known.
        turns: The number of requests that may be answered; None: no limit.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        cost_usd: float | None = None,
        pricing: Pricing | None = None,
        turns: int | None = None,
    ) -> None:
        self.turns = turns
        self.used_turns = 0
        """Turns so far."""
        self.tokens = tokens
        self.cost_usd = cost_usd
        self._pricing = pricing
        self._used_tokens = 0
        self._used_usd = 0.0
        self._reservations: set[Reservation] = set()
        self._freed = anyio.Event()

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit on tokens or cost."""
        return self.tokens is not None or self.cost_usd is not None

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of `usage` in USD; None if the price is not known."""
        return self._pricing.cost(model, usage) if self._pricing is not None else None

    def charged_as(self, requested: str, responded: str) -> str:
        """Return the model whose price applies: the one that the response names, if its price is known."""
        return responded if responded and self._has_price(responded) else requested

    def check_charged(self, requested: str, responded: str) -> None:
        """Check that a response has a price.

        Raises:
            UnknownPrice: There is a limit on cost, and another model than requested responded, whose price is unknown.
        """
        if self.cost_usd is not None and responded not in ("", requested) and not self._has_price(responded):
            raise UnknownPrice

    def _has_price(self, model: str) -> bool:
        return self._pricing is not None and self._pricing.output_price(model) is not None

    def check(self) -> None:
        """Check that some of the budget is left.

        Raises:
            LimitReached: Nothing is left.
        """
        if self.tokens is not None and self._used_tokens >= self.tokens:
            raise LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        if self.cost_usd is not None and self._used_usd >= self.cost_usd:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)

    def left(self, model: str) -> int | None:
        """Return how many tokens a response of `model` may have; None: no limit.

        Raises:
            LimitReached: It may have none.
            UnknownPrice: There is a limit on cost, and the price is not known.
        """
        self.check()
        left = None if self.tokens is None else self.tokens - self._used_tokens
        if self.cost_usd is None:
            return left
        price = self._pricing.output_price(model) if self._pricing is not None else None
        if price is None:
            raise UnknownPrice
        affordable = int((self.cost_usd - self._used_usd) / price) if price else left
        if affordable is not None and affordable < 1:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)
        return affordable if left is None or affordable is None else min(left, affordable)

    def check_prompt(self, model: str, prompt: Usage) -> None:
        """Check that a prompt alone costs no more than is left; `prompt` is an estimate made before it is sent.

        Raises:
            LimitReached: It costs more; `used` is the sum that it would reach.
        """
        usd = self.cost(model, prompt) or 0.0
        if self.cost_usd is not None and self._used_usd + usd > self.cost_usd:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd + usd, is_next=True)

    def used_up(self) -> LimitReached:
        """Return the error for a remainder that is too small to use."""
        if self.tokens is not None:
            return LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        return LimitReached("cost_usd", allowed=self.cost_usd or 0.0, used=self._used_usd)

    def check_free(self, model: str, most: Usage) -> None:
        """Check that `most` is left beside what is reserved for others.

        Raises:
            Reserved: It is not.
        """
        if not self._reservations:
            return
        held_tokens = sum(each.held_tokens for each in self._reservations)
        if self.tokens is not None and self._used_tokens + held_tokens + most.total > self.tokens:
            raise Reserved
        usd = sum((each.held_usd for each in self._reservations), self.cost(model, most) or 0.0)
        if self.cost_usd is not None and self._used_usd + usd > self.cost_usd:
            raise Reserved

    def check_turn(self) -> None:
        """Check that a further turn is left.

        Raises:
            LimitReached: No turn is left.
            Reserved: Requests in progress hold all turns that are left.
        """
        held_turns = sum(reservation.is_turn for reservation in self._reservations)
        if self.turns is None or self.used_turns + held_turns < self.turns:
            return
        if self.used_turns >= self.turns:
            raise LimitReached("turns", allowed=self.turns, used=self.used_turns)
        raise Reserved

    async def wait_freed(self) -> None:
        """Wait until a reservation is released."""
        await self._freed.wait()

    def reserve(self, model: str, most: Usage | None = None, *, is_turn: bool = False) -> "Reservation":
        """Reserve `most` for a response of `model`, and a turn if it may count as one."""
        reservation = Reservation(self, model, most or Usage(), is_turn=is_turn)
        self._reservations.add(reservation)
        return reservation

    def release(self, reservation: "Reservation", *, is_answered: bool) -> int:
        """End a reservation; return the number of its turn, from 1, or 0 if it is not a turn or ended before."""
        if reservation not in self._reservations:
            return 0
        self._reservations.discard(reservation)
        self._freed.set()
        self._freed = anyio.Event()
        if not (is_answered and reservation.is_turn):
            return 0
        self.used_turns += 1
        return self.used_turns

    def add(self, tokens: int, usd: float) -> None:
        """Count usage; a negative value corrects an earlier one."""
        self._used_tokens += tokens
        self._used_usd += usd

    def reached(self, *, without_tokens: int, without_usd: float) -> LimitReached | None:
        """Return the limit that is exceeded even without the given part of the usage; None if there is none."""
        if self.tokens is not None and self._used_tokens - without_tokens > self.tokens:
            return LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        if self.cost_usd is not None and self._used_usd - without_usd > self.cost_usd:
            return LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)
        return None


class Reservation:
    """One response's share of the budget, which is reserved first and then counted as the response arrives.

    Args:
        budget: The budget.
        model: The requested model.
        most: The most that the response may use.
        is_turn: Whether it may count as a turn.
    """

    def __init__(self, budget: Budget, model: str, most: Usage, *, is_turn: bool) -> None:
        self._budget = budget
        self._requested = self._model = model
        self._usage = Usage()
        self._usd = 0.0
        self._most_tokens, self._most_usd = most.total, budget.cost(model, most) or 0.0
        self.is_turn = is_turn
        self.turn = 0
        """The number of the turn once it has ended; 0 if it is not a turn."""

    @property
    def held_tokens(self) -> int:
        """What is reserved beyond what was counted."""
        return max(0, self._most_tokens - self._usage.total)

    @property
    def held_usd(self) -> float:
        """What is reserved beyond what was counted."""
        return max(0.0, self._most_usd - self._usd)

    def update(self, usage: Usage, model: str = "") -> None:
        """Set the usage of the response so far, priced by the model that it names."""
        charged = self._budget.charged_as(self._requested, model)
        if (usage, charged) == (self._usage, self._model):
            return
        usd = self._budget.cost(charged, usage) or 0.0
        self._budget.add(usage.total - self._usage.total, usd - self._usd)
        self._usage, self._model, self._usd = usage, charged, usd

    def end(self, *, is_answered: bool = False) -> None:
        """Release the reservation; counted usage remains. May be called more than once.

        Args:
            is_answered: Whether the request was answered, and so counts as a turn if it may.
        """
        self.turn = self._budget.release(self, is_answered=is_answered) or self.turn

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit that it may exceed."""
        return self._budget.is_bounded

    def reached(self) -> LimitReached | None:
        """Return the limit that the response exceeded by its own tokens rather than by its prompt; None if none."""
        if not self._budget.is_bounded:
            return None
        prompt = Usage(
            input_tokens=self._usage.input_tokens,
            cache_creation_input_tokens=self._usage.cache_creation_input_tokens,
            cache_read_input_tokens=self._usage.cache_read_input_tokens,
            cache_creation_1h_input_tokens=self._usage.cache_creation_1h_input_tokens,
        )
        usd = self._budget.cost(self._model, prompt) or 0.0
        return self._budget.reached(without_tokens=prompt.total, without_usd=usd)

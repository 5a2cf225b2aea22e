"""Limits on what a run may use of models, enforced while responses still arrive, for any number of them at once."""

from typing import Protocol

import anyio

from ringfence.errors import LimitReached
from ringfence.events import Usage


class Pricing(Protocol):
    """The prices of models."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """USD for one response; None if the price is not known."""

    def output_price(self, model: str) -> float | None:
        """USD for one token of a response at the highest rate; None if the price is not known."""


class UnknownPrice(Exception):
    """There is a limit on cost, and the price of the model is not known."""


class Reserved(Exception):
    """What is left is reserved for responses that still arrive; when one of them ends there may be enough."""


class Budget:
    """Counts usage, and refuses what would exceed the limits.

    The most that a response may use is reserved for it until it ends, so that any number of requests at once uses no
    more than is left. A prompt is only estimated before it is sent: one that alone costs more than is left is refused;
    the last one may exceed the limit by its prompt, and by fees for what the provider does meanwhile, but never by the
    tokens of its response.

    A turn is a request that an API answered. Requests in progress hold one each.

    Args:
        tokens: Of all requests together, cached ones included; None: no limit.
        cost_usd: By `pricing`; None: no limit.
        pricing: The prices; None: none is known.
        turns: Requests that may be answered; None: no limit.
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
        """USD; None if the price is not known."""
        return self._pricing.cost(model, usage) if self._pricing is not None else None

    def charged_as(self, requested: str, responded: str) -> str:
        """The name of the model whose price counts: the one in the response, if its price is known."""
        return responded if responded and self._has_price(responded) else requested

    def check_charged(self, requested: str, responded: str) -> None:
        """Check that a response has a price.

        Raises:
            UnknownPrice: There is a limit on cost, and another model than requested answered, whose price is unknown.
        """
        if self.cost_usd is not None and responded not in ("", requested) and not self._has_price(responded):
            raise UnknownPrice

    def _has_price(self, model: str) -> bool:
        return self._pricing is not None and self._pricing.output_price(model) is not None

    def check(self) -> None:
        """Check that anything is left.

        Raises:
            LimitReached: Nothing is.
        """
        if self.tokens is not None and self._used_tokens >= self.tokens:
            raise LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        if self.cost_usd is not None and self._used_usd >= self.cost_usd:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)

    def left(self, model: str) -> int | None:
        """How many tokens a response of `model` may have; None: no limit.

        Raises:
            LimitReached: None at all.
            UnknownPrice: The price is needed, and not known.
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
            LimitReached: It costs more; `used` is the sum it would reach.
        """
        usd = self.cost(model, prompt) or 0.0
        if self.cost_usd is not None and self._used_usd + usd > self.cost_usd:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd + usd, is_next=True)

    def used_up(self) -> LimitReached:
        """The error for a remainder that is too small to use."""
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
            LimitReached: None is.
            Reserved: All that are left are in progress.
        """
        held_turns = sum(each.is_turn for each in self._reservations)
        if self.turns is None or self.used_turns + held_turns < self.turns:
            return
        if self.used_turns >= self.turns:
            raise LimitReached("turns", allowed=self.turns, used=self.used_turns)
        raise Reserved

    async def wait_freed(self) -> None:
        """Wait until a reservation is released."""
        await self._freed.wait()

    def reserve(self, model: str, most: Usage | None = None, *, is_turn: bool = False) -> "Reservation":
        """Reserve `most` for a response of `model`, and a turn if it may be one, and count its usage from now on."""
        reservation = Reservation(self, model, most or Usage(), is_turn=is_turn)
        self._reservations.add(reservation)
        return reservation

    def release(self, reservation: "Reservation", *, is_answered: bool) -> int:
        """End a reservation; return the number of its turn, from 1, or 0 if it was none or has ended already."""
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
        """The limit that is exceeded without a given part of the usage; None if none is."""
        if self.tokens is not None and self._used_tokens - without_tokens > self.tokens:
            return LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        if self.cost_usd is not None and self._used_usd - without_usd > self.cost_usd:
            return LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)
        return None


class Reservation:
    """One response's share of the budget: reserved first, then counted as it arrives.

    Args:
        budget: Whose share.
        model: The model that is requested.
        most: The most that the response may use.
        is_turn: Whether it may be a turn.
    """

    def __init__(self, budget: Budget, model: str, most: Usage, *, is_turn: bool) -> None:
        self._budget = budget
        self._requested = self._model = model
        self._usage = Usage()
        self._usd = 0.0
        self._most_tokens, self._most_usd = most.total, budget.cost(model, most) or 0.0
        self.is_turn = is_turn
        self.turn = 0
        """The number of the turn, once it has ended; 0: it was none."""

    @property
    def held_tokens(self) -> int:
        """What is reserved beyond what was counted."""
        return max(0, self._most_tokens - self._usage.total)

    @property
    def held_usd(self) -> float:
        """What is reserved beyond what was counted."""
        return max(0.0, self._most_usd - self._usd)

    def update(self, usage: Usage, model: str = "") -> None:
        """Count what the response has used so far, by the model that it names."""
        charged = self._budget.charged_as(self._requested, model)
        if (usage, charged) == (self._usage, self._model):
            return
        usd = self._budget.cost(charged, usage) or 0.0
        self._budget.add(usage.total - self._usage.total, usd - self._usd)
        self._usage, self._model, self._usd = usage, charged, usd

    def end(self, *, is_answered: bool = False) -> None:
        """Release what is reserved; what was counted stays. May be called more than once.

        Args:
            is_answered: Whether it counts as a turn, if it may be one.
        """
        self.turn = self._budget.release(self, is_answered=is_answered) or self.turn

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit that it may exceed."""
        return self._budget.is_bounded

    def reached(self) -> LimitReached | None:
        """The limit that the response has exceeded, by its own tokens and not by its prompt."""
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

"""What a run may use of models, counted while answers still come: whoever asks, and however many at once."""

from typing import Protocol

import anyio

from ringfence.errors import LimitReached
from ringfence.events import Usage


class Pricing(Protocol):
    """What tokens cost."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """USD for one answer; None if the price is not known."""

    def output_price(self, model: str) -> float | None:
        """USD for one token of an answer, where it is dearest; None if the price is not known."""


class UnknownPrice(Exception):
    """A bound on cost, and a model whose cost is not known."""


class Taken(Exception):
    """What is left is held for answers that still come; once one of them is over there may be enough."""


class Budget:
    """Counts, and refuses what would go beyond.

    A request is admitted while there is room, and what its answer may have at most is held for it until that is over:
    however many are asked at once, together they have no more than is left. Its prompt is only estimated before it is
    sent: one that by itself costs more than is left is refused, and the last one may go over by what its prompt takes,
    and by fees for what the provider does meanwhile; the tokens of its answer never do.

    A turn is a request that an API answered; while others are being answered, no more are admitted than turns are left.

    Args:
        tokens: Of all requests together, cached ones included; None is no limit.
        cost_usd: By `pricing`; None is no limit.
        pricing: What tokens cost; None: nothing is known of that.
        turns: Requests that may be answered; None is no limit.
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
        """So far."""
        self.tokens = tokens
        self.cost_usd = cost_usd
        self._pricing = pricing
        self._used_tokens = 0
        self._used_usd = 0.0
        self._held_tokens = 0
        self._held_usd = 0.0
        self._held_turns = 0
        self._holders = 0
        self._freed = anyio.Event()

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit at all."""
        return self.tokens is not None or self.cost_usd is not None

    def cost(self, model: str, usage: Usage) -> float | None:
        """USD; None if the price is not known."""
        return self._pricing.cost(model, usage) if self._pricing is not None else None

    def charged_as(self, asked: str, replied: str) -> str:
        """Which of two names of a model has its price: the one in the reply, where it is known."""
        return replied if replied and self._has_price(replied) else asked

    def check_charged(self, asked: str, replied: str) -> None:
        """See that a reply can be priced.

        Raises:
            UnknownPrice: There is a limit on cost, and another model answered than was asked, without a known price.
        """
        if self.cost_usd is not None and replied not in ("", asked) and not self._has_price(replied):
            raise UnknownPrice

    def _has_price(self, model: str) -> bool:
        return self._pricing is not None and self._pricing.output_price(model) is not None

    def check(self) -> None:
        """See that there is room for a request.

        Raises:
            LimitReached: There is none.
        """
        if self.tokens is not None and self._used_tokens >= self.tokens:
            raise LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        if self.cost_usd is not None and self._used_usd >= self.cost_usd:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)

    def left(self, model: str) -> int | None:
        """How many tokens an answer of `model` may have; None is no limit.

        Raises:
            LimitReached: None at all.
            UnknownPrice: It cannot be said.
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
        """See that a prompt by itself costs no more than is left; `prompt` is an estimate from before it is sent.

        Raises:
            LimitReached: It does; `used` is what it would come to.
        """
        usd = self.cost(model, prompt) or 0.0
        if self.cost_usd is not None and self._used_usd + usd > self.cost_usd:
            raise LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd + usd, is_next=True)

    def used_up(self) -> LimitReached:
        """The error for a rest that is too small to be of use."""
        if self.tokens is not None:
            return LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        return LimitReached("cost_usd", allowed=self.cost_usd or 0.0, used=self._used_usd)

    def check_free(self, model: str, most: Usage) -> None:
        """See that `most` is left beside what is held for others.

        Raises:
            Taken: It is not.
        """
        if self._holders == 0:
            return
        if self.tokens is not None and self._used_tokens + self._held_tokens + most.total > self.tokens:
            raise Taken
        usd = self.cost(model, most) or 0.0
        if self.cost_usd is not None and self._used_usd + self._held_usd + usd > self.cost_usd:
            raise Taken

    def check_turn(self) -> None:
        """See that a further turn is left.

        Raises:
            LimitReached: None is.
            Taken: As many as are left are being answered.
        """
        if self.turns is None or self.used_turns + self._held_turns < self.turns:
            return
        if self.used_turns >= self.turns:
            raise LimitReached("turns", allowed=self.turns, used=self.used_turns)
        raise Taken

    async def wait_freed(self) -> None:
        """Wait until something that was held is free."""
        await self._freed.wait()

    def begin(self, model: str, most: Usage | None = None, *, is_turn: bool = False) -> "Charge":
        """Count an answer of `model` from now on, and hold `most`, and a turn if it may be one, until its end."""
        return Charge(self, model, most or Usage(), is_turn=is_turn)

    def hold_turn(self) -> None:
        """Hold a turn for an answer that may be one."""
        self._held_turns += 1

    def end_turn(self, *, is_counted: bool) -> int:
        """Hold a turn no more; which one it was, from 1, if it was answered, else 0."""
        self._held_turns -= 1
        self.used_turns += is_counted
        return self.used_turns if is_counted else 0

    def hold(self, tokens: int, usd: float, holders: int) -> None:
        """Change what is held, and by how many."""
        self._held_tokens += tokens
        self._held_usd += usd
        self._holders += holders
        if holders < 0:
            self._freed.set()
            self._freed = anyio.Event()

    def add(self, tokens: int, usd: float) -> None:
        """Count; less than nothing takes back what was counted too much."""
        self._used_tokens += tokens
        self._used_usd += usd

    def reached(self, *, without_tokens: int, without_usd: float) -> LimitReached | None:
        """The limit that is passed, a part of what was counted left out; None if none is."""
        if self.tokens is not None and self._used_tokens - without_tokens > self.tokens:
            return LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        if self.cost_usd is not None and self._used_usd - without_usd > self.cost_usd:
            return LimitReached("cost_usd", allowed=self.cost_usd, used=self._used_usd)
        return None


class Charge:
    """One answer's part of what was used."""

    def __init__(self, budget: Budget, model: str, most: Usage, *, is_turn: bool) -> None:
        self._budget = budget
        self._asked = self._model = model
        self._tokens = 0
        self._usd = 0.0
        self._usage = Usage()
        self._most = (most.total, budget.cost(model, most) or 0.0)
        self._held = self._most
        self._is_over = False
        self._may_be_turn = is_turn
        self.turn = 0
        """Which turn it was, once it is over; 0: none."""
        budget.hold(*self._held, 1)
        if is_turn:
            budget.hold_turn()

    def update(self, usage: Usage, model: str = "") -> None:
        """Say what the answer has taken so far, and which model it names."""
        charged = self._budget.charged_as(self._asked, model)
        if (usage, charged) == (self._usage, self._model):
            return
        self._usage, self._model = usage, charged
        usd = self._budget.cost(self._model, usage) or 0.0
        self._budget.add(usage.total - self._tokens, usd - self._usd)
        self._tokens, self._usd = usage.total, usd
        if not self._is_over:
            self._hold(max(0, self._most[0] - self._tokens), max(0.0, self._most[1] - usd))

    def end(self, *, is_answered: bool = False) -> None:
        """Hold nothing for it any more; what was counted stays.

        Args:
            is_answered: Whether it is a turn, if it may be one.
        """
        if self._is_over:
            return
        self._is_over = True
        if self._may_be_turn:
            self.turn = self._budget.end_turn(is_counted=is_answered)
        self._hold(0, 0.0, holders=-1)

    def _hold(self, tokens: int, usd: float, *, holders: int = 0) -> None:
        self._budget.hold(tokens - self._held[0], usd - self._held[1], holders)
        self._held = (tokens, usd)

    @property
    def is_bounded(self) -> bool:
        """Whether there is a limit that it may pass."""
        return self._budget.is_bounded

    def reached(self) -> LimitReached | None:
        """The limit that the answer has passed, by what it says and not by its prompt."""
        if self._budget.tokens is None and self._budget.cost_usd is None:
            return None
        prompt = Usage(
            input_tokens=self._usage.input_tokens,
            cache_creation_input_tokens=self._usage.cache_creation_input_tokens,
            cache_read_input_tokens=self._usage.cache_read_input_tokens,
            cache_creation_1h_input_tokens=self._usage.cache_creation_1h_input_tokens,
        )
        usd = self._budget.cost(self._model, prompt) or 0.0
        return self._budget.reached(without_tokens=prompt.total, without_usd=usd)

"""What a run may use of models, counted while answers still come: whoever asks, and however many at once."""

from typing import Protocol

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


class Budget:
    """Counts, and refuses what would go beyond.

    A request is admitted while there is room. Its prompt is not known before it was sent, so the last one may go over by
    what its prompt takes; its answer never does.

    Args:
        tokens: Of all requests together, cached ones included; None is no limit.
        cost_usd: By `pricing`; None is no limit.
        pricing: What tokens cost; None: nothing is known of that.
    """

    def __init__(
        self, *, tokens: int | None = None, cost_usd: float | None = None, pricing: Pricing | None = None
    ) -> None:
        self.tokens = tokens
        self.cost_usd = cost_usd
        self._pricing = pricing
        self._used_tokens = 0
        self._used_usd = 0.0

    def cost(self, model: str, usage: Usage) -> float | None:
        """USD; None if the price is not known."""
        return self._pricing.cost(model, usage) if self._pricing is not None else None

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

    def used_up(self) -> LimitReached:
        """The error for a rest that is too small to be of use."""
        if self.tokens is not None:
            return LimitReached("tokens", allowed=self.tokens, used=self._used_tokens)
        return LimitReached("cost_usd", allowed=self.cost_usd or 0.0, used=self._used_usd)

    def begin(self, model: str) -> "Charge":
        """Count an answer of `model` from now on."""
        return Charge(self, model)

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

    def __init__(self, budget: Budget, model: str) -> None:
        self._budget = budget
        self._model = model
        self._tokens = 0
        self._usd = 0.0
        self._usage = Usage()

    def update(self, usage: Usage) -> None:
        """Say what the answer has taken so far."""
        if usage == self._usage:
            return
        self._usage = usage
        usd = self._budget.cost(self._model, usage) or 0.0
        self._budget.add(usage.total - self._tokens, usd - self._usd)
        self._tokens, self._usd = usage.total, usd

    def reached(self) -> LimitReached | None:
        """The limit that the answer has passed, by what it says and not by its prompt."""
        if self._budget.tokens is None and self._budget.cost_usd is None:
            return None
        prompt = Usage(
            input_tokens=self._usage.input_tokens,
            cache_creation_input_tokens=self._usage.cache_creation_input_tokens,
            cache_read_input_tokens=self._usage.cache_read_input_tokens,
        )
        usd = self._budget.cost(self._model, prompt) or 0.0
        return self._budget.reached(without_tokens=prompt.total, without_usd=usd)

"""What tokens cost, and what providers do besides. An unknown model has no price, rather than a guessed one."""

import re
from collections.abc import Mapping

from ringfence.errors import PolicyRefused
from ringfence.events import Usage
from ringfence.model.price_table import CODE_EXECUTION_USD, PRICES, WEB_SEARCH_USD, Price

__all__ = ["PRICES", "Price", "PriceList", "cost", "is_client_alias", "price_of", "require_price"]

_DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_LARGE_CONTEXT = re.compile(r"\[1m\]$", re.IGNORECASE)
"""What Claude Code takes for a context of a million tokens; requests to the API name the model without it."""

_CLIENT_ALIASES = frozenset({"best", "fable", "haiku", "opus", "opusplan", "sonnet"})
"""Names that Claude Code 2.1.329 itself turns into those of models."""

_MILLION = 1_000_000


def price_of(model: str, overrides: Mapping[str, Price] | None = None) -> Price | None:
    """The price of `model`; of the undated name where the name ends in a date. None if neither is known.

    A suffix `[1m]` is left out, too. Nothing else is: `claude-fable-5-2` is another model than `claude-fable-5`.
    """
    table = {**PRICES, **(overrides or {})}
    name = _LARGE_CONTEXT.sub("", model)
    return table.get(model) or table.get(name) or table.get(_DATED.sub("", name))


def is_client_alias(model: str) -> bool:
    """Whether Claude Code replaces this name before it asks: which model it comes to, only the requests say."""
    return _LARGE_CONTEXT.sub("", model).lower() in _CLIENT_ALIASES


def cost(model: str, usage: Usage, overrides: Mapping[str, Price] | None = None) -> float | None:
    """USD for one reply, fees for tools of the provider included; None if the price is not known.

    Call it for each reply and add up: a sum of usages can cross a `long_prompt_above` that no reply crossed.
    """
    price = price_of(model, overrides)
    if price is None:
        return None
    prompt = usage.total - usage.output_tokens
    if price.long_prompt is not None and prompt > price.long_prompt_above:
        price = price.long_prompt
    written = usage.cache_creation_input_tokens
    written_1h = min(written, usage.cache_creation_1h_input_tokens)
    tokens = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + (written - written_1h) * price.cache_write_price
        + written_1h * price.cache_write_1h_price
        + usage.cache_read_input_tokens * price.cache_read_price
    ) / _MILLION
    fees = usage.web_search_requests * WEB_SEARCH_USD + usage.code_execution_containers * CODE_EXECUTION_USD
    return tokens + fees


class PriceList:
    """Prices for who counts without knowing the table.

    Args:
        overrides: Beside or in place of those in the table.
    """

    def __init__(self, overrides: Mapping[str, Price] | None = None) -> None:
        self._overrides = overrides

    def cost(self, model: str, usage: Usage) -> float | None:
        """As the function of that name."""
        return cost(model, usage, self._overrides)

    def output_price(self, model: str) -> float | None:
        """USD for one token of an answer, where it is dearest; None if the price is not known."""
        price = price_of(model, self._overrides)
        if price is None:
            return None
        return max(price.output, price.long_prompt.output if price.long_prompt else 0.0) / _MILLION


def require_price(model: str, overrides: Mapping[str, Price] | None = None) -> Price:
    """The price of `model`.

    Raises:
        PolicyRefused: It is not known, so a limit on cost could not be kept.
    """
    price = price_of(model, overrides)
    if price is None:
        raise PolicyRefused(
            f"a cost limit needs the price of {model!r}, which is not known (`ringfence config prices` lists those "
            "that are); give it under `prices:` in ~/.config/ringfence/ringfence.yaml, or limit tokens instead",
            rule="cost_limit_needs_price",
        )
    return price

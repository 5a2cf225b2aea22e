"""List prices of the models of Anthropic and OpenAI, and the cost of a reply.

Prices are in USD per million tokens, each with its source. A model whose price is unknown has none; none is guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ringfence.errors import PolicyRefused
from ringfence.events import Usage

_WEB_SEARCH_USD: Final = 10.0 / 1000
"""The fee for one web search, in addition to its tokens (Anthropic's pricing page, "Web search tool")."""

_CODE_EXECUTION_USD: Final = 0.05 * 5 / 60
"""The fee for one response with code executed by the provider: USD 0.05 per hour of a container, at least five minutes
(the same page, "Code execution tool"). The API reports neither how long it ran nor what of it was free."""

_CACHE_WRITE_FACTOR = 1.25
_CACHE_WRITE_1H_FACTOR = 2.0
_CACHE_READ_FACTOR = 0.1


@dataclass(frozen=True, kw_only=True)
class Price:
    """Price of one model, in USD per million tokens.

    Raises:
        ValueError: A number is below zero.
    """

    input: float
    output: float
    cache_write: float | None = None
    """The price of writing the cache that lasts 5 minutes, which ringfence uses. None: 1.25 times `input`."""
    cache_write_1h: float | None = None
    """The price of writing the cache that lasts an hour. None: twice `input`."""
    cache_read: float | None = None
    """None: 0.1 times `input`."""
    long_prompt_above: int = 0
    """Prompts with more tokens than this, cached ones included, cost `long_prompt`, and so does their output."""
    long_prompt: "Price | None" = None

    def __post_init__(self) -> None:
        given = (self.input, self.output, self.cache_write, self.cache_write_1h, self.cache_read)
        for number in given:
            if number is not None and not number >= 0.0:
                raise ValueError(f"{number!r} is not a price; write USD per million tokens, 0 or more")

    @property
    def cache_write_price(self) -> float:
        """USD per million tokens written to the cache."""
        return self.input * _CACHE_WRITE_FACTOR if self.cache_write is None else self.cache_write

    @property
    def cache_write_1h_price(self) -> float:
        """USD per million tokens written to the cache that lasts an hour."""
        return self.input * _CACHE_WRITE_1H_FACTOR if self.cache_write_1h is None else self.cache_write_1h

    @property
    def cache_read_price(self) -> float:
        """USD per million tokens read from the cache."""
        return self.input * _CACHE_READ_FACTOR if self.cache_read is None else self.cache_read


@dataclass(frozen=True)
class Source:
    """The source of a price."""

    place: str
    checked_on: str
    """The date of the source in ISO 8601; for a page without a date, the day on which it was looked up."""


@dataclass(frozen=True)
class ListedPrice:
    """One row of the table."""

    price: Price
    source: Source
    note: str = ""
    """Why the price differs from the present list price; empty if it does not."""


_CLAUDE = Source("platform.claude.com/docs/en/about-claude/pricing", "2026-10-24")
_FABLE_5_2 = Source(
    'docs.laozhang.ai/en/announcements/claude-fable-5-2-2026-11 ("Anthropic\'s list price"); '
    "github.com/archid21/rightsize/releases/tag/v0.10.2",
    "2026-11-10",
)

_FABLE_5 = Price(input=10.0, output=50.0)
_FABLE_5_1 = Price(input=10.0, output=50.0, cache_read=0.25)
_OPUS_4_5 = Price(input=5.0, output=25.0)
_OPUS_4 = Price(input=15.0, output=75.0)
_SONNET_4 = Price(input=3.0, output=15.0)

_ANTHROPIC: Mapping[str, Price] = {
    "claude-fable-5-1": _FABLE_5_1,
    "claude-mythos-5-1": _FABLE_5_1,
    "claude-fable-5": _FABLE_5,
    "claude-mythos-5": _FABLE_5,
    "claude-opus-5-5": Price(input=4.0, output=20.0, cache_read=0.2),
    "claude-opus-5": _OPUS_4_5,
    "claude-opus-4-8": _OPUS_4_5,
    "claude-opus-4-7": _OPUS_4_5,
    "claude-opus-4-6": _OPUS_4_5,
    "claude-opus-4-5": _OPUS_4_5,
    "claude-opus-4-1": _OPUS_4,
    "claude-opus-4-0": _OPUS_4,
    "claude-opus-4": _OPUS_4,
    "claude-sonnet-5-5": Price(input=2.0, output=10.0, cache_read=0.1),
    "claude-sonnet-5": Price(input=2.0, output=10.0),
    "claude-sonnet-4-6": _SONNET_4,
    "claude-sonnet-4-5": _SONNET_4,
    "claude-sonnet-4-0": _SONNET_4,
    "claude-sonnet-4": _SONNET_4,
    "claude-3-7-sonnet": _SONNET_4,
    "claude-haiku-5-5": Price(
        input=0.1, output=0.5, long_prompt_above=100_000, long_prompt=Price(input=0.5, output=2.5)
    ),
    "claude-haiku-4-5": Price(input=1.0, output=5.0),
    "claude-3-5-haiku": Price(input=0.8, output=4.0),
    "claude-3-haiku": Price(input=0.25, output=1.25, cache_write=0.3, cache_read=0.03),
}


def _openai(input_: float, cached: float, output: float) -> Price:
    """Return a price of OpenAI: above 272,000 tokens of input, input and cache cost twice and output 1.5 times as much.

    Cache writes cost 1.25 of the input (both from developers.openai.com/api/docs/models/gpt-6-sol, looked up on
    2026-11-24). Models before gpt-5.6 report none.
    """
    long_prompt = Price(input=2 * input_, output=1.5 * output, cache_read=2 * cached)
    return Price(
        input=input_, output=output, cache_read=cached, long_prompt_above=272_000, long_prompt=long_prompt
    )


def _model_page(model: str) -> Source:
    return Source(f"developers.openai.com/api/docs/models/{model}", "2026-11-24")


_PLANS = Source("github.com/api-evangelist/openai plans/openai-plans-pricing.yml", "2026-05-04")
_GPT_5_6_SOL = ListedPrice(
    _openai(5.0, 0.5, 30.0),
    Source("docs.laozhang.ai/en/announcements/gpt-5-6-pricing-2026-07", "2026-08-01"),
    note="OpenAI's page names USD 4 and 20 as promotional, until 2026-11-21 at least: this is the price without that",
)

_OPENAI: Mapping[str, ListedPrice] = {
    "gpt-6.2-astra": ListedPrice(
        _openai(8.0, 0.4, 40.0), Source("github.com/BerriAI/litellm/discussions/52347", "2026-11-24")
    ),
    "gpt-6.2-sol": ListedPrice(_openai(2.0, 0.1, 10.0), _model_page("gpt-6.2-sol")),
    "gpt-6.1-sol": ListedPrice(
        _openai(2.0, 0.1, 10.0),
        Source(
            "github.com/KZCFG/AILSA-SubSwitch/releases/tag/v1.0.0-g and "
            "github.com/amine123max/Codex-Manager/releases/tag/0.4.7, of OpenAI's model page",
            "2026-10-01",
        ),
    ),
    "gpt-6.1-terra": ListedPrice(_openai(1.0, 0.05, 5.0), _model_page("gpt-6.1-terra")),
    "gpt-6-astra": ListedPrice(
        _openai(10.0, 1.0, 50.0), Source("github.com/BerriAI/litellm/discussions/39633", "2026-11-24")
    ),
    "gpt-6-sol": ListedPrice(_openai(2.0, 0.2, 10.0), _model_page("gpt-6-sol")),
    "gpt-6-luna": ListedPrice(
        _openai(0.1, 0.01, 0.5), Source("github.com/zJay26/codex-usage/releases/tag/v2.7.1", "2026-09-23")
    ),
    "gpt-5.6": _GPT_5_6_SOL,
    "gpt-5.6-sol": _GPT_5_6_SOL,
    "gpt-5.6-terra": ListedPrice(
        _openai(2.0, 0.2, 12.0),
        Source("docs.laozhang.ai/en/announcements/gpt-5-6-pricing-2026-07", "2026-08-01"),
    ),
    "gpt-5.6-luna": ListedPrice(_openai(0.2, 0.02, 1.2), _model_page("gpt-5.6-luna")),
    "gpt-5.5": ListedPrice(_openai(5.0, 0.5, 30.0), _PLANS),
    "gpt-5.4": ListedPrice(_openai(2.5, 0.25, 15.0), _PLANS),
    "gpt-5.4-mini": ListedPrice(_openai(0.75, 0.075, 4.5), _PLANS),
    "gpt-5.4-nano": ListedPrice(_openai(0.2, 0.02, 1.25), _PLANS),
}

LISTED: Final[Mapping[str, ListedPrice]] = MappingProxyType(
    {
        "claude-fable-5-2": ListedPrice(Price(input=8.0, output=40.0, cache_read=0.2), _FABLE_5_2),
        **{name: ListedPrice(price, _CLAUDE) for name, price in _ANTHROPIC.items()},
        **_OPENAI,
    }
)
"""The table by undated model name, without models whose price was found in no source: a guess is no limit."""


# --- the cost of a reply

_DATED = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_LARGE_CONTEXT = re.compile(r"\[1m\]$", re.IGNORECASE)
"""Claude Code's suffix for a context of a million tokens; requests to the API name the model without it."""

_CLIENT_ALIASES = frozenset({"best", "fable", "haiku", "opus", "opusplan", "sonnet"})
"""Names that Claude Code 2.1.329 replaces by those of models."""

_MILLION = 1_000_000


def is_client_alias(model: str) -> bool:
    """Return whether Claude Code replaces this name by that of a model, which only its requests name."""
    return _LARGE_CONTEXT.sub("", model).lower() in _CLIENT_ALIASES


class PriceList:
    """The prices of models.

    Args:
        overrides: Prices in addition to those of the table, or in place of them.
    """

    def __init__(self, overrides: Mapping[str, Price] | None = None) -> None:
        self._prices = {name: row.price for name, row in LISTED.items()} | dict(overrides or {})

    def price(self, model: str) -> Price | None:
        """Return the price of a model, or of the undated name if the name ends in a date; None if both are unknown.

        A suffix `[1m]` is dropped, too. Nothing else is: `claude-fable-5-2` is another model than `claude-fable-5`.
        """
        name = _LARGE_CONTEXT.sub("", model)
        names = (model, name, _DATED.sub("", name))
        return next((self._prices[each] for each in names if each in self._prices), None)

    def require(self, model: str) -> Price:
        """Return the price of a model.

        Raises:
            PolicyRefused: The price is unknown, so a limit on cost could not be enforced.
        """
        price = self.price(model)
        if price is None:
            raise PolicyRefused(
                f"a cost limit needs the price of {model!r}, which is not known (`ringfence config prices` lists those "
                "that are); give it under `prices:` in ~/.config/ringfence/ringfence.yaml, or limit tokens instead",
                rule="cost_limit_needs_price",
            )
        return price

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of one reply in USD, with the fees for tools of the provider; None if the price is unknown.

        Call it for each reply and add up: a sum of usages can exceed a `long_prompt_above` that no reply exceeded.
        """
        price = self.price(model)
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
        searches = usage.web_search_requests * _WEB_SEARCH_USD
        return tokens + searches + usage.code_execution_containers * _CODE_EXECUTION_USD

    def output_price(self, model: str) -> float | None:
        """Return the highest price in USD of one token of output; None if the price is unknown."""
        price = self.price(model)
        if price is None:
            return None
        return max(price.output, price.long_prompt.output if price.long_prompt else 0.0) / _MILLION

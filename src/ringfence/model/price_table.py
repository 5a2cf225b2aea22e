"""Prices of Claude models, in USD per million tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

SOURCE: Final = "Anthropic, platform.claude.com/docs/en/about-claude/pricing"
CHECKED_ON: Final = "2026-10-24"

WEB_SEARCH_USD: Final = 10.0 / 1000
"""For one search of the web, besides its tokens: USD 10 for 1,000 of them (the same page, "Web search tool")."""

CODE_EXECUTION_USD: Final = 0.05 * 5 / 60
"""For one answer with code executed by the provider: USD 0.05 for an hour of a container, of which five minutes are the
least (the same page, "Code execution tool"). How long it ran is not told, and neither is what of it was free."""

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
    """Of the cache that lasts 5 minutes, the one we use. None: 1.25 of `input`."""
    cache_write_1h: float | None = None
    """Of the cache that lasts an hour. None: twice `input`."""
    cache_read: float | None = None
    """None: 0.1 of `input`."""
    long_prompt_above: int = 0
    """Prompts with more tokens than this (cached ones included) cost `long_prompt`, output too."""
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


_FABLE_5 = Price(input=10.0, output=50.0)
_FABLE_5_1 = Price(input=10.0, output=50.0, cache_read=0.25)
_OPUS_4_5 = Price(input=5.0, output=25.0)
_OPUS_4 = Price(input=15.0, output=75.0)
_SONNET_4 = Price(input=3.0, output=15.0)

PRICES: Final[Mapping[str, Price]] = MappingProxyType(
    {
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
)
"""By undated model name."""

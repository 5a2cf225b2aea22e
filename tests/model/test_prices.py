import pytest

from ringfence.errors import PolicyRefused
from ringfence.events import Usage
from ringfence.model.prices import LISTED, Price, PriceList

PRICES = PriceList()
MILLION = Usage(
    input_tokens=1_000_000,
    output_tokens=1_000_000,
    cache_creation_input_tokens=1_000_000,
    cache_read_input_tokens=1_000_000,
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("claude-opus-5-5", 4 + 20 + 5 + 0.2),
        ("claude-sonnet-4-5", 3 + 15 + 3.75 + 0.3),
        ("claude-sonnet-4-5-20250929", 3 + 15 + 3.75 + 0.3),
        ("claude-fable-5-1", 10 + 50 + 12.5 + 0.25),
        ("claude-fable-5-2", 8 + 40 + 10 + 0.2),
        ("claude-opus-5-5[1m]", 4 + 20 + 5 + 0.2),
        ("claude-3-7-sonnet-latest", 3 + 15 + 3.75 + 0.3),
    ],
)
def test_all_four_kinds_of_tokens_cost(model: str, expected: float):
    """Cache writes cost more than input, cache reads much less; dates in names do not matter."""
    assert PRICES.cost(model, MILLION) == pytest.approx(expected)


@pytest.mark.parametrize(
    "model",
    ["claude-fable-5-3", "claude-opus-4-9", "gpt-9", "gpt-5.5-codex", "scripted", "claude", "sonnet", ""],
)
def test_an_unknown_model_has_no_price(model: str):
    """A name that goes on after a known one is another model."""
    assert PRICES.price(model) is None
    assert PRICES.cost(model, MILLION) is None


def test_a_long_prompt_costs_more():
    """Cached tokens count towards the length, output is dearer too."""
    short = Usage(input_tokens=60_000, cache_read_input_tokens=40_000, output_tokens=10_000)
    long = short + Usage(input_tokens=1)
    assert PRICES.cost("claude-haiku-5-5", short) == pytest.approx(0.006 + 0.0004 + 0.005)
    assert PRICES.cost("claude-haiku-5-5", long) == pytest.approx(0.03 + 0.002 + 0.025, rel=1e-4)


@pytest.mark.parametrize("name", ["gpt-6.1-sol", "gpt-6.1-sol-2026-09-29"])
def test_a_long_prompt_of_openai_costs_more(name: str):
    """Above 272,000 tokens of input, whichever of them were cached: twice the input, half as much again the output."""
    short = Usage(input_tokens=72_000, cache_read_input_tokens=200_000, output_tokens=1_000)
    assert PRICES.cost(name, short) == pytest.approx((72 * 2 + 200 * 0.1 + 10) / 1000)
    long = Usage(input_tokens=100_000, cache_read_input_tokens=200_000, output_tokens=1_000)
    assert PRICES.cost(name, long) == pytest.approx((100 * 4 + 200 * 0.2 + 15) / 1000)


def test_a_cache_that_lasts_an_hour_costs_more_to_write():
    """Twice the input's price, for that part of what was written; a price of its own may be given."""
    mixed = Usage(cache_creation_input_tokens=3_000_000, cache_creation_1h_input_tokens=1_000_000)
    assert PRICES.cost("claude-sonnet-4-5", mixed) == pytest.approx(2 * 3.75 + 6)
    assert (
        PRICES.cost(
            "claude-3-haiku", Usage(cache_creation_input_tokens=10**6, cache_creation_1h_input_tokens=10**6)
        )
        == 0.5
    )
    own = {"m": Price(input=1, output=1, cache_write=2, cache_write_1h=7)}
    assert PriceList(own).cost("m", mixed) == pytest.approx(2 * 2 + 7)


def test_no_more_is_written_for_an_hour_than_is_written():
    """Whatever an API says."""
    wrong = Usage(cache_creation_input_tokens=1_000_000, cache_creation_1h_input_tokens=9_000_000)
    assert PRICES.cost("claude-sonnet-4-5", wrong) == pytest.approx(6)


def test_tools_of_the_provider_have_fees():
    """A cent for a search, and five minutes of a container at least; a sum has them all."""
    searched, executed = Usage(web_search_requests=2), Usage(code_execution_containers=1)
    assert PRICES.cost("claude-opus-5", searched) == pytest.approx(0.02)
    assert PRICES.cost("claude-opus-5", executed) == pytest.approx(0.05 / 12)
    assert PRICES.cost("claude-opus-5", searched + searched + executed) == pytest.approx(0.04 + 0.05 / 12)
    assert (searched + executed).total == 0


def test_an_override_wins():
    """The user's own price stands before the table's."""
    own = {
        "claude-opus-5-5": Price(input=1, output=1, cache_write=1, cache_read=1),
        "mine": Price(input=0, output=0),
    }
    assert PriceList(own).cost("claude-opus-5-5", MILLION) == pytest.approx(4.0)
    assert PriceList(own).cost("mine", MILLION) == 0.0


def test_a_cost_limit_without_a_price_is_refused():
    """It names the model and the two ways out."""
    with pytest.raises(PolicyRefused, match=r"'mystery'.*limit tokens instead") as caught:
        PRICES.require("mystery")
    assert caught.value.rule == "cost_limit_needs_price"
    assert "`prices:`" in str(caught.value)
    assert PRICES.require("claude-opus-5") is LISTED["claude-opus-5"].price


def test_a_price_below_zero_is_refused():
    """Money never flows back."""
    with pytest.raises(ValueError, match="-1 is not a price"):
        Price(input=-1, output=1)

"""What a run may use, whoever asks."""

import pytest

from ringfence.egress.gateway.budget import Budget, UnknownPrice
from ringfence.errors import LimitReached
from ringfence.events import Usage
from ringfence.model.prices import Price, PriceList

PRICES = PriceList({"m": Price(input=1.0, output=10.0)})


def test_an_answer_may_have_what_is_left():
    """Of tokens, and of what money buys."""
    assert Budget().left("m") is None
    assert Budget(tokens=100).left("m") == 100
    assert Budget(cost_usd=0.001, pricing=PRICES).left("m") == 100
    assert Budget(tokens=50, cost_usd=0.001, pricing=PRICES).left("m") == 50


def test_what_was_used_counts_together():
    """A second answer has less room."""
    budget = Budget(tokens=100)
    budget.reserve("m").update(Usage(input_tokens=10, output_tokens=20))
    assert budget.left("m") == 70
    budget.reserve("m").update(Usage(input_tokens=10, output_tokens=60))
    with pytest.raises(LimitReached, match="tokens"):
        budget.left("m")


def test_an_update_replaces_what_was_counted_before():
    """An estimate is corrected by what the API tells."""
    budget = Budget(tokens=100)
    charge = budget.reserve("m")
    charge.update(Usage(output_tokens=90))
    charge.update(Usage(output_tokens=10))
    assert budget.left("m") == 90


def test_a_prompt_alone_ends_no_answer():
    """It is paid for already."""
    charge = Budget(tokens=100).reserve("m")
    charge.update(Usage(input_tokens=500))
    assert charge.reached() is None
    charge.update(Usage(input_tokens=500, output_tokens=101))
    assert isinstance(charge.reached(), LimitReached)


def test_fees_and_dear_caches_count_against_the_limit_on_cost():
    """What the prompt alone costs ends no answer, for an hour or not; searches do."""
    charge = Budget(cost_usd=0.015, pricing=PRICES).reserve("m")
    prompt = Usage(cache_creation_input_tokens=10_000, cache_creation_1h_input_tokens=10_000)
    charge.update(prompt)
    assert charge.reached() is None
    charge.update(prompt + Usage(web_search_requests=1))
    assert charge.reached() is None
    charge.update(prompt + Usage(web_search_requests=2))
    reached = charge.reached()
    assert reached is not None
    assert reached.used == pytest.approx(0.02 + 0.02)


def test_answers_at_once_share_what_is_left():
    """None of them can have it all."""
    budget = Budget(tokens=100)
    one, other = budget.reserve("m"), budget.reserve("m")
    one.update(Usage(output_tokens=60))
    other.update(Usage(output_tokens=60))
    assert one.reached() is not None
    assert other.reached() is not None


def test_a_price_that_is_not_known_is_no_price():
    """A bound on money cannot be kept then."""
    with pytest.raises(UnknownPrice):
        Budget(cost_usd=1.0, pricing=PRICES).left("other")

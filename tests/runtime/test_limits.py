import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import LimitReached, UsageError
from ringfence.events import Usage
from ringfence.model.prices import Price
from ringfence.runtime import Limits
from ringfence.runtime.limits import Meter

PRICES = {"m": Price(input=1.0, output=10.0)}


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_wall_clock_counts_from_the_start() -> None:
    """Nothing is admitted after it."""
    clock = Clock()
    meter = Meter(Limits(wall_clock_s=10.0), model="m", clock=clock)
    clock.now += 4
    assert meter.admit_request(5) == 5
    clock.now += 7
    with pytest.raises(LimitReached, match="wall_clock_s"):
        meter.admit_request(5)


def test_max_tokens_is_bounded_by_the_money_that_is_left() -> None:
    """100 tokens at 10 USD per million cost 0.001 USD."""
    assert Meter(Limits(cost_usd=0.001), model="m", prices=PRICES).admit_request(5000) == 100


def test_money_that_buys_no_token_is_none_left() -> None:
    """Rather than a request for 0 tokens."""
    meter = Meter(Limits(cost_usd=0.000_011), model="m", prices=PRICES)
    meter.record_reply(Usage(input_tokens=5))
    with pytest.raises(LimitReached, match="cost_usd"):
        meter.admit_request(1)


def test_fees_and_dear_caches_count_against_the_limit_on_cost() -> None:
    """A search is a cent; a token written for an hour costs two of input."""
    meter = Meter(Limits(cost_usd=0.025), model="m", prices=PRICES)
    assert meter.record_reply(Usage(web_search_requests=1)) == pytest.approx(0.01)
    written = Usage(cache_creation_input_tokens=5000, cache_creation_1h_input_tokens=5000)
    assert meter.record_reply(written) == pytest.approx(0.01)
    meter.record_reply(Usage(web_search_requests=1))
    with pytest.raises(LimitReached, match="cost_usd"):
        meter.admit_request(1)


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 30)), max_size=30),
)
def test_tokens_go_over_by_the_last_prompt_at_most(limit: int, turns: list[tuple[int, int]]) -> None:
    """Whatever the model does, as long as it keeps to max_tokens."""
    meter = Meter(Limits(tokens=limit, turns=None), model="m")
    for prompt, wanted in turns:
        try:
            allowed = meter.admit_request(30)
        except LimitReached:
            assert meter.usage.total >= limit
            return
        assert 1 <= allowed <= limit - meter.usage.total
        meter.record_reply(Usage(input_tokens=prompt, output_tokens=min(wanted, allowed)))
        assert meter.usage.total <= limit + prompt


@given(st.integers(0, 20), st.lists(st.integers(0, 6)))
def test_no_more_calls_than_allowed(limit: int, turns: list[int]) -> None:
    """In any division into turns."""
    meter = Meter(Limits(tool_calls=limit), model="m")
    assert (
        sum(meter.grant_tool_calls(wanted) for wanted in turns) == min(limit, sum(turns)) == meter.tool_calls
    )


@pytest.mark.parametrize("wrong", [{"turns": 0}, {"cost_usd": -1}, {"wall_clock_s": "soon"}, {"tunrs": 1}])
def test_senseless_limits_are_refused(wrong: dict[str, object]) -> None:
    """A misspelt limit would be no limit."""
    with pytest.raises(UsageError):
        Limits.model_validate(wrong)


def test_durations_are_read_as_people_write_them() -> None:
    """As everywhere in the configuration."""
    assert Limits.model_validate({"wall_clock_s": "30m"}).wall_clock_s == 1800.0

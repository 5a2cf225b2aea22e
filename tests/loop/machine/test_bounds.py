"""What an attempt brings to the next one has a bound, and checks are given nothing of the user's."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.cli.settings import load_settings
from ringfence.config.egress import Swap
from ringfence.loop.rejection import bound_complaints, shorten_complaint, shorten_list
from ringfence.loop.role.run_settings import effective_for_checks

COMPLAINTS = st.lists(
    st.builds(lambda text, times: text * times, st.text(max_size=9), st.integers(0, 4000)), max_size=80
)


@given(COMPLAINTS)
def test_complaints_are_bounded_and_what_is_left_out_is_said(complaints: list[str]):
    """An agent can make as many and as long ones as it likes; the prompt of the next attempt must hold them."""
    told = bound_complaints(complaints)
    assert sum(map(len, told)) <= 16_000 + 200
    assert len(told) <= 51
    if told != complaints:
        assert "left out" in told[-1]


def test_a_list_that_is_cut_says_so():
    """Else twenty names would hide those after them from the judge and from readers of events."""
    assert shorten_list(["a", "b", "c"], 3) == ["a", "b", "c"]
    assert shorten_list(["a", "b", "c"], 1) == ["a", "and 2 more"]


def test_a_check_is_sent_no_secret(tmp_path: Path):
    """What swaps a placeholder for a secret in requests to a host is for agents; checks run what agents wrote."""
    effective = load_settings(tmp_path)
    swap = Swap(secret="one", host="api.example.org", env="TOKEN", header="authorization")
    egress = effective.settings.egress.model_copy(update={"swap": (swap,)})
    asked = replace(effective, settings=effective.settings.model_copy(update={"egress": egress}))
    assert effective_for_checks(asked).settings.egress.swap == ()


@pytest.mark.parametrize(
    ("trace", "error"),
    [
        (
            "Traceback (most recent call last):\n" + '  File "a.py", line 1\n' * 60 + "KeyError: 'x'",
            "KeyError: 'x'",
        ),
        (
            "    def test():\n>       it()\nE       ValueError: no\n\n" + "a.py:1: in it\n" * 60,
            "ValueError: no",
        ),
    ],
)
def test_a_shortened_complaint_begins_with_the_error(trace: str, error: str):
    """What a reader looks for is at the end of a traceback, and was cut off; other complaints keep both ends."""
    shown = shorten_complaint(
        f"pytest: 2 new failures.\n\n## test_a (failed)\n{trace}\n\n## test_b (failed)\nother"
    )
    assert shown.startswith(f"{error} | pytest: 2 new failures.")
    assert len(shown) <= 500
    plain = shorten_complaint("first " + "x" * 900 + " last")
    assert (plain.startswith("first "), plain.endswith(" last"), len(plain) <= 500) == (True, True, True)
    assert shorten_complaint("short") == "short"

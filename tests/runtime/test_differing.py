"""Differences of JSON of which nothing is known: a place, and what is there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.runtime.differing import text_difference, value_difference
from ringfence.runtime.volatile import masked

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"a": [{"b": "x"}]}, {"a": [{"b": "y"}]}, "a[0].b: line 1 was 'x', now is 'y'"),
        ({"a": 1, "b": 2}, {"a": 1}, "b is gone"),
        ({"a": [1]}, {"a": [1, 2]}, "a[1] is new"),
        ({"a b": 1}, {"a b": 2}, "'a b': line 1 was '1', now is '2'"),
        ("one\ntwo", "one\nzwei", "line 2 was 'two', now is 'zwei'"),
        ([], {}, "line 1 was '[]', now is '{}'"),
    ],
)
def test_the_first_difference_has_its_place(before: Any, after: Any, told: str):
    """Names and numbers on the way to it."""
    assert value_difference(before, after, str) == told


@given(VALUES, VALUES)
def test_there_is_a_difference_if_and_only_if_there_is_one(before: Any, after: Any):
    """Whatever the values are; none for two that are the same."""
    found = value_difference(before, after, str)
    assert (found is None) == (before == after or repr(before) == repr(after))


def test_what_is_nested_without_end_is_compared_as_a_text():
    """Nobody inside can make us run out of stack."""
    before: Any = "x"
    after: Any = "y"
    for _ in range(300):
        before, after = [before], [after]
    assert "line 1 was" in (value_difference(before, after, str) or "")


def test_what_does_not_count_is_no_difference():
    """As in conversations."""
    assert text_difference("at 10:11:12", "at 10:11:13", masked) is None
    assert text_difference("at 10:11:12", "at 10:11:13", str) is not None


@pytest.mark.parametrize("text", ["time" + " " * 200_000])
def test_what_is_made_to_take_long_does_not(text: str):
    """What an agent had printed is masked within the test's time."""
    assert masked(text) == text

"""What the gate refused, given to the commands that ran meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.protocol.command import Refusals
from ringfence.sandbox.protocol.records import ProtocolError, Refusal, decode_refusals, encode_refusals


def test_each_line_once_for_all_that_watch() -> None:
    """A line counts for every command that runs at the time, once, and for none that is over or comes later."""
    refusals = Refusals()
    with refusals.watched() as first:
        refusals.add("a")
        with refusals.watched() as second:
            refusals.add("b")
            refusals.add("b")
        refusals.add("c")
    refusals.add("d")
    assert [refusal.line for refusal in first] == ["a", "b", "c"]
    assert [refusal.line for refusal in second] == ["b"]


def test_bounded() -> None:
    """A command that asks for very many hosts is told of 20."""
    refusals = Refusals()
    with refusals.watched() as lines:
        for number in range(1000):
            refusals.add(str(number))
    assert [refusal.line for refusal in lines] == [str(number) for number in range(20)]


@given(
    st.lists(
        st.builds(Refusal, st.text(max_size=200), st.sampled_from(["allow", "undeny", "", None])), max_size=20
    )
)
def test_refusals_survive_the_stream(refusals: list[Refusal]) -> None:
    """A supervisor's client gets each refusal as it was noted, whatever is in its text."""
    assert decode_refusals(encode_refusals(refusals)) == refusals


def test_refusals_of_any_length_fit_a_frame() -> None:
    """Hostile names make no frame that a client would take for a broken one: the last lines are left out."""
    refusals = [Refusal(f"{number}" + "\x01\ud800" * 5000, "") for number in range(20)]
    found = decode_refusals(encode_refusals(refusals))
    assert 0 < len(found) < 20
    assert [refusal.line[0] for refusal in found] == [str(number)[0] for number in range(len(found))]


@pytest.mark.parametrize("text", ["", "x", "[1]", '[["a"]]', '{"a": 1}'])
def test_what_no_supervisor_sends(text: str) -> None:
    """Anything else ends the connection as a broken protocol."""
    with pytest.raises(ProtocolError):
        decode_refusals(text)

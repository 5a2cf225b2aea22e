"""What counts as a proper refusal of state that a version cannot read any more."""

import pytest

from .product import Completed, assert_refusal

LINE = "ringfence: this fleet is of version 0.1; start it once with version 0.2, which migrates it\n"


def test_one_line_with_the_version_is_a_refusal():
    """The exit code is one of those for refusals, and the line names the version that can read the state."""
    assert_refusal(Completed(("fleet", "up"), 78, "", LINE), "0.2")


@pytest.mark.parametrize(
    "completed",
    [
        pytest.param(Completed((), 0, "", LINE), id="success"),
        pytest.param(Completed((), 78, "[]", LINE), id="output"),
        pytest.param(Completed((), 78, "", LINE * 2), id="two lines"),
        pytest.param(Completed((), 78, "", "ringfence: update to 0.20 or 1.0.2\n"), id="other versions"),
        pytest.param(Completed((), 78, "", ""), id="silence"),
    ],
)
def test_anything_else_is_not_a_refusal(completed: Completed):
    """Such an end of a command fails the test."""
    with pytest.raises(AssertionError):
        assert_refusal(completed, "0.2")

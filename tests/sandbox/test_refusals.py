"""What the gate refused, given to the commands that ran meanwhile."""

from ringfence.sandbox.protocol.command import Refusals


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
    assert (list(first), list(second)) == (["a", "b", "c"], ["b"])


def test_bounded() -> None:
    """A command that asks for very many hosts is told of 20."""
    refusals = Refusals()
    with refusals.watched() as lines:
        for number in range(1000):
            refusals.add(str(number))
    assert list(lines) == [str(number) for number in range(20)]

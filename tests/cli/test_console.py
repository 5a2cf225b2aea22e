"""Lines for a person, on a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from ringfence.cli.render.console import print_line, print_table

_LINE = "succeeded: the check passed: " + "word " * 10


@pytest.mark.parametrize("is_terminal", [True, False])
def test_lines_are_wrapped_at_words_on_a_terminal_only(is_terminal: bool) -> None:
    """What is wrapped is indented, so that no text of an agent begins at the left edge."""
    console = Console(file=io.StringIO(), width=40, force_terminal=is_terminal, color_system=None)
    print_line(console, _LINE)
    first, *more = console.file.getvalue().rstrip("\n").split("\n")  # type: ignore[attr-defined]
    assert bool(more) is is_terminal
    assert all(len(line) <= 40 and line.startswith("    ") for line in more)
    assert [*first.split(), *(word for line in more for word in line.split())] == _LINE.split()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_clipped_table_has_one_line_for_each_row(is_terminal: bool) -> None:
    """On a terminal no row is wider than that; elsewhere nothing is cut off."""
    console = Console(file=io.StringIO(), width=40, force_terminal=is_terminal, color_system=None)
    print_table(console, ("run", "task"), [("1", "word " * 20 + "end")], is_clipped=True)
    header, row = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert (header, len(row) <= 40, row.endswith("end")) == ("run  task", is_terminal, not is_terminal)

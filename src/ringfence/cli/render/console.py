"""Opens consoles and prints tables and lines for people."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ringfence.cli.output import print_answer
from ringfence.escape import visible

_INDENT = "    "
_LEAST_WIDTH = 20


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise an error for the caller to handle; rich would exit the process and end the run."""
        raise BrokenPipeError


def open_console(*, stderr: bool = False) -> Console:
    """Open a console on stdout or stderr; it prints no colours if NO_COLOR is set or the stream is not a terminal."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_table(
    console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], *, is_clipped: bool = False
) -> None:
    """Print rows whose last cell may be long below a header; nothing if there are none.

    Args:
        console: Where to print.
        header: The names of the columns.
        rows: The cells.
        is_clipped: Whether a row that is too long for the terminal is cut instead of wrapped.
    """
    shown = [header, *rows] if rows else []
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)][:-1]
    for row in shown:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, (*widths, 0), strict=True)]
        line, style = "  ".join(cells).rstrip(), "bold" if row is header else ""
        if is_clipped and console.is_terminal:
            text = Text(visible(line, one_line=True), style=style)
            text.truncate(console.width, overflow="ellipsis")
            console.print(text, soft_wrap=True)
        else:
            print_line(console, line, style)


def print_list(
    document: Mapping[str, Any], header: Sequence[str], rows: Iterable[Sequence[str]], *, json: bool
) -> None:
    """Print a list as JSON for programs or as a table for people."""
    if json:
        print_answer(document, (), json=True)
    else:
        print_table(open_console(), header, list(rows))


def print_line(console: Console, line: str, style: str = "") -> None:
    """Print a line, escaped. On a terminal, wrap it at words; elsewhere, print it as one line.

    Wrapped parts are indented, so that no text of an agent begins at the left edge.
    """
    shown = Text(visible(line, one_line=True), style=style)
    if not console.is_terminal:
        console.print(shown, soft_wrap=True)
        return
    first, *more = shown.wrap(console, max(_LEAST_WIDTH, console.width - len(_INDENT))) or [shown]
    console.print(first, soft_wrap=True)
    for part in more:
        console.print(Text.assemble(_INDENT, part), soft_wrap=True)

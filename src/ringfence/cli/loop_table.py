"""A loop as a table: its stories and the stages of their work, what each has taken."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ringfence.loop.report.model import LoopReport, Used

    Row = tuple[str, str, str, tuple[str, ...], Used]
    """Id, state, attempt, stages, and what it took."""

_STYLES = {
    "ok": "green",
    "no": "red",
    "...": "cyan",
    "passed": "green",
    "skipped": "red",
    "blocked": "yellow",
    "running": "cyan",
    "waiting": "dim",
}
_MOST_ID, _LEAST_ID = 24, 10
_OTHERS, _STAGES = 69, 33
"""Of a terminal's columns, what all but the story's id take; and the stages among them."""


def stories_table(rows: "Sequence[Row]", *, width: int, hidden: int = 0) -> "Table":
    """The table. All texts are escaped here.

    Args:
        rows: A row for each story.
        width: Columns of the terminal; where they are too few, the stages are left out.
        hidden: How many more stories there are.
    """
    from rich.table import Table
    from rich.text import Text

    from ringfence.cli.escape import visible
    from ringfence.loop.report.figures import cost, duration, tokens
    from ringfence.loop.report.model import STAGES

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    shown = STAGES if width >= _OTHERS + _LEAST_ID else ()
    room = width - _OTHERS + (0 if shown else _STAGES)
    table.add_column(
        "story", no_wrap=True, overflow="ellipsis", max_width=max(_LEAST_ID, min(_MOST_ID, room))
    )
    table.add_column("state", no_wrap=True, min_width=7)
    table.add_column("try", no_wrap=True, justify="right")
    for stage in shown:
        table.add_column(stage, no_wrap=True, min_width=len(stage))
    for figure in ("time", "tokens", "cost"):
        table.add_column(figure, no_wrap=True, justify="right", min_width=5)
    for name, state, attempt, stages, used in rows:
        cells = (visible(name, one_line=True), state, attempt, *stages[: len(shown)])
        figures = (duration(used.seconds), tokens(used.tokens), cost(used.cost_usd))
        table.add_row(
            *(Text(cell, style=_STYLES.get(cell, "")) for cell in cells),
            *(Text(each, style="dim") for each in figures),
        )
    if hidden:
        table.add_row(Text(f"+{hidden} more", style="dim"))
    return table


def rows_of(report: "LoopReport") -> "list[Row]":
    """The rows of a report's stories."""
    return [
        (story.id, story.state, attempt_of(story.attempt, story.most_attempts), story.stages, story.used)
        for story in report.stories
    ]


def attempt_of(number: int, most: int) -> str:
    """`2/3`; empty before the first."""
    return f"{number}/{most}" if number else ""

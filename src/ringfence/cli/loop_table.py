"""A loop as a table: its stories and the stages of their work, what each has taken."""

from typing import TYPE_CHECKING

from ringfence.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from ringfence.loop.report.model import LoopReport, Used

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
_MOST_TITLE, _LEAST_TITLE = 48, 8
_WIDE = 104
"""Columns of a terminal that has room for each stage and a title; elsewhere the last stage stands for all."""
_OTHERS, _STAGES, _STAGE = 36, 33, 12
"""What all but a story's id and title take; and the stages, or the last of them."""


@frozen
class Row:
    """A story."""

    id: str
    title: str
    state: str
    attempt: str
    stages: tuple[str, ...]
    used: "Used"


def stories_table(rows: "Sequence[Row]", *, width: int, hidden: int = 0) -> "Table":
    """The table. All texts are escaped here.

    Args:
        rows: Of the stories.
        width: Columns of the terminal; where they are few, titles are cut and stages left out.
        hidden: How many more stories there are.
    """
    from rich.table import Table
    from rich.text import Text

    from ringfence.cli.escape import visible
    from ringfence.loop.report.figures import cost, duration, tokens
    from ringfence.loop.report.model import STAGES

    is_wide, has_stage = width >= _WIDE, width >= _OTHERS + _STAGE + _LEAST_ID
    shown = STAGES if is_wide else ("stage",) if has_stage else ()
    room = width - _OTHERS - (_STAGES if is_wide else _STAGE if has_stage else 0)
    ids = [visible(row.id, one_line=True) for row in rows]
    more = f"+{hidden} more" if hidden else ""
    id_width = min(max(map(len, [*ids, more, "story"])), _MOST_ID, max(_LEAST_ID, room))
    title_width = min(room - id_width - 1, _MOST_TITLE)
    has_titles = title_width >= _LEAST_TITLE and any(row.title for row in rows)

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("story", no_wrap=True, overflow="ellipsis", max_width=id_width)
    if has_titles:
        table.add_column("", no_wrap=True, overflow="ellipsis", max_width=title_width)
    table.add_column("state", no_wrap=True, min_width=7)
    table.add_column("try", no_wrap=True, justify="right")
    for stage in shown:
        table.add_column(stage, no_wrap=True, min_width=len(stage))
    for figure in ("time", "tokens", "cost"):
        table.add_column(figure, no_wrap=True, justify="right", min_width=5)
    for name, row in zip(ids, rows, strict=True):
        title = (visible(row.title, one_line=True),) if has_titles else ()
        stages = row.stages if is_wide else (_last(row.stages),) if has_stage else ()
        figures = (duration(row.used.seconds), tokens(row.used.tokens), cost(row.used.cost_usd))
        cells = [Text(name), *map(Text, title)]
        cells += [Text(cell, style=_style(cell)) for cell in (row.state, row.attempt, *stages)]
        table.add_row(*cells, *(Text(each, style="dim") for each in figures))
    if more:
        table.add_row(Text(more, style="dim"))
    return table


def _last(stages: "Sequence[str]") -> str:
    """The last stage that was begun, and how it stands."""
    from ringfence.loop.report.model import STAGES

    begun = [f"{name} {how}" for name, how in zip(STAGES, stages, strict=True) if how]
    return begun[-1] if begun else ""


def _style(cell: str) -> str:
    return _STYLES.get(cell.rpartition(" ")[2], "")


def rows_of(report: "LoopReport") -> "list[Row]":
    """The rows of a report's stories."""
    return [
        Row(
            story.id, story.title, story.state,
            attempt_of(story.attempt or story.tests_attempt, story.most_attempts), story.stages, story.used,
        )
        for story in report.stories
    ]  # fmt: skip


def attempt_of(number: int, most: int) -> str:
    """`2/3`; empty before the first."""
    return f"{number}/{most}" if number else ""

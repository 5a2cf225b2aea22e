"""Renders a report as a self-contained page: no script, nothing from the network, links only to its own parts.

Jinja escapes every value, after `visible` has spelled out invisible characters.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ringfence.escape import visible
from ringfence.loop.report.model import LoopReport
from ringfence.loop.report.text import FILTERS, next_steps, one_line

_TONES = {
    "passed": "good", "succeeded": "good", "met": "good", "accepted": "good", "green": "good", "yes": "good",
    "skipped": "bad", "rejected": "bad", "not met": "bad", "red": "bad", "no": "bad", "incomplete": "bad",
    "blocked": "warn", "unclear": "warn", "interrupted": "warn", "limit": "warn", "timed_out": "warn",
}  # fmt: skip
_SIGNS = {"+": "plus", "-": "minus"}
_TAB = 4
_MAX_CHARS = 4_000
"""Limit of characters shown of one text."""


def render_html(report: LoopReport, *, story: str | None = None) -> str:
    """Render a report.

    Args:
        report: The report.
        story: Render only this story.

    Raises:
        UsageError: There is no such story.
    """
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8")
    names: dict[int, str] = {}  # names of the diffs, in the order in which the page needs them
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            stories=report.stories if story is None else [report.story(story)],
            is_whole=story is None,
            next_steps=next_steps(report),
            style=Markup(style),  # noqa: S704 - our own file
            digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
            name_diff=lambda stat: names.setdefault(id(stat), f"d{len(names) + 1}"),
        )
    )


def _print(value: object) -> object:
    return value if hasattr(value, "__html__") else visible(str(value), one_line=True)


def _said(text: str) -> str:
    shown = one_line(text[: _MAX_CHARS + 1])
    return shown if len(text) <= _MAX_CHARS else f"{shown}..."


def _lines(text: str) -> Markup:
    """Format a text with its line breaks."""
    return Markup.escape(visible(text.expandtabs(_TAB)))


def _code_line(line: str) -> str:
    """Format a line of a diff without its sign, with tabs expanded."""
    return line[1:].expandtabs(_TAB) or " "


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_print,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        FILTERS,
        said=_said,
        lines=_lines,
        code_line=_code_line,
        tone=lambda word: _TONES.get(word, "plain"),
        sign=lambda line: _SIGNS.get(line[0], "same"),
    )
    return environment

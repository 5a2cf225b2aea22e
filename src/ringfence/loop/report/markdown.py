"""Renders a report as Markdown in which texts of agents do nothing: no link, no picture, no heading, no markup of HTML.

The template prints every value by `inline`, unless a filter has made it inert already. A word that a renderer could take
for more than a word stands in a code span, in which nothing is active; so do names, paths and expressions. There are no
backslashes: on a terminal the text reads as it was written.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ringfence.escape import visible
from ringfence.loop.report import text as words
from ringfence.loop.report.model import LoopReport

_TOKEN = re.compile(r"(?<!\S)(\(?)`([^`]*[^`\s][^`]*)`([.,;:!?)]*)(?!\S)|\S+")
_PLAIN = re.compile(r"""[("'\u201c]*[^\W_]+(?:['\u2019-][^\W_]+)*["'\u201d.,;:!?)]*""")
"""Words as in prose: nothing in them means anything to Markdown, nor to what makes links of addresses."""
_END = re.compile(r"(.*[^.,;:!?])([.,;:!?]+)")
_SIGN = re.compile(r"[.,;:!?()'\"%/\u2013\u2014\u2026-]{1,3}")
_OPERATOR = re.compile(r"[^\w\s`]+")
_BLOCK = re.compile(r"\d+[.)]+|[-\u2013\u2014\u2026'\"]*")
"""What begins a list or draws a line if a block begins with it."""
_MAX_JOINED = 30
"""Words that are looked through for a closing bracket."""


class Inert(str):
    """Markdown that does nothing: made here, of any text, or words of our own."""

    __slots__ = ()


def render_markdown(report: LoopReport, *, is_for_others: bool = False) -> str:
    """Render a report.

    Args:
        report: The report.
        is_for_others: Leave out what only your machine knows: where things lie there, and what to type next.
    """
    shown = _for_others(report) if is_for_others else report
    steps = [] if is_for_others else words.next_steps(report)
    return _environment().get_template("report.md.j2").render(report=shown, next_steps=steps)


def inline(text: str, *, max_chars: int = 4_000) -> Inert:
    """A text as one line within a line.

    Args:
        text: Anything.
        max_chars: Of it that are shown.
    """
    shown = visible(" ".join(text[: max_chars + 1].split()))
    return Inert(" ".join([*_pieces(shown), *(["..."] if len(text) > max_chars else [])]))


def span(text: str) -> Inert:
    """A text as a code span, in one line; empty: nothing."""
    shown = visible(" ".join(text.split()))
    if not shown:
        return Inert()
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return Inert(f"{fence}{pad}{shown}{pad}{fence}")


def block(text: str, *, max_chars: int = 4_000) -> Inert:
    """A text as a code block of its own, lines and all."""
    shown = visible(text[:max_chars]) + ("\n..." if len(text) > max_chars else "")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return Inert(f"{fence}text\n{shown.strip(chr(10))}\n{fence}")


def cell(text: str, *, max_chars: int = 300) -> Inert:
    """A text within a cell of a table, where `|` would end it, even in a code span."""
    return Inert(inline(text, max_chars=max_chars).replace("|", "\\|"))


def _pieces(shown: str) -> list[str]:
    """Words of prose, and code spans: an operator and what it stands between are one span."""
    found, joins_next = list[tuple[str, str]](), False
    for kind, text in _words(shown):
        is_operator = kind == "code" and _OPERATOR.fullmatch(text) is not None
        if found and (is_operator or joins_next) and "given" not in (kind, found[-1][0]):
            found[-1] = "code", f"{found[-1][1]} {text}"
        else:
            found.append((kind, text))
        joins_next = is_operator
    return [_span_of_code(text) if kind == "code" else text for kind, text in found]


def _words(shown: str) -> Iterator[tuple[str, str]]:
    """Each word with its kind: `prose`, `code`, or `given` as a span by its author; what brackets hold is one word."""
    matches, position = list(_TOKEN.finditer(shown)), 0
    while position < len(matches):
        match, last = matches[position], position
        if match[2] is not None:
            yield "given", f"{match[1]}{span(match[2])}{match[3]}"
        elif not match.start() and _BLOCK.fullmatch(match[0]):
            yield "given", span(match[0])
        elif _PLAIN.fullmatch(match[0]) or _SIGN.fullmatch(match[0]):
            yield "prose", match[0]
        else:
            last = _closing_word(matches, position)
            yield "code", shown[match.start() : matches[last].end()]
        position = last + 1


def _closing_word(matches: Sequence[re.Match[str]], first: int) -> int:
    """The position of the word with which the brackets are closed that a word opens; its own if none are."""
    depth = 0
    for position in range(first, min(first + _MAX_JOINED, len(matches))):
        word = matches[position][0]
        depth += sum(map(word.count, "([{")) - sum(map(word.count, ")]}"))
        if depth <= 0:
            return position
    return first


def _span_of_code(text: str) -> str:
    ended = _END.fullmatch(text)
    return f"{span(ended[1])}{ended[2]}" if ended is not None else span(text)


def _print(value: object) -> str:
    return value if isinstance(value, Inert) else inline(str(value))


def _ours(function: Callable[..., Any] = str) -> Callable[..., Inert]:
    """A filter whose result is made of our own words and of figures."""
    return lambda *given: Inert(function(*given))


@cache
def _environment() -> Environment:
    environment = Environment(  # noqa: S701 - autoescape is for HTML; here `_print` does the same for Markdown
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        finalize=_print,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(span=span, block=block, cell=cell, inline=inline, ours=_ours())
    environment.filters.update({name: _ours(function) for name, function in words.FILTERS.items()})
    return environment


def _for_others(report: LoopReport) -> LoopReport:
    prd = None if report.prd is None else Path(report.prd).name
    stories = tuple(
        replace(story, attempts=tuple(replace(each, patch=None) for each in story.attempts))
        for story in report.stories
    )
    return replace(report, source=Path(report.source).name, prd=prd, patch=None, stories=stories)

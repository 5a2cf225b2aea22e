"""Renders a report as Markdown in which texts of agents do nothing: no link, no picture, no heading, no markup of HTML.

The template prints every value by `inline`, unless a filter has made it inert already. A word that a renderer could take
for more than a word is put into a code span, in which nothing is active; so are names and paths. There are no
backslashes: on a terminal the text reads as it was written.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ringfence.escape import visible
from ringfence.loop.report import text as words
from ringfence.loop.report.model import FileStat, LoopReport

_TOKEN = re.compile(r"(?<!\S)(\(?)`([^`]+)`([.,;:!?)]*)(?!\S)|\S+")
"""A code span of the author's, or a word. A span of blanks alone is printed as a word."""
_PLAIN = re.compile(r"""[("'\u201c]*[^\W_]+(?:['\u2019-][^\W_]+)*["'\u201d.,;:!?)]*""")
"""Words as in prose: nothing in them means anything to Markdown, nor to what makes links of addresses."""
_END = re.compile(r"(.*[^.,;:!?])([.,;:!?]+)")
_SIGN = re.compile(r"[.,;:!?()'\"%/\u2013\u2014\u2026-]{1,3}")
_BLOCK = re.compile(r"\d+[.)]+|[-\u2013\u2014\u2026'\"]*")
"""What begins a list or draws a line if a block begins with it."""
_MAX_JOINED = 30
"""Words among which a closing bracket is searched."""


class Inert(str):
    """Markdown that does nothing: made here, of any text, or words of our own."""

    __slots__ = ()


def render_markdown(report: LoopReport, *, story: str | None = None, is_for_others: bool = False) -> str:
    """Render a report.

    Args:
        report: The report.
        story: Render only this story, with its diffs.
        is_for_others: Leave out what only concerns your machine: paths, and the commands that are useful next.

    Raises:
        UsageError: There is no such story.
    """
    shown = _for_others(report) if is_for_others else report
    return (
        _environment()
        .get_template("report.md.j2")
        .render(
            report=shown,
            story=None if story is None else report.story(story),
            next_steps=[] if is_for_others else words.next_steps(report),
        )
    )


def inline(text: str, *, max_chars: int = 4_000) -> Inert:
    """A text as one line within a line, with at most so many of its characters."""
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
    """A text as a code block of its own, with its line breaks."""
    shown = visible(text[:max_chars]) + ("\n..." if len(text) > max_chars else "")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return Inert(f"{fence}text\n{shown.strip(chr(10))}\n{fence}")


def cell(text: str, *, max_chars: int = 300) -> Inert:
    """A text within a cell of a table, where `|` would end it, even in a code span."""
    return Inert(inline(text, max_chars=max_chars).replace("|", "\\|"))


def diff_block(file: FileStat, position: int, cited: Mapping[tuple[int, int], str]) -> Inert:
    """A file's diff as a code block: criteria whose evidence names the line, the line's number, its sign and text.

    Args:
        file: The file.
        position: The position of the file in the diff, from 1.
        cited: The criteria by position of the file and number of the line.
    """
    width = max(map(len, cited.values()), default=0)
    lines = [
        f"{cited.get((position, after or 0), '') or '':>{width}}{' > ' if (position, after or 0) in cited else '   '}"
        f"{after or '':>5} {line[0]}{visible(line[1:].expandtabs(4), one_line=True)}"
        for hunk in file.hunks
        for _, after, line in hunk.numbered()
    ]
    return block("\n".join(lines), max_chars=10**7)


def _pieces(shown: str) -> Iterator[str]:
    """Yield words of prose as they are, and others as code spans; what brackets hold is one word."""
    matches, position = list(_TOKEN.finditer(shown)), 0
    while position < len(matches):
        match, last = matches[position], position
        opening, quoted, closing = match.groups()
        if quoted is not None and not quoted.isspace():
            yield f"{opening}{span(quoted)}{closing}"
        elif not match.start() and _BLOCK.fullmatch(match[0]):
            yield span(match[0])
        elif _PLAIN.fullmatch(match[0]) or _SIGN.fullmatch(match[0]):
            yield match[0]
        else:
            last = _closing_word(matches, position)
            text = shown[match.start() : matches[last].end()]
            ended = _END.fullmatch(text)
            yield f"{span(ended[1])}{ended[2]}" if ended is not None else span(text)
        position = last + 1


def _closing_word(matches: Sequence[re.Match[str]], first: int) -> int:
    """The position of the word that closes the brackets that a word opens; the word's own if none does."""
    depth = 0
    for position in range(first, min(first + _MAX_JOINED, len(matches))):
        word = matches[position][0]
        depth += sum(map(word.count, "([{")) - sum(map(word.count, ")]}"))
        if depth <= 0:
            return position
    return first


def _print(value: object) -> str:
    return value if isinstance(value, Inert) else inline(str(value))


def _ours(function: Callable[..., Any] = str) -> Callable[..., Inert]:
    """A filter whose result consists of our own words and of figures."""
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
    environment.filters.update({name: _ours(function) for name, function in words.FILTERS.items()})
    environment.filters.update(
        span=span,
        block=block,
        cell=cell,
        inline=inline,
        diff_block=diff_block,
        ours=_ours(),
        question=words.question,
    )
    return environment


def _for_others(report: LoopReport) -> LoopReport:
    prd = None if report.prd is None else Path(report.prd).name
    stories = tuple(
        replace(story, attempts=tuple(replace(each, patch=None) for each in story.attempts))
        for story in report.stories
    )
    return replace(report, source=Path(report.source).name, prd=prd, patch=None, stories=stories)

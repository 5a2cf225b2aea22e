"""Renders a report as Markdown in which texts of agents are inert: no link, image, heading or HTML markup.

The template prints every value with `inline`, unless a filter has already made it inert. A word that a renderer could
interpret as markup is put into a code span, in which nothing is active; so are names and paths. Backslashes are not
used, so that on a terminal the text reads as it was written.
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
from ringfence.loop.report.model import FileDiff, LoopReport

_TOKEN = re.compile(r"(?<!\S)(\(?)`([^`]+)`([.,;:!?)]*)(?!\S)|\S+")
"""A code span in the author's text, or a word. A span of only blanks is printed as a word."""
_PLAIN = re.compile(r"""[("'\u201c]*[^\W_]+(?:['\u2019-][^\W_]+)*["'\u201d.,;:!?)]*""")
"""Words of prose that have no meaning in Markdown or for programs that turn addresses into links."""
_END = re.compile(r"(.*[^.,;:!?])([.,;:!?]+)")
_SIGN = re.compile(r"[.,;:!?()'\"%/\u2013\u2014\u2026-]{1,3}")
_BLOCK = re.compile(r"\d+[.)]+|[-\u2013\u2014\u2026'\"]*")
"""Beginnings of a block that would start a list or draw a line."""
_MAX_JOINED = 30
"""Limit of words among which a closing bracket is searched for."""


class Inert(str):
    """Inert Markdown: made here from any text, or a constant text."""

    __slots__ = ()


def render_markdown(report: LoopReport, *, story: str | None = None, is_for_others: bool = False) -> str:
    """Render a report.

    Args:
        report: The report.
        story: Render only this story, with its diffs.
        is_for_others: Leave out information that only concerns the user's machine: paths, and suggested commands.

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
    """Format a text for use within a line, with at most this many characters."""
    shown = visible(" ".join(text[: max_chars + 1].split()))
    return Inert(" ".join([*_pieces(shown), *(["..."] if len(text) > max_chars else [])]))


def span(text: str) -> Inert:
    """Format a text as a code span in one line; an empty text yields nothing."""
    shown = visible(" ".join(text.split()))
    if not shown:
        return Inert()
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return Inert(f"{fence}{pad}{shown}{pad}{fence}")


def block(text: str, *, max_chars: int = 4_000) -> Inert:
    """Format a text as a separate code block, with its line breaks."""
    shown = visible(text[:max_chars]) + ("\n..." if len(text) > max_chars else "")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return Inert(f"{fence}text\n{shown.strip(chr(10))}\n{fence}")


def cell(text: str, *, max_chars: int = 300) -> Inert:
    """Format a text within a cell of a table, where `|` would end it, even in a code span."""
    return Inert(inline(text, max_chars=max_chars).replace("|", "\\|"))


def diff_block(file: FileDiff, position: int, cited: Mapping[tuple[int, int], str]) -> Inert:
    """Format a file's diff as a code block: criteria whose evidence names the line, the line's number, sign and text.

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
    """Yield words of prose unchanged, and others as code spans; text in brackets is one word."""
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
    """Make a filter whose result consists of constant words and of figures."""
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

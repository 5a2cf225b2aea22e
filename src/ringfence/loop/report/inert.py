"""Texts of agents as Markdown in which they do nothing: no link, no picture, no heading, no markup of HTML.

A word that a renderer could take for more than a word stands in a code span, in which nothing is active; so do words
that are names or paths. There are no backslashes: on a terminal the text reads as it was written.
"""

import re

from ringfence.escape import visible

_TOKEN = re.compile(r"(?<!\S)(\(?)`([^`]*[^`\s][^`]*)`([.,;:!?)]*)(?!\S)|\S+")
_PLAIN = re.compile(r"""[("'\u201c]*[^\W_]+(?:['\u2019-][^\W_]+)*["'\u201d.,;:!?)]*""")
"""Words as in prose: nothing in them means anything to Markdown, nor to what makes links of addresses."""
_END = re.compile(r"(.*[^.,;:!?])([.,;:!?]+)")
_SIGN = re.compile(r"[.,;:!?()'\"%/\u2013\u2014\u2026-]{1,3}")
_BLOCK = re.compile(r"\d+[.)]+|[-\u2013\u2014\u2026'\"]*")
"""What begins a list or draws a line if a block begins with it."""


def inline(text: str, *, most_chars: int = 4_000) -> str:
    """A text as one line within a line.

    Args:
        text: Anything.
        most_chars: Of it that are shown.
    """
    shown = visible(" ".join(text[: most_chars + 1].split()))
    tokens = [_inert(match) for match in _TOKEN.finditer(shown)]
    if len(text) > most_chars:
        tokens.append("...")
    return " ".join(tokens)


def _inert(match: re.Match[str]) -> str:
    word = match[0]
    if match[2] is not None:
        return f"{match[1]}{span(match[2])}{match[3]}"
    if not match.start() and _BLOCK.fullmatch(word):
        return span(word)
    if _PLAIN.fullmatch(word) or _SIGN.fullmatch(word):
        return word
    ended = _END.fullmatch(word)
    return f"{span(ended[1])}{ended[2]}" if ended is not None else span(word)


def span(text: str) -> str:
    """A text as a code span, in one line; empty: nothing."""
    shown = visible(" ".join(text.split()))
    if not shown:
        return ""
    runs = {len(run) for run in re.findall("`+", shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def block(text: str, *, most_chars: int = 4_000) -> str:
    """A text as a code block of its own, lines and all."""
    shown = visible(text[:most_chars]) + ("\n..." if len(text) > most_chars else "")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{shown.strip(chr(10))}\n{fence}"


def cell(text: str, *, most_chars: int = 300) -> str:
    """A text within a cell of a table, where `|` would end it, even in a code span."""
    return inline(text, most_chars=most_chars).replace("|", "\\|")

"""Patterns of paths, as in `.gitignore`. They match in linear time, because their author may be hostile.

Each pattern becomes one regular expression with atomic groups, which never backtracks. No match is lost: the earliest
position of each literal part leaves the most input for the rest.
"""

import re
from collections.abc import Iterable, Iterator

MAX_CHARS = 200
MAX_DOUBLE_STARS = 8
_MAX_STARS = 2
_ANY = "[^/]"
_END = r"(?=/|\Z)"
"""The end of a name. A match without backtracking must consume the complete name."""


class PathPatterns:
    """Patterns that match a path if one of them does. A directory matches together with its content.

    Args:
        patterns: Patterns as in `.gitignore`. Negation (`!`) is not supported; comments and empty lines match nothing.

    Raises:
        ValueError: A pattern is malformed.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._expressions = [re.compile(text) for pattern in patterns if (text := _expression(pattern))]

    def match(self, path: str) -> bool:
        """Whether a pattern matches a path. The path of a directory ends with a slash."""
        return any(expression.match(path) for expression in self._expressions)


def check_pattern(pattern: str) -> None:
    """Check that a pattern is well formed, is within the limits, and can match a path.

    Raises:
        ValueError: The check fails; the message gives the reason.
    """
    segments = pattern.split("/")
    if len(pattern) > MAX_CHARS:
        raise ValueError(f"{pattern[:80]!r} has more than {MAX_CHARS} characters; shorten it")
    if any(segment != "**" and segment.count("*") > _MAX_STARS for segment in segments):
        raise ValueError(
            f"{pattern[:80]!r} has more than {_MAX_STARS} '*' between two slashes; write several patterns"
        )
    if segments.count("**") > MAX_DOUBLE_STARS:
        raise ValueError(f"{pattern[:80]!r} has more than {MAX_DOUBLE_STARS} '**'; write several patterns")
    if any(segment in (".", "..") for segment in segments) or "//" in pattern:
        raise ValueError(
            f"{pattern!r} matches no path, because it contains '.', '..' or an empty name; remove them"
        )
    if "[[:" in pattern:
        raise ValueError(
            f"{pattern!r} has a class of characters such as '[[:alpha:]]', which is not supported; list the characters"
        )
    PathPatterns([pattern])


def _expression(pattern: str) -> str | None:
    """Return the regular expression of a pattern; None if the pattern matches nothing."""
    kept = pattern if pattern.endswith("\\ ") else pattern.rstrip()
    if not kept or kept.startswith("#") or not kept.strip("/"):
        return None
    is_anchored = "/" in kept.rstrip("/")
    segments = kept.strip("/").split("/")
    if not is_anchored:
        segments.insert(0, "**")
    is_within = segments[-1] == "**"
    while len(segments) > 1 and segments[-1] == "**":
        segments.pop()
    if segments == ["**"]:
        return f"{_ANY}*/" if kept.endswith("/") else _ANY
    is_directory = is_within or kept.endswith("/")
    return _joined(segments) + ("/" if is_directory else r"(?:/|\Z)")


def _joined(segments: Iterable[str]) -> str:
    """Return an expression for segments, where `**` stands for any number of directories."""
    text, is_first = "", True
    for is_free, run in _runs(segments):
        names = "/".join(map(_segment, run))
        # Lazy and atomic: only the first matching position is tried.
        lead = f"(?:{_ANY}+/)*?" if is_free else ""
        text += ("" if is_first else "/") + (f"(?>{lead}{names})" if is_free else names)
        is_first = False
    return text


def _runs(segments: Iterable[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield the segments between `**`, and whether a `**` precedes them."""
    is_free, run = False, list[str]()
    for segment in segments:
        if segment != "**":
            run.append(segment)
            continue
        if run:
            yield is_free, run
        is_free, run = True, []
    yield is_free, run


def _segment(glob: str) -> str:
    """Return an expression for one name."""
    if glob == "*":
        return f"{_ANY}+"
    chunks = _chunks(glob)
    if len(chunks) == 1:
        return chunks[0] + _END
    first, *middle, last = chunks
    between = "".join(f"(?>{_ANY}*?{chunk})" for chunk in middle if chunk)
    # The last chunk must end the name, so it has only one possible position.
    return rf"{first}{between}(?>{_ANY}*?{last}{_END})"


def _chunks(glob: str) -> list[str]:
    """Return expressions for the parts between the stars of one name."""
    chunks, position = [""], 0
    while position < len(glob):
        char = glob[position]
        position += 1
        if char == "*":
            chunks.append("")
        elif char == "?":
            chunks[-1] += _ANY
        elif char == "[":
            text, position = _bracket(glob, position)
            chunks[-1] += text
        elif char == "\\":
            if position == len(glob):
                raise ValueError(f"{glob!r} ends in a backslash that escapes nothing")
            chunks[-1] += re.escape(glob[position])
            position += 1
        else:
            chunks[-1] += re.escape(char)
    return chunks


def _bracket(glob: str, start: int) -> tuple[str, int]:
    """Return the expression of a set of characters, and its end."""
    position = start
    is_negated = glob[position : position + 1] in ("!", "^")
    position += is_negated
    end = glob.find("]", position + 1)
    if end < 0:
        raise ValueError(f"{glob!r} has a '[' without a ']'")
    inner = "".join(char if char == "-" else re.escape(char) for char in glob[position:end])
    text = f"(?!/)[{'^' if is_negated else ''}{inner}]"
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"{glob!r} has an invalid range of characters: {exc}") from exc
    return text, end + 1

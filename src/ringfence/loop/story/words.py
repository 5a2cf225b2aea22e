"""Compares text from plans, and formats it for messages without control characters."""

import re
import unicodedata

from ringfence.escape import visible

_MAX_QUOTED_CHARS = 80
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")


def quoted(text: object) -> str:
    """Return a value for a message: one line of about 80 characters at most, with control characters escaped."""
    if isinstance(text, dict):
        return "a mapping"
    if isinstance(text, list):
        return "a list"
    shown = repr(text[: _MAX_QUOTED_CHARS + 1] if isinstance(text, str) else text)
    return shown if len(shown) <= _MAX_QUOTED_CHARS + 2 else f"{shown[:_MAX_QUOTED_CHARS]}..."


def id_key(text: str) -> str:
    """Return a key that is equal for ids that people or file systems regard as the same."""
    return unicodedata.normalize("NFKC", text).casefold()


def is_plain(text: str, *, lines: bool = False) -> bool:
    """Return whether a text contains neither control characters nor lone surrogates.

    Args:
        text: The text.
        lines: Whether line breaks and tabs are allowed.
    """
    return (_LINES if lines else _CONTROL).search(text) is None and SURROGATE.search(text) is None


def is_printable(text: str) -> bool:
    """Return whether every character of a text is visible or a space."""
    return visible(text, one_line=True) == text


def one_line(text: str, max_chars: int) -> str:
    """Return a text as one line with invisible characters escaped; a longer text is cut, and ends with `...`."""
    words = printable(" ".join(text.split()), max_chars + 1)
    return words if len(words) <= max_chars else f"{words[: max_chars - 3].rstrip()}..."


def printable(text: str, max_chars: int) -> str:
    """Return a text for a file, truncated, with invisible characters escaped and line breaks kept."""
    shown = visible(text[:max_chars])
    return shown if len(text) <= max_chars else f"{shown}..."

"""Text that a stranger wrote: compared, and shown in one harmless line."""

import re
import unicodedata

from ringfence.escape import visible

_SHOWN = 80
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
SURROGATE = re.compile(r"[\ud800-\udfff]")


def quoted(text: object) -> str:
    """Return a value as a message shows it: one line, nothing active for a terminal, at most about 80 characters."""
    if isinstance(text, dict):
        return "a mapping"
    if isinstance(text, list):
        return "a list"
    shown = repr(text[: _SHOWN + 1] if isinstance(text, str) else text)
    return shown if len(shown) <= _SHOWN + 2 else f"{shown[:_SHOWN]}..."


def id_key(text: str) -> str:
    """Return what two ids have in common that people, or file systems, take for the same."""
    return unicodedata.normalize("NFKC", text).casefold()


def is_plain(text: str, *, lines: bool = False) -> bool:
    """Return whether it holds no control character, nor half a surrogate pair.

    Args:
        text: The text.
        lines: Whether it may have line breaks and tabs.
    """
    return (_LINES if lines else _CONTROL).search(text) is None and SURROGATE.search(text) is None


def is_printable(text: str) -> bool:
    """Return whether every character of it shows, or is a space."""
    return visible(text, one_line=True) == text


def one_line(text: str, max_chars: int) -> str:
    """Return the first words of a text, what does not show spelled out; cut with `...` where there are more."""
    words = printable(" ".join(text.split()), max_chars + 1)
    return words if len(words) <= max_chars else f"{words[: max_chars - 3].rstrip()}..."


def printable(text: str, max_chars: int) -> str:
    """Return a text for a file: bounded, what does not show spelled out by its code, line breaks kept."""
    shown = visible(text[:max_chars])
    return shown if len(text) <= max_chars else f"{shown}..."

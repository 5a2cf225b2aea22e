"""Tells the lines of a patch apart, as git writes it without detecting renames. Its files may have any contents."""

import re
from typing import Literal

LineKind = Literal["file", "hunk", "content", "other"]
"""The first line of a file's part, the heading of a hunk, a line of contents with its sign, or another line."""
_FILE = b"diff --git "
_HUNK = re.compile(
    rb"@@ -(?P<removed_from>\d{1,18})(?:,(?P<removed>\d{1,18}))?"
    rb" \+(?P<added_from>\d{1,18})(?:,(?P<added>\d{1,18}))? @@"
)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


class LineClassifier:
    """Classifies the lines of one patch. By the lengths of hunks, contents are never taken for anything else."""

    def __init__(self) -> None:
        self._removed = self._added = 0
        """The numbers of lines before and after the change that the current hunk still has."""

    def classify(self, line: bytes) -> LineKind:
        """Return the kind of the next line; only its beginning is needed, unless it is the heading of a hunk."""
        first = line[:1]
        if first == b"\\":  # the line before has no line end
            return "content"
        if self._removed > 0 or self._added > 0:
            self._removed -= first != b"+"
            self._added -= first != b"-"
            return "content"
        if line.startswith(_FILE):
            return "file"
        hunk = _HUNK.match(line)
        if hunk is None:
            return "other"
        self._removed, self._added = (int(count or b"1") for count in hunk.group("removed", "added"))
        return "hunk"


def hunk_start(line: bytes) -> tuple[int, int] | None:
    """Return the numbers of a hunk's first line before and after the change; None: this is not its heading."""
    hunk = _HUNK.match(line)
    return None if hunk is None else (int(hunk["removed_from"]), int(hunk["added_from"]))


def path_of(line: bytes) -> bytes:
    """Return the path in the first line of a file's part, `diff --git a/PATH b/PATH`: both halves have the same path."""
    names = line.removeprefix(_FILE)
    return unquote(names[: (len(names) - 1) // 2]).removeprefix(b"a/")


def unquote(path: bytes) -> bytes:
    """Decode a path as git prints it in lines: in quotes, with C's escapes, if it has characters that need them."""
    return _ESCAPE.sub(_unescape, path[1:-1]) if path.startswith(b'"') else path


def _unescape(found: re.Match[bytes]) -> bytes:
    text = found[1]
    return bytes([int(text, 8) & 0xFF]) if text.isdigit() else _ESCAPED.get(text, text)

"""Reads git's patches as files, hunks and lines, as many as a report has room for."""

import re
from collections.abc import Sequence
from itertools import pairwise

from ringfence.frozen import frozen
from ringfence.loop.report.model import FileStat, Hunk, Stat

MAX_FILES = 200
MAX_LINES = 2_000
"""Of one diff that are shown."""
MAX_REPORT_LINES = 20_000
"""Of all diffs of a report together."""
_MAX_LINE_CHARS = 400
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_LETTERS = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_NOTES = {b"new file mode 100644": "added", b"new file mode 100755": "added, executable"}
_KINDS = {
    b"120000": "symbolic link",
    b"160000": "submodule",
    b"100755": "executable",
    b"100644": "not executable",
}


class PatchReader:
    """Reads the patches of one report: the first ones have all the room, so no report grows without bound.

    Args:
        max_lines: That all diffs of the report may have together.
    """

    def __init__(self, max_lines: int = MAX_REPORT_LINES) -> None:
        self._room = max_lines

    def read(self, patch: bytes, *, is_partial: bool = False) -> Stat:
        """Read a patch that git wrote without looking for renames. The contents of its files may be anything.

        Args:
            patch: The patch.
            is_partial: Whether it is the beginning of a longer one.
        """
        lines, room = patch.split(b"\n"), min(self._room, MAX_LINES)
        starts = [*_find_files(lines), len(lines)]
        files = list[FileStat]()
        for start, end in pairwise(starts):
            file = _read_file(lines[start:end], room if len(files) < MAX_FILES else 0)
            used = sum(len(hunk.lines) for hunk in file.hunks)
            room, self._room = room - used, self._room - used
            files.append(file)
        insertions, deletions = sum(file.insertions for file in files), sum(file.deletions for file in files)
        return Stat(tuple(files[:MAX_FILES]), len(files), insertions, deletions, is_partial)


@frozen
class _Span:
    """Where a hunk's lines are among those of the patch."""

    before: int
    after: int
    start: int
    end: int


def _find_files(lines: Sequence[bytes]) -> list[int]:
    """Find the first line of each file. A line of a file's contents is never taken for one: hunks are skipped."""
    found, position = list[int](), 0
    while position < len(lines):
        if lines[position].startswith(b"diff --git "):
            found.append(position)
        span = _span_at(lines, position)
        position = span.end if span is not None else position + 1
    return found


def _span_at(lines: Sequence[bytes], position: int) -> _Span | None:
    heading = _HUNK.match(lines[position])
    if heading is None:
        return None
    before, after = (int(heading[group] or 1) for group in (2, 4))
    end = position + 1
    while end < len(lines) and (before > 0 or after > 0 or lines[end].startswith(b"\\")):
        sign = lines[end][:1]
        before, after = before - (sign in b" -"), after - (sign in b" +")
        end += 1
    return _Span(int(heading[1]), int(heading[3]), position + 1, end)


def _read_file(lines: Sequence[bytes], room: int) -> FileStat:
    hunks, note, is_binary, is_cut = list[Hunk](), "", False, False
    insertions, deletions, position = 0, 0, 1
    while position < len(lines):
        line, span = lines[position], _span_at(lines, position)
        if span is None:
            note = _read_note(line) or note
            is_binary = is_binary or line == b"GIT binary patch" or line.startswith(b"Binary files ")
            position += 1
            continue
        texts = [each for each in lines[span.start : span.end] if each]
        insertions += sum(each.startswith(b"+") for each in texts)
        deletions += sum(each.startswith(b"-") for each in texts)
        shown = tuple(map(_read_line, texts[:room]))
        if shown:
            hunks.append(Hunk(span.before, span.after, shown))
        is_cut, room, position = is_cut or len(shown) < len(texts), room - len(shown), span.end
    return FileStat(_read_path(lines[0]), insertions, deletions, is_binary, note, tuple(hunks), is_cut)


def _read_note(line: bytes) -> str:
    if line.startswith(b"deleted file mode "):
        return "deleted"
    if line.startswith((b"new file mode ", b"new mode ")):
        kind = _KINDS.get(line[-6:], "")
        return _NOTES.get(line) or (f"added, {kind}" if line.startswith(b"new file") else f"now {kind}")
    return ""


def _read_line(line: bytes) -> str:
    text = line.decode("utf-8", "surrogateescape")
    return text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]}..."


def _read_path(heading: bytes) -> str:
    """The path of `diff --git a/PATH b/PATH`: without renames it is the same twice, so either half has it."""
    both = heading.removeprefix(b"diff --git ")
    half = both[len(both) // 2 + 1 :]
    if half.startswith(b'"'):
        half = _ESCAPE.sub(lambda match: _unescape(match[1]), half[1:-1])
    return half.removeprefix(b"b/").decode("utf-8", "surrogateescape")


def _unescape(code: bytes) -> bytes:
    return bytes([_LETTERS[code[0]] if len(code) == 1 else int(code, 8)])

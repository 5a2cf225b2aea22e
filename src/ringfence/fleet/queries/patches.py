"""Reads the patch in a run's record page by page, since it may have up to 256 MiB."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from ringfence.errors import RecordError
from ringfence.job.outcome import PATCH_NAME
from ringfence.journal.layout import open_regular
from ringfence.sandbox.workspace.snapshot.patch import LineClassifier, hunk_start, path_of
from ringfence.sandbox.workspace.snapshot.store import PATCH_LIMIT_BYTES

_MAX_LINE_CHARS = 4000
_MAX_READ_BYTES = 64 * 1024
"""Lines are read in pieces of at most this size. No path is longer, so that the names of a file are in one piece."""


@dataclass
class PatchFile:
    """One file of a patch."""

    path: str
    """The path relative to the workspace; bytes that are not valid UTF-8 are written as `\\xNN`."""
    start: int
    """The byte offset of the file's part of the patch."""
    end: int = 0
    kind: str = "modified"
    """`added`, `modified` or `deleted`."""
    insertions: int = 0
    deletions: int = 0
    is_binary: bool = False
    mode: str = ""
    """The mode after the change, if it changed."""


def read_files(run: Path) -> tuple[PatchFile, ...]:
    """The files of the patch in a run's directory, in the order of the patch; empty if there is no patch.

    Raises:
        RecordError: The patch cannot be read, or is larger than any patch that a run exports.
    """
    file = run / PATCH_NAME
    try:
        known = file.stat(follow_symlinks=False)
    except FileNotFoundError:
        return ()
    except OSError as exc:
        raise RecordError(f"the patch of run {run.name!r} cannot be read: {exc.strerror}") from exc
    if known.st_size > PATCH_LIMIT_BYTES:
        raise RecordError(
            f"the patch of run {run.name!r} has more than {PATCH_LIMIT_BYTES} bytes, the limit of patches"
        )
    return _index(file, known.st_size, known.st_mtime_ns)


@dataclass(frozen=True)
class PatchLines:
    """A page of the patch of one file."""

    lines: list[str]
    total: int
    """The number of lines of all pages."""
    numbers: tuple[int, int] | None
    """The line numbers before and after the change at the start of the page; None: no hunk has begun there."""


def read_lines(run: Path, path: str, *, offset: int, limit: int) -> PatchLines:
    """Some lines of a file's part of the patch. Lines of binary files are left out.

    Args:
        run: The run's directory.
        path: The file, as in `PatchFile.path`.
        offset: The first line, counted from 0.
        limit: The maximum number of lines; each is cut at 4,000 characters.

    Raises:
        RecordError: The patch has no such file, or cannot be read.
    """
    parts = [each for each in read_files(run) if each.path == path]
    if not parts:
        raise RecordError(f"the patch of run {run.name!r} has no file {path[:200]!r}")
    page = _Page(offset, limit)
    try:
        with open_regular(run / PATCH_NAME) as file:
            for part in parts:
                _read_part(file, part, page)
    except OSError as exc:
        raise RecordError(f"the patch of run {run.name!r} cannot be read: {exc.strerror}") from exc
    return PatchLines([_shown(line) for line in page.lines], page.total, page.numbers)


class _Page:
    """Takes the lines of a part of a patch one by one, and keeps those of one page.

    Args:
        offset: The first line of the page, counted from 0.
        limit: The maximum number of its lines.
    """

    def __init__(self, offset: int, limit: int) -> None:
        self._offset, self._limit = offset, limit
        self.lines: list[bytes] = []
        self.total = 0
        self.numbers: tuple[int, int] | None = None
        """The line numbers before and after the change at the start of the page."""

    def add(self, line: bytes) -> None:
        if self._offset <= self.total < self._offset + self._limit:
            self.lines.append(line)
        elif self.total < self._offset:
            self._count(line)
        self.total += 1

    def _count(self, line: bytes) -> None:
        # Content lines begin with a space, a sign or a backslash, so a line that begins with `@@ ` is a hunk header.
        if line.startswith(b"@@ "):
            self.numbers = hunk_start(line)
        elif self.numbers is not None:
            removed, added = self.numbers
            self.numbers = removed + (line[:1] in (b" ", b"-")), added + (line[:1] in (b" ", b"+"))


def _read_part(file: BinaryIO, part: PatchFile, page: _Page) -> None:
    """Add the lines of a file's part of the patch to a page; content of binary files is left out."""
    file.seek(part.start)
    for line in _lines(file, part.end - part.start):
        if part.is_binary and line == b"GIT binary patch":
            return
        page.add(line)


def _lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the beginnings of the lines in the next bytes of a file, without line ends."""
    while size > 0 and (line := file.readline(min(size, _MAX_READ_BYTES))):
        size -= len(line)
        yield line.removesuffix(b"\n")
        while size > 0 and not line.endswith(b"\n") and (line := file.readline(min(size, _MAX_READ_BYTES))):
            size -= len(line)


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return text if len(text) <= _MAX_LINE_CHARS else f"{text[:_MAX_LINE_CHARS]} …"


@lru_cache(maxsize=2)
def _index(file: Path, _size: int, _mtime_ns: int) -> tuple[PatchFile, ...]:
    try:
        with open_regular(file) as patch:
            return tuple(_Indexer(patch).files())
    except OSError as exc:
        raise RecordError(f"the patch {str(file)!r} cannot be read: {exc.strerror}") from exc


class _Indexer:
    """One pass over the lines of a patch."""

    def __init__(self, patch: BinaryIO) -> None:
        self._patch = patch
        self._files: list[PatchFile] = []

    def files(self) -> list[PatchFile]:
        position, classifier = 0, LineClassifier()
        is_continued = False
        while line := self._patch.readline(_MAX_READ_BYTES):
            kind = None if is_continued else classifier.classify(line)
            if kind == "file":
                if self._files:
                    self._files[-1].end = position
                self._files.append(PatchFile(_path(line.removesuffix(b"\n")), position))
            elif kind == "content" and self._files:
                self._files[-1].insertions += line.startswith(b"+")
                self._files[-1].deletions += line.startswith(b"-")
            elif kind == "other" and self._files:
                self._read_head(self._files[-1], line)
            position += len(line)
            is_continued = not line.endswith(b"\n")
        if self._files:
            self._files[-1].end = position
        return self._files

    def _read_head(self, found: PatchFile, line: bytes) -> None:
        if line.startswith(b"new file mode "):
            found.kind = "added"
        elif line.startswith(b"deleted file mode "):
            found.kind = "deleted"
        elif line.startswith(b"new mode "):
            found.mode = line[len(b"new mode ") :].strip().decode("ascii", "replace")
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            found.is_binary = True


def _path(line: bytes) -> str:
    return os.fsdecode(path_of(line)).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")

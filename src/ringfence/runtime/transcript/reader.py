"""Reads a transcript incrementally: whole records, none twice, none skipped, with damage reported.

Whoever wrote the transcript may have put anything in its place: a link to another file, a FIFO that would block the
reader for ever, a directory. Only a regular file is opened, and no link is followed below the directory that the user
named.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ringfence.errors import RecordError, UsageError
from ringfence.runtime.transcript.record import Damage, Item, LineSplitter, parse, parse_rest

_CHUNK_BYTES = 256 * 1024
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_BYTES = 64
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class SourceFile:
    """An open transcript.

    Args:
        path: The file.
        below: A directory above it; no link is followed on the way from there. Default: its parent.

    Raises:
        UsageError: There is no such file, or it is none that can hold a transcript.
        RecordError: It cannot be read.
    """

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        self.path = path
        self._fd = _open(path, below or path.parent)
        self.position = 0
        """Behind the last byte that was read."""
        self._last = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, size: int) -> bytes:
        """Up to `size` more bytes; none at its end.

        Raises:
            RecordError: The disk failed.
        """
        try:
            chunk = os.pread(self._fd, size, self.position)
        except OSError as exc:
            raise RecordError(f"{str(self.path)!r} cannot be read on: {exc.strerror}; try again") from exc
        self.position += len(chunk)
        self._last = (self._last + chunk[-_KEPT_BYTES:])[-_KEPT_BYTES:]
        return chunk

    def change(self) -> str | None:
        """How the file stopped being the one that was read so far: `removed`, `replaced`, `truncated`, `rewritten`.

        A file that was only added to is unchanged: None.
        """
        here = os.fstat(self._fd)
        try:
            there = self.path.lstat()
        except OSError:
            return "removed"
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            return "replaced"
        if here.st_size < self.position:
            return "truncated"
        before = os.pread(self._fd, len(self._last), self.position - len(self._last))
        return None if before == self._last else "rewritten"


def _open(path: Path, below: Path) -> int:
    *folders, name = path.relative_to(below).parts or (".",)
    held: list[int] = []
    try:
        folder = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.append(folder)
        for each in folders:
            folder = os.open(each, _DIRECTORY, dir_fd=folder)
            held.append(folder)
        _check(path, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError as exc:
        raise _failed(path, exc) from exc
    finally:
        for each_fd in held:
            os.close(each_fd)
    try:
        _check(path, os.fstat(fd).st_mode)
    except UsageError:
        os.close(fd)
        raise
    return fd


def _check(path: Path, mode: int) -> None:
    kind = next((name for test, name in _KINDS if test(mode)), None)
    if kind is not None:
        raise UsageError(
            f"{str(path)!r} is {kind}, not a transcript; name the .jsonl file itself, "
            "`ringfence session ls` lists them"
        )


def _failed(path: Path, error: OSError) -> UsageError | RecordError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        reason = "a link is on the way to it" if error.errno == errno.ELOOP else error.strerror
        return UsageError(
            f"there is no transcript {str(path)!r}: {reason}; `ringfence session ls` lists them"
        )
    return RecordError(
        f"the transcript {str(path)!r} cannot be read: {error.strerror}; see to its permissions, "
        "or be the user whose session it is"
    )


class TranscriptReader:
    """Reads one file, by byte offset.

    Args:
        path: The file.
        below: As `SourceFile`.

    Raises:
        UsageError, RecordError: As `SourceFile`.
    """

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        self.path = path
        self._below = below
        self._is_removal_told = False
        self._source = SourceFile(path, below=below)
        self._splitter = LineSplitter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def offset(self) -> int:
        """Behind the last whole line that was read."""
        return self._splitter.offset

    @property
    def line(self) -> int:
        """The number of the next line."""
        return self._splitter.number

    @property
    def position(self) -> int:
        """Behind the last byte that was read."""
        return self._source.position

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()

    def take(self, limit_bytes: int = _CHUNK_BYTES) -> list[Item] | None:
        """What the next bytes hold; None if there are no more of them now.

        Args:
            limit_bytes: How many at most.

        Raises:
            RecordError: The disk failed.
        """
        chunk = self._source.read(min(limit_bytes, _CHUNK_BYTES))
        if not chunk:
            return None
        return [item for line in self._splitter.feed(chunk) for item in parse(line)]

    def rest(self) -> list[Item]:
        """The last line, if it has no end. To be called when nothing more is waited for."""
        line = self._splitter.rest()
        return [] if line is None else parse_rest(line)

    def reopen_if_changed(self) -> Damage | None:
        """Begin anew if the file is not the one any more that was read so far; say so.

        One that was removed and has no successor yet is kept: another may come.

        Raises:
            UsageError, RecordError: What came in its place is no file that can be read.
        """
        change = self._source.change()
        if change is None or (change == "removed" and self._is_removal_told):
            return None
        if change == "removed":
            self._is_removal_told = True
            return Damage(self.line, self.offset, 0, None, "the file was removed while it was read")
        self._is_removal_told = False
        reason = f"the file was {change} while it was read; it is read anew from its first line"
        told = Damage(self.line, self.offset, 0, None, reason)
        source = SourceFile(self.path, below=self._below)
        self._source.close()
        self._source = source
        self._splitter = LineSplitter()
        return told


def read_items(path: Path, *, below: Path | None = None, until_bytes: int | None = None) -> Iterator[Item]:
    """All that a file holds, in order.

    Args:
        path: The file.
        below: As `SourceFile`.
        until_bytes: Take the file as if it ended there.

    Raises:
        UsageError, RecordError: As `SourceFile`.
    """
    with TranscriptReader(path, below=below) as reader:
        while until_bytes is None or reader.position < until_bytes:
            items = reader.take(_CHUNK_BYTES if until_bytes is None else until_bytes - reader.position)
            if items is None:
                break
            yield from items
        yield from reader.rest()

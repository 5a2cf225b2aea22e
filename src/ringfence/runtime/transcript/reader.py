"""Reads a transcript incrementally: complete records, none twice, none skipped, and reports damage.

The writer of a transcript may have replaced it with anything: a link to another file, a FIFO that would block the
reader forever, a directory. Only a regular file is opened, and no link is followed below the directory that the user
named.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from ringfence.errors import RecordError, UsageError
from ringfence.runtime.transcript.record import Damage, Item, LineSplitter, parse, parse_rest

_CHUNK_BYTES = 256 * 1024
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TAIL_BYTES = 64
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class TranscriptReader:
    """Reads one file from its beginning, and continues as the file grows.

    Args:
        path: The file.
        below: A directory above it; no link is followed on the way from there. Default: its parent.

    Raises:
        UsageError: There is no such file, or it is not a regular file.
        RecordError: It cannot be read.
    """

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        self.path = path
        self._below = below or path.parent
        self._is_removal_reported = False
        self._fd = -1
        self._open()

    def _open(self) -> None:
        """Begin with the first line of the current file."""
        fd = _open(self.path, self._below)
        self.close()
        self._fd = fd
        self.position = 0
        """The offset after the last byte that was read."""
        self._tail = b""
        self._splitter = LineSplitter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def offset(self) -> int:
        """The offset after the last complete line that was read."""
        return self._splitter.offset

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def take(self, limit_bytes: int = _CHUNK_BYTES) -> list[Item] | None:
        """Return the items in the next bytes; None if there are no more bytes now.

        Args:
            limit_bytes: The maximum number of bytes to read.

        Raises:
            RecordError: The disk failed.
        """
        try:
            chunk = os.pread(self._fd, min(limit_bytes, _CHUNK_BYTES), self.position)
        except OSError as exc:
            raise RecordError(
                f"{str(self.path)!r} cannot be read further: {exc.strerror}; try again"
            ) from exc
        if not chunk:
            return None
        self.position += len(chunk)
        self._tail = (self._tail + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        return [item for line in self._splitter.feed(chunk) for item in parse(line)]

    def rest(self) -> list[Item]:
        """Return the last line, if it is incomplete. To be called when the file is not expected to grow."""
        line = self._splitter.rest()
        return [] if line is None else parse_rest(line)

    def reopen_if_changed(self) -> Damage | None:
        """Start over if the file is no longer the one that was read so far, and report that.

        A file that was removed and has no successor yet stays open, because another may be created.

        Raises:
            UsageError, RecordError: The new file cannot be read.
        """
        change = self._change()
        if change is None or (change == "removed" and self._is_removal_reported):
            return None
        line, offset = self._splitter.number, self.offset
        self._is_removal_reported = change == "removed"
        if change == "removed":
            return Damage(line, offset, 0, None, "the file was removed while it was read")
        self._open()
        reason = f"the file was {change} while it was read; it is read anew from its first line"
        return Damage(line, offset, 0, None, reason)

    def _change(self) -> str | None:
        """Return how the file differs from the one that was read; None if it only grew."""
        here = os.fstat(self._fd)
        try:
            there = self.path.lstat()
        except OSError:
            return "removed"
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            return "replaced"
        if here.st_size < self.position:
            return "truncated"
        before = os.pread(self._fd, len(self._tail), self.position - len(self._tail))
        return None if before == self._tail else "rewritten"


def read_items(path: Path, *, below: Path | None = None, until_bytes: int | None = None) -> Iterator[Item]:
    """Yield all items of a file, in order.

    Args:
        path: The file.
        below: As for `TranscriptReader`.
        until_bytes: Read the file as if it ended there.

    Raises:
        UsageError, RecordError: As `TranscriptReader`.
    """
    with TranscriptReader(path, below=below) as reader:
        while until_bytes is None or reader.position < until_bytes:
            items = reader.take(_CHUNK_BYTES if until_bytes is None else until_bytes - reader.position)
            if items is None:
                break
            yield from items
        yield from reader.rest()


@contextmanager
def opened_folder(below: Path, folders: Sequence[str]) -> Iterator[int]:
    """Open a directory without following a link on the way from `below`.

    Raises:
        OSError: It is absent, a link is on the way, or it cannot be opened.
    """
    with ExitStack() as held:
        fd = os.open(below, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, fd)
        for each in folders:
            fd = os.open(each, _DIRECTORY, dir_fd=fd)
            held.callback(os.close, fd)
        yield fd


def _open(path: Path, below: Path) -> int:
    *folders, name = path.relative_to(below).parts or (".",)
    try:
        with opened_folder(below, folders) as folder:
            _check(path, os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            fd = os.open(name, _FILE, dir_fd=folder)
    except OSError as exc:
        raise _failed(path, exc) from exc
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
        f"the transcript {str(path)!r} cannot be read: {error.strerror}; check its permissions, "
        "or run the command as the user who owns it"
    )

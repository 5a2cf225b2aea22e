"""A transcript's file: opened only if it is a regular one, read on from an offset, watched for being changed.

Whoever wrote the transcript may have put anything in its place: a link to another file, a FIFO that would make
us wait for ever, a directory. Links are never followed, below the directory that the user named.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Self

from ringfence.errors import RecordError, UsageError

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

"""Removes and replaces directory trees an agent may have written: however deep, however closed, never through a link.

Directories are moved up to the top one before they are emptied, so that two open ones do for any depth: a walk
that recurses, or holds each level open, ends with an error where an agent nested a few thousand.
"""

import ctypes
import errno
import itertools
import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2
_NOT_HERE = (errno.ENOSYS, errno.EINVAL)

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 1000
"""Names read before they are acted on."""


def remove_tree(path: Path, *, limit_s: float = math.inf) -> None:
    """Remove the directory `path` with all in it. What is left by an error, a second call removes.

    Args:
        path: The directory.
        limit_s: Where somebody else may still write in it: so long at most, for he can go on for ever.

    Raises:
        OSError: Something in it cannot be removed, or `path` is a link.
        TimeoutError: It was not empty after `limit_s`.
    """
    deadline_s = time.monotonic() + limit_s
    prefix = secrets.token_hex(8)
    free_names = (f"{prefix}-{number}" for number in itertools.count())
    with _opened(path) as top:
        for name, is_directory in _entries(top, deadline_s):
            if is_directory:
                _dissolve(name, top, free_names, deadline_s)
            else:
                os.unlink(name, dir_fd=top)
    path.rmdir()


def _dissolve(name: str, top: int, free_names: Iterator[str], deadline_s: float) -> None:
    """Remove the directory `name` of `top`; the directories in it become directories of `top`."""
    with _opened(name, dir_fd=top) as here:
        for inner, is_directory in _entries(here, deadline_s):
            if is_directory:
                with _opened(inner, dir_fd=here):  # one that is closed to its owner cannot be moved
                    os.rename(inner, next(free_names), src_dir_fd=here, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=here)
    os.rmdir(name, dir_fd=top)


def _entries(directory: int, deadline_s: float) -> Iterator[tuple[str, bool]]:
    """Names and whether they are directories, until none is left: whoever asks removes what is given."""
    while True:
        with os.scandir(directory) as found:
            some = [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in itertools.islice(found, _AT_ONCE)
            ]
        if not some:
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(errno.ETIMEDOUT, "it does not get empty")
        yield from some


@contextmanager
def _opened(path: str | Path, *, dir_fd: int | None = None) -> Iterator[int]:
    """A descriptor of a directory, whose owner gets its rights on it back."""
    # O_PATH needs no right on the directory itself, and pins what is changed.
    pinned = os.open(path, os.O_PATH | _DIRECTORY, dir_fd=dir_fd)
    try:
        if os.fstat(pinned).st_mode & 0o700 != 0o700:
            Path(f"/proc/self/fd/{pinned}").chmod(0o700)
        opened = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=pinned)
    finally:
        os.close(pinned)
    try:
        yield opened
    finally:
        os.close(opened)


def put_in_place(fresh: Path, old: Path) -> None:
    """Put `fresh` where `old` is, and remove `old`. Both are on one file system.

    Raises:
        OSError: It could not be done; `old` is as it was.
    """
    if _exchange(fresh, old):
        remove_tree(fresh)
        return
    aside = fresh.with_name(f"{fresh.name}.old")
    old.rename(aside)
    try:
        fresh.rename(old)
    except OSError:
        aside.rename(old)
        raise
    remove_tree(aside)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names at once (renameat2(2)); False where the C library or the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    names = os.fsencode(first), os.fsencode(second)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_HERE:
        return False
    raise OSError(code, os.strerror(code), str(second))

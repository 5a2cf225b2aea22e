"""Putting one directory in the place of another, so that at no time there is none."""

import ctypes
import errno
import os
from pathlib import Path

from ringfence.removal import remove_tree

_AT_FDCWD = -100
_EXCHANGE = 2
_NOT_HERE = (errno.ENOSYS, errno.EINVAL)


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

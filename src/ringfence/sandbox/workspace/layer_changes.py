"""What the upper layer of an overlay says of the lower one: files that came, went or became others.

The format is the kernel's (https://docs.kernel.org/filesystems/overlayfs.html): a character device 0:0 stands for
a name that is gone, the attribute `trusted.overlay.opaque` for a directory below which nothing of the lower one is
seen. An agent chose the names, so both layers are walked by descriptors, within bounds, and what lies beyond them is
named.
"""

import errno
import os
import stat
from dataclasses import field
from pathlib import Path
from typing import Literal

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.tree import Tree

MAX_ENTRIES = 1_000_000
_OPAQUE = "trusted.overlay.opaque"
_CHUNK_BYTES = 1024**2
_BEYOND = "beyond the number of entries that are looked at"

LayerKind = Literal["added", "modified", "deleted"]


@frozen
class LayerChanges:
    """What differs between the layers; paths are bytes relative to them."""

    files: dict[bytes, LayerKind] = field(default_factory=dict)
    """Everything but directories."""
    unseen: dict[bytes, str] = field(default_factory=dict)
    """Directories that were not looked into to their end, and why; empty for the top."""


def changes_between(lower: Path, upper: Path) -> LayerChanges:
    """Compare two layers. Only directories and files that the upper one has are looked at.

    Raises:
        OSError: One of them cannot be opened.
    """
    with Tree(lower) as below, Tree(upper) as above:
        walk = _Walk(below, above)
        walk.compare()
        return walk.changes


class _Walk:
    def __init__(self, below: Tree, above: Tree) -> None:
        self.changes = LayerChanges()
        self._below = below
        self._above = above
        self._left = MAX_ENTRIES
        self._pending: list[tuple[bytes, bool]] = [(b"", False)]

    def compare(self) -> None:
        while self._pending:
            folder, hides = self._pending.pop()
            try:
                fd = self._above.directory(folder)
                is_opaque = _is_opaque(fd)
                names = os.listdir(fd)  # noqa: PTH208 - by descriptor
            except OSError as exc:
                self.changes.unseen[folder] = exc.strerror or str(exc)
                continue
            prefix = folder + b"/" if folder else b""
            paths = [prefix + os.fsencode(name) for name in names]
            if self._is_spent(folder, len(paths)):
                continue
            if is_opaque and not hides:
                self._gone_below(folder, but=set(paths))
            for path in paths:
                self._look_at(path, hides=hides or is_opaque)

    def _look_at(self, path: bytes, *, hides: bool) -> None:
        status = self._above.lstat(path)
        if status is None:
            return
        old = self._below.lstat(path)
        if _is_whiteout(status):
            self._gone(path, old)
        elif stat.S_ISDIR(status.st_mode):
            is_new = hides or old is None or not stat.S_ISDIR(old.st_mode)
            if is_new:
                self._gone(path, old)
            self._pending.append((path, is_new))
        elif old is None:
            self.changes.files[path] = "added"
        elif stat.S_ISDIR(old.st_mode):
            self._gone(path, old)
            self.changes.files[path] = "added"
        elif not self._is_same(path, status, old):
            self.changes.files[path] = "modified"
        else:
            # It may have been taken for gone: its directory was removed and made again.
            self.changes.files.pop(path, None)

    def _gone(self, path: bytes, old: os.stat_result | None) -> None:
        if old is not None and stat.S_ISDIR(old.st_mode):
            self._gone_below(path)
        elif old is not None:
            self.changes.files[path] = "deleted"

    def _gone_below(self, folder: bytes, but: set[bytes] | None = None) -> None:
        """All files of a lower directory are hidden; those that are there again are met later."""
        pending = [folder]
        while pending:
            here = pending.pop()
            try:
                names = os.listdir(self._below.directory(here))  # noqa: PTH208 - by descriptor
            except OSError as exc:
                if exc.errno not in {errno.ENOENT, errno.ENOTDIR}:
                    self.changes.unseen[here] = exc.strerror or str(exc)
                continue
            if self._is_spent(here, len(names)):
                return
            for name in names:
                path = (here + b"/" if here else b"") + os.fsencode(name)
                if but is not None and path in but:
                    continue
                status = self._below.lstat(path)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                elif status is not None:
                    self.changes.files[path] = "deleted"

    def _is_spent(self, folder: bytes, entries: int) -> bool:
        self._left -= entries
        if self._left < 0:
            self.changes.unseen[folder] = _BEYOND
        return self._left < 0

    def _is_same(self, path: bytes, status: os.stat_result, old: os.stat_result) -> bool:
        """A file that was only touched, or written with what it held, has been copied up all the same."""
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(old.st_mode):
            return False
        if stat.S_ISLNK(status.st_mode):
            return self._target(self._above, path) == self._target(self._below, path)
        if not stat.S_ISREG(status.st_mode):
            return status.st_rdev == old.st_rdev
        if (status.st_size, status.st_mode & 0o777) != (old.st_size, old.st_mode & 0o777):
            return False
        return self._equal_contents(path)

    @staticmethod
    def _target(tree: Tree, path: bytes) -> bytes:
        fd, name = tree.parent(path)
        return os.readlink(name, dir_fd=fd)

    def _equal_contents(self, path: bytes) -> bool:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened = []
        try:
            for tree in (self._above, self._below):
                fd, name = tree.parent(path)
                opened.append(os.open(name, flags, dir_fd=fd))
            while True:
                chunk = os.read(opened[0], _CHUNK_BYTES)
                if chunk != os.read(opened[1], _CHUNK_BYTES):
                    return False
                if not chunk:
                    return True
        finally:
            for file in opened:
                os.close(file)


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _is_opaque(fd: int) -> bool:
    try:
        return os.getxattr(fd, _OPAQUE) == b"y"
    except OSError as exc:
        if exc.errno in {errno.ENODATA, errno.EOPNOTSUPP}:
            return False
        raise

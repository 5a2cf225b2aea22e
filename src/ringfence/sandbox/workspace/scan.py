"""Which of the listed files changed since the last checkpoint, by their status where it can be trusted."""

import errno
import hashlib
import os
import stat
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from ringfence.sandbox.workspace.tree import Tree, may_be_hollow

_TICK_NS = 20_000_000  # file times come from a clock that stands still for up to 10 ms
_COARSE_NS = 2_000_000_000  # ... and on some file systems for up to 2 s
_SECOND_NS = 1_000_000_000
_Known = TypeVar("_Known")
NO_FILE = "neither a file nor a link"
"""Why a fifo, socket or device is not covered."""
HOLLOW = "a sparse file, most of which is not on disk"


class Entry(msgspec.Struct, array_like=True, gc=False):
    """What was known of a file when it was last read."""

    ctime_ns: int
    size: int
    inode: int
    mode: int
    blob: bytes


class StatCache(msgspec.Struct):
    """The files of the last checkpoint, beside the store."""

    tree: str = ""
    """The tree that holds them; empty before the first checkpoint."""
    began_ns: int = 0
    """When that checkpoint was begun: files changed later than shortly before it are read again."""
    entries: dict[bytes, Entry] = {}
    listing: bytes = b""
    """Digest of the list of files to cover that it was taken by; empty where there is none."""
    absent: list[bytes] = []
    """Files of that list that are not among the entries."""
    private: frozenset[bytes] | None = None
    """Files that nobody but their owner has rights on."""


@dataclass
class Scan:
    """How a directory differs from the cache."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    """Files that are as they were."""
    lost: set[bytes] = field(default_factory=set)
    """Files of the cache that are not."""
    suspects: dict[bytes, int] = field(default_factory=dict)
    """Files that have to be read, and their sizes; of sparse ones that on disk, as they are not read."""
    skipped: dict[bytes, str] = field(default_factory=dict)
    """Files that are not covered, and why."""
    linked: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Files that have more than one name: inode, and how many names it has."""

    def suspect(self, path: bytes, status: os.stat_result) -> None:
        """Take a file for one that has to be read, or skip what is none."""
        if status.st_nlink > 1:
            self.note_links(path, status)
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            self.suspects[path] = status.st_blocks * 512 if may_be_hollow(status) else status.st_size
        elif not stat.S_ISDIR(status.st_mode):
            self.skipped[path] = NO_FILE

    def note_links(self, path: bytes, status: os.stat_result) -> None:
        """Remember a file that has more names."""
        if stat.S_ISREG(status.st_mode):
            self.linked[path] = (status.st_ino, status.st_nlink)

    def narrow(self, paths: set[bytes]) -> None:
        """Forget all files but those at `paths`."""
        if not self.entries.keys() <= paths:
            self.lost |= self.entries.keys() - paths
            self.entries = {path: entry for path, entry in self.entries.items() if path in paths}
        self.suspects = {path: size for path, size in self.suspects.items() if path in paths}
        self.skipped = {path: why for path, why in self.skipped.items() if path in paths}
        self.linked = {path: names for path, names in self.linked.items() if path in paths}

    def cut(self, limit_bytes: int, first: Container[bytes]) -> None:
        """Skip what is beyond a limit, preferring to keep the files in `first`."""
        total = 0
        for path in sorted(self.suspects, key=lambda path: (path not in first, path)):
            total += self.suspects[path]
            if total > limit_bytes:
                del self.suspects[path]
                self.skipped[path] = f"beyond {limit_bytes} bytes in all"

    def add(self, other: "Scan") -> None:
        """Take over what was found elsewhere."""
        self.entries.update(other.entries)
        self.suspects.update(other.suspects)
        self.skipped.update(other.skipped)
        self.linked.update(other.linked)


def is_settled(ctime_ns: int, began_ns: int) -> bool:
    """Whether a change since `began_ns` would have left another change time than this one."""
    if ctime_ns >= began_ns - _TICK_NS:
        return False
    return ctime_ns < began_ns - _COARSE_NS or ctime_ns % _SECOND_NS != 0


def scan_known(tree: Tree, cache: StatCache) -> Scan:
    """Compare the status of each file of the cache with it."""
    found = Scan(entries=dict(cache.entries))
    look = os.stat  # once: it is called fifty thousand times
    horizon, coarse = cache.began_ns - _TICK_NS, cache.began_ns - _COARSE_NS
    for fd, files in _opened(tree, cache.entries, found):
        for name, path, entry in files:
            try:
                status = look(name, dir_fd=fd, follow_symlinks=False)
            except OSError as exc:
                _note_unreadable(found, exc, [path])
                found.lost.add(path)
                continue
            ctime = status.st_ctime_ns
            if not (
                # No change of contents, size, mode or times leaves the change time as it was, and no user can
                # set it.
                entry.ctime_ns == ctime
                and entry.inode == status.st_ino
                and entry.size == status.st_size
                # As `is_settled`, in place: the hot path.
                and ctime < horizon
                and (ctime < coarse or ctime % _SECOND_NS)
            ):
                found.lost.add(path)
                found.suspect(path, status)
            elif status.st_nlink > 1:
                found.note_links(path, status)
    for path in found.lost:
        del found.entries[path]
    return found


def scan_new(tree: Tree, paths: Iterable[bytes]) -> Scan:
    """Look at files that the cache does not know."""
    found = Scan()
    for fd, files in _opened(tree, dict.fromkeys(paths), found):
        for name, path, _ in files:
            try:
                found.suspect(path, os.stat(name, dir_fd=fd, follow_symlinks=False))
            except OSError as exc:
                _note_unreadable(found, exc, [path])
    return found


def _opened(
    tree: Tree, known: Mapping[bytes, _Known], found: Scan
) -> Iterator[tuple[int, list[tuple[bytes, bytes, _Known]]]]:
    """Each directory opened, with names and paths of the files in it and what is known of them."""
    folders: dict[bytes, list[tuple[bytes, bytes, _Known]]] = {}
    for path, entry in known.items():
        folder, _, name = path.rpartition(b"/")
        try:
            folders[folder].append((name, path, entry))
        except KeyError:
            folders[folder] = [(name, path, entry)]
    for folder, files in sorted(folders.items()):
        try:
            fd = tree.directory(folder)
        except OSError as exc:
            paths = [path for _, path, _ in files]
            _note_unreadable(found, exc, paths)
            found.lost |= known.keys() & set(paths)
        else:
            yield fd, files


def _note_unreadable(found: Scan, error: OSError, paths: Iterable[bytes]) -> None:
    """A file that is gone is just not there; one that we may not look at is reported."""
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
        return
    found.skipped.update(dict.fromkeys(paths, os.strerror(error.errno or 0).lower()))


@dataclass(frozen=True)
class Content:
    """A file as read now."""

    path: bytes
    git_mode: int
    data: bytes
    entry: Entry


def read_batch(
    tree: Tree, paths: Iterator[bytes], *, batch_bytes: int, file_limit_bytes: int, skipped: dict[bytes, str]
) -> list[Content]:
    """Read files until about `batch_bytes` are together; an empty list at the end."""
    batch: list[Content] = []
    gathered = 0
    for path in paths:
        try:
            data, status = tree.read(path, file_limit_bytes, holes=False)
        except OSError as exc:
            if exc.errno == errno.EFBIG:
                skipped[path] = f"larger than {file_limit_bytes} bytes"
            elif exc.errno == errno.ENODATA:
                skipped[path] = HOLLOW
            elif exc.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                skipped[path] = os.strerror(exc.errno or 0).lower()
            continue
        batch.append(Content(path, git_mode(status.st_mode), data, entry_of(status, blob_id(data))))
        gathered += len(data) + 1000
        if gathered >= batch_bytes:
            break
    return batch


def git_mode(mode: int) -> int:
    """The mode a git tree gives a file or link."""
    if stat.S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & stat.S_IXUSR else 0o100644


def entry_of(status: os.stat_result, blob: bytes) -> Entry:
    """The cache's entry of a file that was read when it had this status."""
    return Entry(status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode, blob)


def blob_id(data: bytes) -> bytes:
    """The id git gives these contents (SHA-1 as git's format has it, not as a guard against forgery)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()

"""Which of the listed files changed since the last checkpoint, by their status where it can be trusted."""

import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.snapshot.known import UNSETTLED, Entry, KnownFiles, Packed, group
from ringfence.sandbox.workspace.snapshot.second_process import Answers
from ringfence.sandbox.workspace.snapshot.statuses import count_as_known
from ringfence.sandbox.workspace.tree import SET_ID, Tree, may_be_hollow

_TICK_NS = 20_000_000  # file times come from a clock that stands still for up to 10 ms
_COARSE_NS = 2_000_000_000  # ... and on some file systems for up to 2 s
_SECOND_NS = 1_000_000_000
_AT_ONCE = 32
"""Directories between two looks at what a second process answered."""
NO_FILE = "neither a file nor a link"
"""Why a fifo, socket or device is not covered."""
HOLLOW = "a sparse file, most of which is not on disk"


@dataclass
class Scan:
    """How a directory differs from the cache."""

    known: KnownFiles = field(default_factory=lambda: KnownFiles({}))
    """Files of the last checkpoint."""
    lost: set[bytes] = field(default_factory=set)
    """Those of them that are not as they were."""
    read: dict[bytes, Entry] = field(default_factory=dict)
    """Files that were read since."""
    suspects: dict[bytes, int] = field(default_factory=dict)
    """Files that have to be read, and their sizes; of sparse ones that on disk, as they are not read."""
    skipped: dict[bytes, str] = field(default_factory=dict)
    """Files that are not covered, and why."""
    linked: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Files that have more than one name: inode, and how many names it has."""
    set_id: set[bytes] = field(default_factory=set)
    """Those of `suspects` that are set-user-ID or set-group-ID."""

    def suspect(self, path: bytes, status: os.stat_result) -> None:
        """Take a file for one that has to be read, or skip what is none."""
        if status.st_nlink > 1:
            self.note_links(path, status)
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            self.suspects[path] = status.st_blocks * 512 if may_be_hollow(status) else status.st_size
            if stat.S_ISREG(status.st_mode) and status.st_mode & SET_ID:
                self.set_id.add(path)
        elif not stat.S_ISDIR(status.st_mode):
            self.skipped[path] = NO_FILE

    def note_links(self, path: bytes, status: os.stat_result) -> None:
        """Remember a file that has more names."""
        if stat.S_ISREG(status.st_mode):
            self.linked[path] = (status.st_ino, status.st_nlink)

    def forget(self, paths: Iterable[bytes]) -> None:
        """Leave out files that are to be covered no more."""
        for path in paths:
            self.lost.add(path)
            self.suspects.pop(path, None)
            self.skipped.pop(path, None)
            self.linked.pop(path, None)
            self.set_id.discard(path)

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
        self.suspects.update(other.suspects)
        self.skipped.update(other.skipped)
        self.linked.update(other.linked)
        self.set_id.update(other.set_id)

    def changed_set_id(self) -> list[bytes]:
        """Set-id files that are new, or hold something else than at the last checkpoint, or got the bits since."""

        def is_as_known(path: bytes) -> bool:
            was, now = self.known.get(path), self.read.get(path)
            return bool(was and now and (was.blob, was.mode) == (now.blob, now.mode))

        return sorted(path for path in self.set_id if not is_as_known(path))


def is_settled(ctime_ns: int, began_ns: int) -> bool:
    """Whether a change since `began_ns` would have left another change time than this one."""
    if ctime_ns >= began_ns - _TICK_NS:
        return False
    return ctime_ns < began_ns - _COARSE_NS or ctime_ns % _SECOND_NS != 0


def scan_known(
    tree: Tree, known: KnownFiles, *, recalled: Container[bytes] = (), answers: Answers | None = None
) -> Scan:
    """Compare the status of each known file with what is known of it.

    Args:
        tree: Where they are.
        known: The files.
        recalled: Directories that hold the names they held, and are reached through no link.
        answers: What a second process finds meanwhile.
    """
    found = Scan(known)
    root = tree.directory(b"")
    for (folder, packed), is_answered in _shared(known.in_order, answers or Answers()):
        # No directory is opened that was just seen to be the one it was.
        if folder not in recalled:
            _scan_folder(tree, folder, packed, found)
        elif not is_answered:
            first = count_as_known(folder, packed.names, packed.status, root=root)
            if first <= packed.names.count(b"\0"):
                _scan_folder(tree, folder, packed, found, first=first)
    return found


def _shared(
    folders: list[tuple[bytes, Packed]], answers: Answers
) -> Iterator[tuple[tuple[bytes, Packed], bool]]:
    """All directories, and whether a second process, which begins at their end, found all in them as known."""
    place, end = 0, len(folders)
    while place < end:
        if place % _AT_ONCE == 0:
            end = max(place, len(folders) - len(answers.told()))
        if place < end:
            yield folders[place], False
            place += 1
    yield from zip(reversed(folders[place:]), map(bool, answers.told()), strict=False)


def _scan_folder(tree: Tree, folder: bytes, packed: Packed, found: Scan, *, first: int = 0) -> None:
    names, *columns = packed.columns()
    prefix = folder + b"/" if folder else b""
    try:
        fd = tree.directory(folder)
    except OSError as exc:
        paths = [prefix + name for name in names]
        _note_unreadable(found, exc, paths)
        found.lost.update(paths)
        return
    look = os.stat  # once: it may be called fifty thousand times
    for name, ctime, inode, size in itertools.islice(zip(names, *columns, strict=True), first, None):
        try:
            status = look(name, dir_fd=fd, follow_symlinks=False)
        except OSError as exc:
            _note_unreadable(found, exc, [prefix + name])
            found.lost.add(prefix + name)
            continue
        # No change of contents, size, mode or times leaves the change time as it was, and no user can set it;
        # one that was not settled when the file was read is not known.
        if not (status.st_ctime_ns == ctime and status.st_ino == inode and status.st_size == size):
            found.lost.add(prefix + name)
            found.suspect(prefix + name, status)
        elif status.st_nlink > 1:
            found.note_links(prefix + name, status)


def scan_new(tree: Tree, paths: Iterable[bytes]) -> Scan:
    """Look at files of which nothing is known."""
    found = Scan()
    for folder, names in sorted(group(paths).items()):
        prefix = folder + b"/" if folder else b""
        try:
            fd = tree.directory(folder)
        except OSError as exc:
            _note_unreadable(found, exc, [prefix + name for name in names])
            continue
        for name in names:
            try:
                found.suspect(prefix + name, os.stat(name, dir_fd=fd, follow_symlinks=False))
            except OSError as exc:
                _note_unreadable(found, exc, [prefix + name])
    return found


def _note_unreadable(found: Scan, error: OSError, paths: Iterable[bytes]) -> None:
    """A file that is gone is just not there; one that we may not look at is reported."""
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
        return
    found.skipped.update(dict.fromkeys(paths, os.strerror(error.errno or 0).lower()))


@frozen
class Content:
    """A file as read now."""

    path: bytes
    git_mode: int
    data: bytes
    entry: Entry


def read_batch(
    tree: Tree,
    paths: Iterator[bytes],
    *,
    began_ns: int,
    batch_bytes: int,
    file_limit_bytes: int,
    skipped: dict[bytes, str],
) -> list[Content]:
    """Read files until about `batch_bytes` are together; an empty list at the end.

    Args:
        tree: Where they are.
        paths: Those still to be read.
        began_ns: When the checkpoint was begun: what changed later than shortly before will be read again.
        batch_bytes: How much to hold.
        file_limit_bytes: How long a file may be.
        skipped: Is given those that are not read, and why.
    """
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
        batch.append(
            Content(path, git_mode(status.st_mode), data, _entry_of(status, blob_id(data), began_ns))
        )
        gathered += len(data) + 1000
        if gathered >= batch_bytes:
            break
    return batch


def git_mode(mode: int) -> int:
    """The mode a git tree gives a file or link."""
    if stat.S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & stat.S_IXUSR else 0o100644


def _entry_of(status: os.stat_result, blob: bytes, began_ns: int) -> Entry:
    ctime_ns = status.st_ctime_ns if is_settled(status.st_ctime_ns, began_ns) else UNSETTLED
    return Entry(ctime_ns, status.st_size, status.st_ino, status.st_mode, blob)


def blob_id(data: bytes) -> bytes:
    """The id git gives these contents (SHA-1 as git's format has it, not as a guard against forgery)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()

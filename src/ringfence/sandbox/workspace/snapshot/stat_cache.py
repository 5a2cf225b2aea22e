"""Implements the stat cache: the files of the last snapshot with their status when they were read.

It is stored beside the store. A file whose status is as cached has the same contents: any change of contents, size,
mode or times updates the change time, which no user can set. That holds only for a change time that was old enough when
the file was read, as a second change within one tick of the clock leaves no trace.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

_TICK_NS = 20_000_000  # file times come from a clock with a resolution of up to 10 ms
_COARSE_NS = 2_000_000_000  # ... and on some file systems for up to 2 s
_SECOND_NS = 1_000_000_000
UNSETTLED = -(2**63)
"""A change time that no file has: the file was changed so shortly before it was read that it must be read again."""


class Entry(msgspec.Struct, array_like=True, gc=False):
    """A file's status and the id of its contents when it was last read."""

    ctime_ns: int
    size: int
    inode: int
    mode: int
    blob: bytes

    @classmethod
    def of(cls, status: os.stat_result, blob: bytes, began_ns: int) -> "Entry":
        """Make an entry for a file that was just read by a snapshot that began at `began_ns`."""
        ctime_ns = status.st_ctime_ns if _is_settled(status.st_ctime_ns, began_ns) else UNSETTLED
        return cls(ctime_ns, status.st_size, status.st_ino, status.st_mode, blob)


Folders = dict[bytes, dict[bytes, Entry]]
"""Files by directory and name."""


class Tracked(msgspec.Struct, array_like=True, frozen=True):
    """Git's listing of a repository's index."""

    digest: bytes
    """Digest of the index."""
    paths: bytes
    """All its files, separated by NUL."""
    submodules: tuple[bytes, ...] = ()


class StatCache(msgspec.Struct):
    """The files of the last snapshot of a workspace."""

    folders: Folders
    """Required: without these fields nothing else in the file can be trusted."""
    tree: str = ""
    """The tree that holds them; empty before the first snapshot."""
    private: frozenset[bytes] = frozenset()
    """Files on which only their owner has rights."""
    tracked: dict[bytes, Tracked] = {}
    """Indexes by repository; empty: the workspace's own."""

    def __contains__(self, path: object) -> bool:
        return isinstance(path, bytes) and self.get(path) is not None

    def get(self, path: bytes) -> Entry | None:
        """The entry of a file; None if there is none."""
        folder, _, name = path.rpartition(b"/")
        return self.folders.get(folder, {}).get(name)

    def __len__(self) -> int:
        return sum(map(len, self.folders.values()))

    def __iter__(self) -> Iterator[bytes]:
        for folder, files in self.folders.items():
            prefix = folder + b"/" if folder else b""
            yield from [prefix + name for name in files]

    def update(self, lost: set[bytes], read: dict[bytes, Entry], tree: str) -> None:
        """Turn this into the cache of a later snapshot.

        Args:
            lost: Files that were removed or changed.
            read: Files that were read since.
            tree: The tree that holds the files now.
        """
        for path in lost:
            folder, _, name = path.rpartition(b"/")
            self.folders[folder].pop(name, None)
            if not self.folders[folder]:
                del self.folders[folder]
        for path, entry in read.items():
            folder, _, name = path.rpartition(b"/")
            self.folders.setdefault(folder, {})[name] = entry
        modes = ((path, entry.mode) for path, entry in read.items())
        private = {path for path, mode in modes if not mode & 0o077 and stat.S_ISREG(mode)}
        self.private, self.tree = (self.private - lost) | private, tree


def _is_settled(ctime_ns: int, began_ns: int) -> bool:
    """Whether a change after `began_ns` would have produced a different change time from this one."""
    if ctime_ns >= began_ns - _TICK_NS:
        return False
    return ctime_ns < began_ns - _COARSE_NS or ctime_ns % _SECOND_NS != 0


def load_cache(path: Path) -> StatCache:
    """The cache at `path`; an empty one if it is absent, damaged or of version 0.1: then all files are read."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=StatCache)
    except (OSError, msgspec.DecodeError):
        return StatCache({})


def save_cache(path: Path, cache: StatCache) -> None:
    """Replace the cache at `path` in one step."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".new")
    partial.write_bytes(msgspec.msgpack.encode(cache))
    partial.replace(path)

"""The files of the last checkpoint and the status that each had, directory by directory.

Packed: of fifty thousand files next to nothing is looked at but their status on disk, and an object for each of them
costs more than the asking does.
"""

import struct
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Self

import msgspec

from ringfence.sandbox.workspace.snapshot.statuses import form, split_columns

_ID_BYTES = 20
UNSETTLED = -(2**63)
"""A change time that no file has: it was so young when the file was read that a later change may have the same."""


class Entry(msgspec.Struct, array_like=True, gc=False):
    """What was known of a file when it was last read."""

    ctime_ns: int
    """`UNSETTLED`: it is to be read again in any case."""
    size: int
    inode: int
    mode: int
    blob: bytes


class Packed(msgspec.Struct, array_like=True, gc=False):
    """The files in one directory: at least one."""

    names: bytes
    """Separated by NUL."""
    status: bytes
    """Of each the change time, then of each the inode, then of each the size: as 64 bits each."""
    modes: bytes
    """32 bits each."""
    blobs: bytes
    """The ids of the contents, 20 bytes each."""

    def columns(self) -> tuple[list[bytes], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Names, change times, inodes and sizes."""
        return split_columns(self.names, self.status)

    def entries(self) -> dict[bytes, Entry]:
        """All of them, by name."""
        names, ctimes, inodes, sizes = self.columns()
        modes = struct.unpack(f"={len(names)}I", self.modes)
        starts = range(0, len(self.blobs), _ID_BYTES)
        blobs = [self.blobs[start : start + _ID_BYTES] for start in starts]
        return dict(zip(names, map(Entry, ctimes, sizes, inodes, modes, blobs), strict=True))


def _pack(files: dict[bytes, Entry]) -> Packed:
    names = sorted(files)
    entries = [files[name] for name in names]
    return Packed(
        b"\0".join(names),
        struct.pack(
            form(len(files)),
            *[entry.ctime_ns for entry in entries],
            *[entry.inode for entry in entries],
            *[entry.size for entry in entries],
        ),
        struct.pack(f"={len(files)}I", *[entry.mode for entry in entries]),
        b"".join([entry.blob for entry in entries]),
    )


class Names(Collection[bytes]):
    """Paths of files. Never changes.

    Args:
        names: By the directory they lie in, separated by NUL.
    """

    def __init__(self, names: dict[bytes, bytes]) -> None:
        self._names = names
        self._count = sum(held.count(b"\0") + 1 for held in names.values())
        self._sets: dict[bytes, frozenset[bytes]] = {}

    @classmethod
    def of(cls, paths: Iterable[bytes]) -> Self:
        """These paths."""
        return cls({folder: b"\0".join(sorted(names)) for folder, names in group(paths).items()})

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for folder, names in self._names.items():
            prefix = folder + b"/" if folder else b""
            yield from [prefix + name for name in names.split(b"\0")]

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, bytes):
            return False
        folder, _, name = path.rpartition(b"/")
        return name in self._names_in(folder)

    def _names_in(self, folder: bytes) -> frozenset[bytes]:
        if folder not in self._names:
            return frozenset()
        if folder not in self._sets:
            self._sets[folder] = frozenset(self._names[folder].split(b"\0"))
        return self._sets[folder]

    def besides(self, folder: bytes, names: bytes) -> Collection[bytes]:
        """Those of some names, separated by NUL, that are not among those in a directory."""
        # Nearly always both are the same, and in order.
        if names == self._names.get(folder):
            return ()
        return frozenset(names.split(b"\0")) - self._names_in(folder)

    def minus(self, other: "Names") -> set[bytes]:
        """The paths that are not among others."""
        found: set[bytes] = set()
        for folder, names in self._names.items():
            prefix = folder + b"/" if folder else b""
            found.update(prefix + name for name in other.besides(folder, names))
        return found

    @property
    def by_folder(self) -> dict[bytes, bytes]:
        """The names by the directory they lie in, separated by NUL."""
        return self._names


class KnownFiles(Names):
    """Paths of files, with what was known of each. Never changes.

    Args:
        folders: The files by the directory they lie in.
    """

    def __init__(self, folders: dict[bytes, Packed]) -> None:
        super().__init__({folder: packed.names for folder, packed in folders.items()})
        self.folders = folders
        self._unpacked: dict[bytes, dict[bytes, Entry]] = {}

    @cached_property
    def in_order(self) -> list[tuple[bytes, Packed]]:
        """The directories by their paths."""
        return sorted(self.folders.items(), key=itemgetter(0))

    def get(self, path: bytes) -> Entry | None:
        """What was known of a file; None if there was none."""
        folder, _, name = path.rpartition(b"/")
        files = self._unpacked.get(folder)
        if files is None:
            packed = self.folders.get(folder)
            files = self._unpacked[folder] = packed.entries() if packed else {}
        return files.get(name)

    def changed(self, lost: Collection[bytes], read: dict[bytes, Entry]) -> "KnownFiles":
        """The same files without those that are lost, and with those that were read."""
        touched: dict[bytes, dict[bytes, Entry]] = {}

        def files_in(folder: bytes) -> dict[bytes, Entry]:
            if folder not in touched:
                packed = self.folders.get(folder)
                touched[folder] = packed.entries() if packed else {}
            return touched[folder]

        for path in lost:
            folder, _, name = path.rpartition(b"/")
            files_in(folder).pop(name, None)
        for path, entry in read.items():
            folder, _, name = path.rpartition(b"/")
            files_in(folder)[name] = entry
        folders = {**self.folders, **{folder: _pack(files) for folder, files in touched.items() if files}}
        for folder in (folder for folder, files in touched.items() if not files):
            folders.pop(folder, None)
        return KnownFiles(folders)


class StatCache(msgspec.Struct):
    """The files of the last checkpoint, as kept beside the store."""

    folders: dict[bytes, Packed]
    """No default: in what an earlier version wrote they are missing, and nothing of it is to be believed."""
    tree: str = ""
    """The tree that holds them; empty before the first checkpoint."""
    private: frozenset[bytes] = frozenset()
    """Files that nobody but their owner has rights on."""


def load_cache(path: Path) -> StatCache:
    """The cache at `path`; an empty one if it is absent or damaged, which costs a reading of all files."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=StatCache)
    except (OSError, msgspec.DecodeError):
        return StatCache({})


def save_cache(path: Path, cache: StatCache) -> None:
    """Replace the cache at `path` at once."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".new")
    partial.write_bytes(msgspec.msgpack.encode(cache))
    partial.replace(path)


def group(paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Names by the directory they lie in."""
    folders: dict[bytes, list[bytes]] = {}
    for path in paths:
        folder, _, name = path.rpartition(b"/")
        folders.setdefault(folder, []).append(name)
    return folders

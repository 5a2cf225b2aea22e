"""Determines which files the repositories in a workspace track, from copies of their indexes.

Git works on git directories that ringfence makes, which hold only such a copy, and on an empty work tree: it opens
neither the repositories nor the workspace. It is not run again for an index that is unchanged since the last snapshot.
"""

import hashlib
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import Git, write_clean_git_dir
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT, find_git, read_config, read_small
from ringfence.sandbox.workspace.run_as import Actor, scratch_directory
from ringfence.sandbox.workspace.snapshot.objects import quoted
from ringfence.sandbox.workspace.snapshot.stat_cache import Tracked
from ringfence.sandbox.workspace.snapshot.walk import MAX_NAMES_BYTES

_MAX_REPOSITORIES = 1000
_ROOM_FOR_INDEXES_BYTES = 256 * 1024**2
"""Size limit for the workspace's own index, which has about 100 bytes per file."""
_ROOM_WITHIN_BYTES = 64 * 1024**2
"""Total size limit for the indexes of nested repositories: copies, in a directory that may be in memory."""
_TIMEOUT_S = 60.0
_GITLINK = b"\x00\x00\xe0\x00"  # mode 160000 as an index entry holds it


@frozen
class Index:
    """The data read from a repository: its index and its ignore rules."""

    excludes: bytes = b""
    """Its own ignore rules that are not in a `.gitignore`."""
    data: bytes = b""
    shared_name: bytes = b""
    shared: bytes = b""
    """The index with which a split index shares entries."""
    objects: Path | None = None
    """The repository's objects, in which git finds the files of directories in a sparse index."""
    object_format: str = "sha1"
    is_left_out: bool = False
    """Whether it exceeded the size limit."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.data) + len(self.shared)

    @property
    def may_have_submodules(self) -> bool:
        """Whether there may be entries of commits."""
        return _GITLINK in self.data or _GITLINK in self.shared

    @property
    def digest(self) -> bytes:
        """Digest of everything that determines git's listing of it."""
        found = hashlib.sha256(f"{self.object_format} {len(self.data)} ".encode())
        found.update(self.data)
        found.update(self.shared)
        return found.digest()

    def write(self, directory: Path, *, with_objects: bool = False) -> None:
        """Make a git directory that holds only this index.

        Args:
            directory: A directory of ringfence.
            with_objects: Whether git may read the repository's objects.
        """
        write_clean_git_dir(directory, object_format=self.object_format)
        if with_objects and self.objects is not None:
            (directory / "objects" / "info" / "alternates").write_bytes(
                quoted(os.fsencode(self.objects)) + b"\n"
            )
        if self.data:
            (directory / "index").write_bytes(self.data)
        if self.shared_name:
            (directory / os.fsdecode(self.shared_name)).write_bytes(self.shared)


def read_index(work_tree: Path, *, room_bytes: int) -> Index | None:
    """Read a repository's index, and the one it shares entries with, if they fit; None without a repository."""
    layout = find_git(work_tree)
    if layout is None:
        return None
    excludes = read_small(layout.common, b"info/exclude") or b""
    data = _read_index(layout.directory, b"index", room_bytes)
    if not data:
        return Index(excludes, is_left_out=data is None)
    name = _shared_name(data, layout.directory)
    shared = _read_index(layout.directory, name, room_bytes - len(data)) if name else b""
    if shared is None:
        return Index(excludes, is_left_out=True)
    is_sha256 = read_config(layout.common).get("extensions.objectformat", "sha1").lower() == "sha256"
    return Index(excludes, data, name, shared, layout.objects, "sha256" if is_sha256 else "sha1")


@dataclass
class Repositories:
    """The repositories of one workspace; no process may be working in them.

    Args:
        root: The workspace.
        actor: The user as which git runs.
        known: Their indexes as git listed them for the last snapshot.
        is_trusted: Whether the repository in a directory may be read; false if a run made it.
    """

    root: Path
    actor: Actor
    known: Mapping[bytes, Tracked]
    is_trusted: Callable[[Path], bool]
    found: dict[bytes, Tracked] = field(default_factory=dict)
    """Their indexes as git lists them now."""
    tracked: set[bytes] = field(default_factory=set)
    """Paths in the indexes."""
    submodules: set[bytes] = field(default_factory=set)
    """Directories, ending in a slash, for which an index holds a commit."""
    excludes: dict[bytes, bytes] = field(default_factory=dict)
    """The ignore rules of each repository that are not in `.gitignore` files."""
    left_out: set[bytes] = field(default_factory=set)
    """Repositories that were not read, as there are too many."""
    notes: list[str] = field(default_factory=list)
    _room_within: int = field(default_factory=lambda: _ROOM_WITHIN_BYTES)
    _in_order: list[bytes] = field(default_factory=list)
    """`tracked` in sorted order, as of when it was last needed."""

    async def read(self, place: bytes) -> None:
        """Read a repository.

        Args:
            place: Its path in the workspace, ending in a slash; empty for the workspace itself.
        """
        if len(self.excludes) >= _MAX_REPOSITORIES:
            if not self.left_out:
                self.notes.append(f"only {_MAX_REPOSITORIES} git repositories in the workspace are covered")
            self.left_out.add(place)
            return
        work_tree = self.root / os.fsdecode(place.rstrip(b"/"))
        room = self._room_within if place else _ROOM_FOR_INDEXES_BYTES
        index = None
        if not self._is_part_of_outer(place) and await anyio.to_thread.run_sync(self.is_trusted, work_tree):
            index = await self.actor.call(lambda: read_index(work_tree, room_bytes=room))
        if index is None and place and place not in self.submodules:
            return  # Git treats it as part of the repository around it.
        index = index or Index()
        if place:
            self._room_within -= index.size
        self.excludes[place] = index.excludes
        name = os.fsdecode(place) or "."
        if index.is_left_out:
            self.notes.append(f"the git index of {name!r} is too large to be used")
        if not index.data:
            return
        try:
            tracked = await self._tracked(place, index)
        except InfrastructureFault:
            # An index that cannot be used: sparse, damaged, of a newer git.
            self.notes.append(f"the git index of {name!r} was not used: files that are ignored are left out")
            return
        self.found[place] = tracked
        self.submodules.update(place + path + b"/" for path in tracked.submodules)
        paths = tracked.paths.split(b"\0") if tracked.paths else []
        self.tracked.update([place + path for path in paths] if place else paths)

    def _is_part_of_outer(self, place: bytes) -> bool:
        """Whether an index holds files below a place, which git then treats as a directory whatever its contents are."""
        if not place:
            return False
        if len(self._in_order) != len(self.tracked):
            self._in_order = sorted(self.tracked)
        at = bisect_left(self._in_order, place)
        return at < len(self._in_order) and self._in_order[at].startswith(place)

    async def _tracked(self, place: bytes, index: Index) -> Tracked:
        digest = await anyio.to_thread.run_sync(lambda: index.digest)
        known = self.known.get(place)
        return known if known and known.digest == digest else await self._ask_git(place, index, digest)

    async def _ask_git(self, place: bytes, index: Index, digest: bytes) -> Tracked:
        async with scratch_directory(self.actor) as scratch:
            # An agent could write those of nested repositories.
            await self.actor.call(lambda: index.write(scratch, with_objects=not place))
            await self.actor.call((scratch / "nothing").mkdir)
            answer = await Git(scratch, scratch / "nothing", self.actor).run(
                "ls-files",
                "-z",
                "-s" if index.may_have_submodules else "-c",
                timeout_s=_TIMEOUT_S,
                output_limit_bytes=2 * MAX_NAMES_BYTES,
            )
        if answer.stderr:
            digest = b""  # objects are missing, and may exist next time
        listing = answer.stdout.removesuffix(b"\0")
        if not index.may_have_submodules or not listing:
            return Tracked(digest, listing)
        entries = [line.partition(b"\t")[::2] for line in listing.split(b"\0")]
        links = tuple(path for head, path in entries if head.startswith(b"160000 "))
        return Tracked(digest, b"\0".join(path for _, path in entries), links)


def _read_index(directory: Path, name: bytes, room_bytes: int) -> bytes | None:
    """Read an index file; empty if there is none, None if it does not fit."""
    data = read_small(directory, name, min(INDEX_LIMIT, max(0, room_bytes)))
    if data is None:
        path = directory / os.fsdecode(name)
        return None if path.is_file() and not path.is_symlink() else b""
    # A file that is not an index is of no use to git either.
    return data if data.startswith(b"DIRC") else b""


def _shared_name(index: bytes, directory: Path) -> bytes:
    """The shared index that a split one names, by its id in the extension `link` (gitformat-index(5)); empty if none."""
    if b"link\0" in index:
        for path in directory.glob("sharedindex.*"):
            found = re.fullmatch(r"sharedindex\.((?:[0-9a-f]{2}){20,32})", path.name)
            if found and bytes.fromhex(found[1]) in index:
                return os.fsencode(path.name)
    return b""

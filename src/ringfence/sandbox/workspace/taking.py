"""How a checkpoint is taken: list, compare with the last one, read what may have changed, hand it to git."""

import hashlib
import os
import stat
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.collector import paused_collector
from ringfence.sandbox.workspace.fast_import import import_changes
from ringfence.sandbox.workspace.git import Git
from ringfence.sandbox.workspace.listing import Listing
from ringfence.sandbox.workspace.memo import Mark, marks_of
from ringfence.sandbox.workspace.remembered import Remembered, load_remembered, save_remembered
from ringfence.sandbox.workspace.scan import (
    Content,
    Entry,
    Scan,
    StatCache,
    git_mode,
    read_batch,
    scan_known,
    scan_new,
)
from ringfence.sandbox.workspace.tree import Tree
from ringfence.sandbox.workspace.ways_out import links_note

FILE_LIMIT_BYTES = 100 * 1024**2
TOTAL_LIMIT_BYTES = 8 * 1024**3
_BATCH_BYTES = 32 * 1024**2

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Taken:
    """A tree that was put into the store."""

    commit: str
    tree: str
    entries: dict[bytes, Entry]
    skipped: dict[bytes, str]
    linked: dict[bytes, tuple[int, int]]
    """Files that have more than one name: inode, and how many names it has."""
    unlocked: tuple[bytes, ...]
    """Files that the owner could not read and was given the right to."""
    private: frozenset[bytes]
    """Files that nobody but their owner has rights on."""


class Taker:
    """Takes one checkpoint of one directory.

    Args:
        git: The store.
        root: The directory.
        actor: On whose behalf it is read.
        label: Name of the checkpoint's ref.
        shut: After a run: what its owner's rights are not given back on. Files beyond the total limit are
            skipped then. None: before one; such files are refused, rights stay as they are.
    """

    def __init__(
        self, git: Git, root: Path, actor: Actor, label: str, *, shut: Container[bytes] | None = None
    ) -> None:
        self._git = git
        self._root = root
        self._actor = actor
        self._shut = shut
        self._unlocked: list[bytes] = []
        key = cache_key(root)
        self._refs = (f"refs/ringfence/{label}", f"refs/ringfence-last/{key}")
        self._cache_file = git.directory / "cache" / key
        self._remembered_file = git.directory / "cache" / f"{key}.folders"
        self._cache = StatCache()
        self._found = Scan()
        self._is_continued = False
        """Whether a listing starts from the files of the last checkpoint."""
        self._digest = b""
        self._paths: set[bytes] | None = None
        """The files that are listed; None: those that the last checkpoint was taken by."""

    async def load(self) -> None:
        """Read what is known of the last checkpoint."""
        self._cache = await anyio.to_thread.run_sync(load_cache, self._cache_file)

    async def remembered(self) -> Remembered:
        """What earlier looks at the directory left to know."""
        return await anyio.to_thread.run_sync(load_remembered, self._remembered_file, self._actor.uid)

    async def remember(self, remembered: Remembered) -> None:
        """Keep it for the next one."""
        await anyio.to_thread.run_sync(save_remembered, self._remembered_file, remembered)

    def files_of(self, tree: str) -> set[bytes] | None:
        """The files of a tree, where it is that of the last checkpoint."""
        self._is_continued = tree == self._cache.tree
        return set(self._cache.entries) if self._is_continued else None

    async def prepare(self, after: anyio.Event) -> None:
        """Compare the files of the last checkpoint with the disk; which to cover is still being found.

        Args:
            after: To wait for: two threads that ask for the status of files hinder each other.
        """
        await after.wait()
        self._found = await self._in_tree(lambda tree: scan_known(tree, self._cache))

    async def take(self, listing: Listing, began_ns: int) -> Taken:
        """Put the files of a listing into the store.

        Args:
            listing: All files to cover.
            began_ns: When the work began, before `prepare`.
        """
        cache, found = self._cache, self._found
        new = self._new(listing)
        if new:
            found.add(await self._in_tree(lambda tree: scan_new(tree, new)))
        try:
            return await self._take(found, cache, began_ns)
        except InfrastructureFault:
            # The last tree may have been lost with a full disk or a crash; the files are still there.
            if not cache.tree:
                raise
            self._paths = paths = listing.paths
            found = await self._in_tree(lambda tree: scan_new(tree, paths))
            return await self._take(found, StatCache(), began_ns)

    def _new(self, listing: Listing) -> set[bytes]:
        """Files of the listing that the cache does not know; what only the cache knows is forgotten."""
        self._digest = listing.told.digest if listing.told else b""
        if self._digest and self._digest == self._cache.listing:
            return set(self._cache.absent)
        if self._is_continued and listing.new is not None:
            self._digest = b"" if listing.new else self._cache.listing
            return listing.new
        paths = listing.paths
        self._found.narrow(paths)
        self._paths = paths
        return paths - self._cache.entries.keys()

    async def links_note(self, taken: Taken, ignored: frozenset[bytes]) -> tuple[str, ...]:
        """Tell which files have names elsewhere."""
        return await self._in_tree(lambda tree: links_note(tree, taken.linked, ignored))

    async def marks(self, paths: Iterable[bytes]) -> dict[bytes, Mark]:
        """Tell what is at `paths` from what may be there later."""
        return await self._in_tree(lambda tree: marks_of(tree, paths))

    async def _take(self, found: Scan, cache: StatCache, began_ns: int) -> Taken:
        # Larger ones are not read at all, and named one by one.
        total = sum(size for size in found.suspects.values() if size <= FILE_LIMIT_BYTES)
        if total > TOTAL_LIMIT_BYTES:
            if self._shut is not None:
                found.cut(TOTAL_LIMIT_BYTES, cache.entries)
                return await self._keep(found, cache, began_ns)
            raise UsageError(
                f"the files of {str(self._root)!r} come to {total} bytes,"
                f" more than {TOTAL_LIMIT_BYTES}; name what need not be kept in .gitignore"
            )
        return await self._keep(found, cache, began_ns)

    async def _keep(self, found: Scan, cache: StatCache, began_ns: int) -> Taken:
        commit, tree = await self._import(found, cache)
        is_same = bool(cache.tree) and not found.suspects and len(found.entries) == len(cache.entries)
        private = cache.private if is_same and cache.private is not None else _private(found, cache)
        if not is_same or cache.listing != self._digest:
            known = StatCache(tree, began_ns, found.entries, self._digest, private=private)
            if self._digest:
                last = (*self._cache.absent, *self._cache.entries)
                listed = last if self._paths is None else self._paths
                known.absent = [path for path in listed if path not in found.entries]
            save_cache(self._cache_file, known)
        return Taken(commit, tree, found.entries, found.skipped, found.linked, tuple(self._unlocked), private)

    async def _import(self, found: Scan, cache: StatCache) -> tuple[str, str]:
        suspects = iter(found.suspects)
        gone = found.lost - found.suspects.keys()
        commit, tree = "", cache.tree
        while True:
            batch = await self._in_tree(
                lambda tree_: read_batch(
                    tree_,
                    suspects,
                    batch_bytes=_BATCH_BYTES,
                    file_limit_bytes=FILE_LIMIT_BYTES,
                    skipped=found.skipped,
                )
            )
            if not batch:
                # Files that went away, or grew too large, since they were listed.
                gone |= (cache.entries.keys() & set(found.suspects)) - found.entries.keys()
            changed = [content for content in batch if _differs(content, cache)]
            found.entries.update((content.path, content.entry) for content in batch)
            if changed or gone or not commit:
                commit, tree = await import_changes(
                    self._git, self._refs, base_tree=tree, deleted=gone, written=changed
                )
                gone = set()
            if not batch:
                return commit, tree

    async def _in_tree(self, work: Callable[[Tree], _Result]) -> _Result:
        unlock = 0 if self._shut is None else stat.S_IRUSR | stat.S_IXUSR

        def run() -> _Result:
            with Tree(self._root, unlock=unlock, shut=self._shut or ()) as tree:
                result = work(tree)
            self._unlocked += tree.unlocked
            return result

        return await self._actor.call(run)


def _private(found: Scan, cache: StatCache) -> frozenset[bytes]:
    """Files that nobody but their owner has rights on; those that are as they were need no look."""
    known = cache.private
    looked_at = found.entries.keys() if known is None else found.suspects.keys() & found.entries.keys()
    modes = ((path, found.entries[path].mode) for path in looked_at)
    private = {path for path, mode in modes if not mode & 0o077 and mode & 0o100000}
    return frozenset(
        private | {path for path in known or () if path in found.entries and path not in looked_at}
    )


def _differs(content: Content, cache: StatCache) -> bool:
    known = cache.entries.get(content.path)
    return known is None or known.blob != content.entry.blob or git_mode(known.mode) != content.git_mode


def cache_key(root: Path) -> str:
    """Name of the cache of a directory."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:32]


def load_cache(path: Path) -> StatCache:
    """The cache at `path`; an empty one if it is absent or damaged, which costs a reading of all files."""
    with paused_collector():
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=StatCache)
        except (OSError, msgspec.DecodeError):
            return StatCache()


def save_cache(path: Path, cache: StatCache) -> None:
    """Replace the cache at `path` at once."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".new")
    partial.write_bytes(msgspec.msgpack.encode(cache))
    partial.replace(path)

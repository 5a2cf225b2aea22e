"""How a checkpoint is taken: list, compare with the last one, read what may have changed, hand it to git."""

import hashlib
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.protect.hard_links import links_note
from ringfence.sandbox.workspace.run_as import Actor, both
from ringfence.sandbox.workspace.snapshot.fast_import import import_changes
from ringfence.sandbox.workspace.snapshot.known import KnownFiles, Names, StatCache, load_cache, save_cache
from ringfence.sandbox.workspace.snapshot.listing import Listing, LookedOver
from ringfence.sandbox.workspace.snapshot.memo import Mark, marks_of
from ringfence.sandbox.workspace.snapshot.remembered import Remembered, load_remembered, save_remembered
from ringfence.sandbox.workspace.snapshot.scan import (
    Content,
    Scan,
    git_mode,
    read_batch,
    scan_known,
    scan_new,
)
from ringfence.sandbox.workspace.snapshot.second_process import second_process
from ringfence.sandbox.workspace.tree import GONE, Tree

FILE_LIMIT_BYTES = 100 * 1024**2
TOTAL_LIMIT_BYTES = 8 * 1024**3
_BATCH_BYTES = 32 * 1024**2

_Result = TypeVar("_Result")


@frozen
class Taken:
    """A tree that was put into the store."""

    commit: str
    tree: str
    files: KnownFiles
    skipped: dict[bytes, str]
    linked: dict[bytes, tuple[int, int]]
    """Files that have more than one name: inode, and how many names it has."""
    unlocked: tuple[bytes, ...]
    """Files that the owner could not read and was given the right to."""
    private: frozenset[bytes]
    """Files that nobody but their owner has rights on."""
    disarmed: tuple[bytes, ...] = ()
    """Files that a run changed and that were set-id: their bits were taken off."""
    armed: tuple[bytes, ...] = ()
    """Such files whose bits could not be taken off: they are another user's."""


class Taker:
    """Takes one checkpoint of one directory.

    Args:
        git: The store.
        root: The directory.
        actor: On whose behalf it is read.
        label: Name of the checkpoint's ref.
        workspace: What the store is of. Of another directory, a clone, nothing is kept for the next time: what is
            known of the workspace tells which of its contents the store has.
        shut: After a run: what its owner's rights are not given back on. Files beyond the total limit are
            skipped then. None: before one; such files are refused, rights stay as they are.
    """

    def __init__(
        self,
        git: Git,
        root: Path,
        actor: Actor,
        label: str,
        *,
        workspace: Path,
        shut: Container[bytes] | None = None,
    ) -> None:
        self._git = git
        self._root = root
        self._actor = actor
        self._shut = shut
        self._unlocked: list[bytes] = []
        self._is_clone = root != workspace
        key = cache_key(workspace)
        self._refs = [f"refs/ringfence/{label}", *([] if self._is_clone else [f"refs/ringfence-last/{key}"])]
        self._cache_file = git.directory / "cache" / key
        self._remembered_file = git.directory / "cache" / f"{key}.folders"
        self._cache = StatCache({})
        self._known = KnownFiles({})
        self._found = Scan()

    async def load(self) -> Remembered:
        """Read what is known of the last checkpoint; what earlier looks at the directory left to know."""

        def read() -> tuple[StatCache, Remembered]:
            cache = load_cache(self._cache_file)
            if self._is_clone:
                return cache, Remembered()
            return cache, load_remembered(self._remembered_file, self._actor.uid)

        self._cache, remembered = await anyio.to_thread.run_sync(read)
        self._known = KnownFiles(self._cache.folders)
        return remembered

    async def remember(self, remembered: Remembered) -> None:
        """Keep it for the next one."""
        if not self._is_clone:
            await anyio.to_thread.run_sync(save_remembered, self._remembered_file, remembered)

    def files_of(self, tree: str) -> Names | None:
        """The files of a tree, where it is that of the last checkpoint."""
        return self._known if tree == self._cache.tree else None

    async def prepare(self, after: LookedOver) -> None:
        """Compare the files of the last checkpoint with the disk; which to cover is still being found.

        Args:
            after: To wait for: two threads that ask for the status of files hinder each other.
        """
        if self._is_clone:
            await after.event.wait()
            self._found = await self._in_tree(self._scan_clone)
            return
        async with second_process(self._known, self._root, self._actor) as answers:
            await after.event.wait()
            self._found = await self._in_tree(
                lambda tree: scan_known(tree, self._known, recalled=after.recalled, answers=answers)
            )

    def _scan_clone(self, tree: Tree) -> Scan:
        """Have every file read: the status of the workspace's says nothing of those in a clone."""
        found = Scan(self._known, lost=set(self._known))
        found.add(scan_new(tree, self._known))
        return found

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
            paths = listing.paths
            found = await self._in_tree(lambda tree: scan_new(tree, paths))
            return await self._take(found, StatCache({}), began_ns)

    def _new(self, listing: Listing) -> set[bytes]:
        """Files of the listing that the cache does not know; what only the cache knows is forgotten."""
        self._found.forget(self._known.minus(listing.names) - listing.new)
        return listing.names.minus(self._known) | {path for path in listing.new if path not in self._known}

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
                found.cut(TOTAL_LIMIT_BYTES, found.known)
                return await self._keep(found, cache, began_ns)
            raise UsageError(
                f"the files of {str(self._root)!r} come to {total} bytes,"
                f" more than {TOTAL_LIMIT_BYTES}; name what need not be kept in .gitignore"
            )
        return await self._keep(found, cache, began_ns)

    async def _keep(self, found: Scan, cache: StatCache, began_ns: int) -> Taken:
        commit, tree = await self._import(found, cache.tree, began_ns)
        is_same = bool(cache.tree) and not found.suspects and not found.lost
        files = found.known if is_same else found.known.changed(found.lost, found.read)
        private = cache.private if is_same else _private(found, cache.private)
        if not is_same and not self._is_clone:
            save_cache(self._cache_file, StatCache(files.folders, tree, private))
        disarmed, armed = await self._disarm(found)
        unlocked = tuple(self._unlocked)
        return Taken(commit, tree, files, found.skipped, found.linked, unlocked, private, disarmed, armed)

    async def _disarm(self, found: Scan) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """After a run, take the set-id bits off files that it changed; those that were, and those that stay.

        No call inside sets such a bit, but the kernel leaves those that are there when a mapping is written to.
        """
        changed = [] if self._shut is None else found.changed_set_id()
        if not changed:
            return (), ()

        def clear(tree: Tree) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
            disarmed, armed = [], []
            for path in changed:
                try:
                    if tree.clear_set_id(path):
                        disarmed.append(path)
                except OSError as exc:
                    if exc.errno not in GONE:
                        armed.append(path)
            return tuple(disarmed), tuple(armed)

        return await self._in_tree(clear)

    async def _import(self, found: Scan, tree: str, began_ns: int) -> tuple[str, str]:
        suspects = iter(found.suspects)
        gone = found.lost - found.suspects.keys()
        commit = ""
        read = partial(self._read, found, suspects, began_ns)
        batch = await read()
        while batch:
            changed = [content for content in batch if _differs(content, found.known)]
            found.read.update((content.path, content.entry) for content in batch)
            if changed or gone or not commit:
                keep = partial(self._put, tree, gone, changed)
                # The next files are read while git packs these.
                (commit, tree), batch = await both(keep, read)
                gone = set()
            else:
                batch = await read()
        # Files that went away, or grew too large, since they were listed.
        gone |= (found.lost & found.suspects.keys()) - found.read.keys()
        return await self._put(tree, gone, []) if gone or not commit else (commit, tree)

    async def _read(self, found: Scan, suspects: Iterator[bytes], began_ns: int) -> list[Content]:
        return await self._in_tree(
            lambda tree: read_batch(
                tree,
                suspects,
                began_ns=began_ns,
                batch_bytes=_BATCH_BYTES,
                file_limit_bytes=FILE_LIMIT_BYTES,
                skipped=found.skipped,
            )
        )

    async def _put(self, tree: str, gone: set[bytes], changed: list[Content]) -> tuple[str, str]:
        return await import_changes(self._git, self._refs, base_tree=tree, deleted=gone, written=changed)

    async def _in_tree(self, work: Callable[[Tree], _Result]) -> _Result:
        unlock = 0 if self._shut is None else stat.S_IRUSR | stat.S_IXUSR

        def run() -> _Result:
            with Tree(self._root, unlock=unlock, shut=self._shut or ()) as tree:
                result = work(tree)
            self._unlocked += tree.unlocked
            return result

        return await self._actor.call(run)


def _private(found: Scan, known: frozenset[bytes]) -> frozenset[bytes]:
    """Files that nobody but their owner has rights on; those that are as they were need no look."""
    modes = ((path, entry.mode) for path, entry in found.read.items())
    return (known - found.lost) | {path for path, mode in modes if not mode & 0o077 and stat.S_ISREG(mode)}


def _differs(content: Content, known: KnownFiles) -> bool:
    was = known.get(content.path)
    return was is None or was.blob != content.entry.blob or git_mode(was.mode) != content.git_mode


def cache_key(root: Path) -> str:
    """Name of the cache of a directory."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:32]

"""Takes a snapshot: walks, chooses the files to cover, reads those that may have changed, and stores them."""

import stat
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from ringfence.background_tasks import run_both
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.coverage import Coverage, cover_after, cover_before
from ringfence.sandbox.workspace.snapshot.ignore import IgnoreCheck
from ringfence.sandbox.workspace.snapshot.index import Repositories
from ringfence.sandbox.workspace.snapshot.memo import (
    Memo,
    marks_of,
    named_note,
    unlocked_note,
    watched_paths,
)
from ringfence.sandbox.workspace.snapshot.objects import Content, git_mode, import_changes, read_batch
from ringfence.sandbox.workspace.snapshot.stat_cache import Entry, StatCache
from ringfence.sandbox.workspace.snapshot.walk import NO_FILE, Walk, walk
from ringfence.sandbox.workspace.tree import GONE, Tree

FILE_LIMIT_BYTES = 100 * 1024**2
TOTAL_LIMIT_BYTES = 8 * 1024**3

_Result = TypeVar("_Result")


@dataclass
class Capture:
    """One snapshot of one directory, while it is taken.

    Args:
        git: The store.
        refs: The refs that will point at the snapshot's commit.
        root: The directory.
        actor: The user as which it is read.
        cache: The stat cache of the workspace's last snapshot; becomes that of this one.
        is_clone: Whether the directory is not the workspace itself, so that their files differ in status.
        is_trusted: Whether the repository in a directory may be read.
        base: After a run: the data of the snapshot before it. Rights that the owner has lost are then restored, and
        files beyond the total limit are skipped; before a run such files are refused.
        began_ns: When the work began.
    """

    git: Git
    refs: list[str]
    root: Path
    actor: Actor
    cache: StatCache
    is_clone: bool
    is_trusted: Callable[[Path], bool]
    base: Memo | None
    began_ns: int
    commit: str = ""
    tree: str = ""
    is_news: bool = False
    """Whether the cache changed."""
    found: Walk = field(default_factory=Walk)
    coverage: Coverage = field(default_factory=Coverage)
    _read: dict[bytes, Entry] = field(default_factory=dict)
    _unlocked: list[bytes] = field(default_factory=list)
    _notes: tuple[str, ...] = ()

    async def walk_tree(self, known: Collection[bytes], excludes: bytes) -> None:
        """Walk over the directory, and choose which files to cover.

        Args:
            known: After a run: the files of the snapshot before it.
            excludes: Before one: the user's own ignore rules.
        """
        compared = StatCache({}) if self.is_clone else self.cache
        walk_root = partial(
            walk,
            self.root,
            cached=compared.folders,
            leave_out=self.base.ignored if self.base else (),
            covered=known,
            shut=self._shut,
        )
        check = IgnoreCheck(self.git)
        if self.base is None:
            repositories = Repositories(self.root, self.actor, self.cache.tracked, self.is_trusted)
            self.found, _ = await run_both(
                partial(self.actor.call, walk_root), partial(repositories.read, b"")
            )
            self.coverage = await cover_before(self.found, compared, repositories, excludes, check)
            self.is_news = repositories.found != self.cache.tracked
            self.cache.tracked = repositories.found
        else:
            self.found = await self.actor.call(walk_root)
            self.coverage = await cover_after(self.found, compared, known, self.base, check)
        if self.is_clone:
            self.found.lost = set(self.cache)
        self.found.drop(self.coverage.dropped)
        self.found.new.clear()  # may hold millions of names, and the walk is kept for as long as its run lasts
        if self.coverage.new:
            await self._in_tree(lambda tree: self.found.look_at(tree, self.coverage.new))

    async def keep(self) -> None:
        """Put the files into the store.

        Raises:
            UsageError: Before a run, the files exceed the limit.
            InfrastructureFault: Git failed or the disk is full.
        """
        self._bound()
        try:
            await self._import()
        except InfrastructureFault:
            # The last tree may have been lost with a full disk or a crash; the files still exist.
            if not self.cache.tree:
                raise
            paths = (set(self.cache) - self.found.lost) | self.found.suspects.keys()
            self.cache = StatCache({}, tracked=self.cache.tracked)
            self.found.lost, self._read = set(), {}
            await self._in_tree(lambda tree: self.found.look_at(tree, paths))
            self._bound()
            await self._import()
        set_id = self._changed_set_id()
        if set_id:
            self._notes = await self._in_tree(lambda tree: _disarm(tree, set_id))
        if self.found.lost or self._read or self.tree != self.cache.tree:
            self.is_news = True
            self.cache.update(self.found.lost, self._read, self.tree)

    async def memo(self, base: str | None) -> Memo:
        """The data of the snapshot besides its tree."""
        found = self.found
        found.skipped |= {path: NO_FILE for path in found.specials if b".git" not in path.split(b"/")}
        ignored = self.coverage.ignored
        watched = watched_paths(found, ignored, self.cache)
        return Memo(
            tree=self.tree,
            rules=self.coverage.rules,
            private=self.cache.private,
            git_entries=tuple(sorted(found.git_entries)),
            skipped=found.skipped,
            ignored=ignored,
            base=base,
            marks=await self._in_tree(lambda tree: marks_of(tree, watched)),
        )

    def notes(self) -> tuple[str, ...]:
        """Notes on what was done, and what could not be done."""
        unlocked = tuple(dict.fromkeys((*self.found.unlocked, *self._unlocked)))
        return (*self.coverage.notes, *unlocked_note(unlocked), *self._notes)

    @property
    def _shut(self) -> Container[bytes] | None:
        return None if self.base is None else self.base.skipped

    def _bound(self) -> None:
        """Apply the total limit to the files that must be read."""
        # Larger files are not read at all, and named one by one.
        total = sum(size for size in self.found.suspects.values() if size <= FILE_LIMIT_BYTES)
        if total <= TOTAL_LIMIT_BYTES:
            return
        if self.base is None:
            raise UsageError(
                f"the files of {str(self.root)!r} come to {total} bytes,"
                f" more than {TOTAL_LIMIT_BYTES}; name what need not be kept in .gitignore"
            )
        self.found.cut(TOTAL_LIMIT_BYTES, self.cache)

    async def _import(self) -> None:
        """Read the files that may have changed, and commit those that did."""
        found, self.commit, self.tree = self.found, "", self.cache.tree
        suspects = iter(found.suspects)
        gone = found.lost - found.suspects.keys()
        read = partial(self._read_batch, suspects)
        batch = await read()
        while batch:
            changed = [content for content in batch if self._differs(content)]
            self._read.update((content.path, content.entry) for content in batch)
            if changed or gone or not self.commit:
                # The next files are read while git packs these.
                _, batch = await run_both(partial(self._put, gone, changed), read)
                gone = set()
            else:
                batch = await read()
        # Files that disappeared, or grew too large, since the walk.
        gone |= (found.lost & found.suspects.keys()) - self._read.keys()
        if gone or not self.commit:
            await self._put(gone, [])

    async def _read_batch(self, suspects: Iterator[bytes]) -> list[Content]:
        return await self._in_tree(
            lambda tree: read_batch(
                tree,
                suspects,
                began_ns=self.began_ns,
                file_limit_bytes=FILE_LIMIT_BYTES,
                skipped=self.found.skipped,
            )
        )

    async def _put(self, gone: Iterable[bytes], changed: list[Content]) -> None:
        self.commit, self.tree = await import_changes(
            self.git, self.refs, base_tree=self.tree, deleted=gone, written=changed
        )

    def _differs(self, content: Content) -> bool:
        was = self.cache.get(content.path)
        return was is None or was.blob != content.entry.blob or git_mode(was.mode) != content.git_mode

    def _changed_set_id(self) -> list[bytes]:
        """After a run, the set-id files that are new, or have other contents than before it, or got the bits since.

        No call inside can set such a bit, but the kernel keeps existing ones when a mapping is written to.
        """

        def is_as_known(path: bytes) -> bool:
            was, now = self.cache.get(path), self._read.get(path)
            return bool(was and now and (was.blob, was.mode) == (now.blob, now.mode))

        return (
            [] if self.base is None else sorted(path for path in self.found.set_id if not is_as_known(path))
        )

    async def _in_tree(self, work: Callable[[Tree], _Result]) -> _Result:
        unlock = 0 if self.base is None else stat.S_IRUSR | stat.S_IXUSR

        def run() -> _Result:
            with Tree(self.root, unlock=unlock, shut=self._shut or ()) as tree:
                result = work(tree)
            self._unlocked += tree.unlocked
            return result

        return await self.actor.call(run)


def _disarm(tree: Tree, paths: Iterable[bytes]) -> tuple[str, ...]:
    """Remove the set-id bits of files that a run changed; return notes that name them."""
    disarmed, armed = [], []
    for path in paths:
        try:
            if tree.clear_set_id(path):
                disarmed.append(path)
        except OSError as exc:
            if exc.errno not in GONE:
                armed.append(path)
    return (
        *named_note("changed, and no longer set-user-ID or set-group-ID", disarmed),
        *named_note(
            "changed, and still set-user-ID or set-group-ID, as another user owns them; look at them, then "
            "chmod ug-s as their owner",
            armed,
        ),
    )

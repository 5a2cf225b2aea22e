"""Restores a snapshot to an empty directory, or over a workspace, changing only files that differ.

Links on a path are never followed; a file in the way of a path is a conflict unless the same restore removes it. All
new contents are on disk, in a private directory at the top of the workspace, before the first file is replaced; each
file is replaced by a rename.
"""

import errno
import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from ringfence.background_tasks import run_both
from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.protect.repositories import Retired
from ringfence.sandbox.workspace.run_as import Actor, give
from ringfence.sandbox.workspace.snapshot.diff import Diff, FileChange
from ringfence.sandbox.workspace.snapshot.memo import Mark, Memo, lies_in, list_names, marks_of
from ringfence.sandbox.workspace.snapshot.objects import BATCH_BYTES, Blob, blob_id, git_mode
from ringfence.sandbox.workspace.snapshot.stat_cache import StatCache
from ringfence.sandbox.workspace.snapshot.store import Snapshot, SnapshotStore
from ringfence.sandbox.workspace.snapshot.walk import ELSEWHERE
from ringfence.sandbox.workspace.tree import Tree

_FORCE = "force=True overwrites them"
_NOTE = "restoring"
"""File in the store that holds the name of a restore's private directory while it works."""
_Result = TypeVar("_Result")
_Leavings = Mapping[bytes, Mark | None]


class WorkspaceConflict(RingfenceError):
    """Files of the workspace are in the way; nothing was written.

    Args:
        reason: Why they are in the way.
        paths: The files.
        advice: The next step, for a program.
        can_force: Whether `force` overwrites them.
    """

    def __init__(self, reason: str, *, paths: Iterable[bytes], advice: str, can_force: bool = False) -> None:
        self.paths = tuple(sorted(map(os.fsdecode, paths)))
        self.can_force = can_force
        self.problem = f"nothing was written: {reason}: {list_names(self.paths)}"
        super().__init__(f"{self.problem}; {advice}")


@frozen
class Restored:
    """The result of a restore."""

    diff: Diff
    """The changes that it made to the workspace."""
    safety: Snapshot
    """Snapshot of the workspace before: restoring it undoes the restore."""
    left: tuple[str, ...] = ()
    """Remaining files that the run made and no snapshot holds, as they are too large or unreadable."""
    kept: tuple[str, ...] = ()
    """Files that were not touched: they existed in the restored state, which does not hold their contents."""
    repositories: Retired = field(default_factory=Retired)
    """Repositories that the run made."""
    active: tuple[str, ...] = ()
    """Remaining auto-executed files of the run that no snapshot holds."""
    overwritten: tuple[str, ...] = ()
    """Files that differed from the expected state, and that `force` has overwritten."""


async def materialise(
    store: SnapshotStore,
    snapshot: str,
    directory: Path,
    owner: Actor,
    *,
    taken: Snapshot | None = None,
    reader: Actor | None = None,
) -> None:
    """Fill an empty directory with the files of a snapshot.

    Args:
        store: The store that holds the snapshot.
        snapshot: Its id.
        directory: An existing empty directory that no other process can reach yet.
        owner: The user to whom it and its contents will belong.
        taken: The snapshot, if it was just taken: its files are copied from the directory it is of, and only those that
        have changed since, by their ids, are read from the store.
        reader: The user that reads that directory.

    Raises:
        InfrastructureFault: The disk is full, or the directory is not writable.
    """
    private = (await store.memo(snapshot)).private
    if taken is None or taken.covered is None:
        blobs = await store.blobs(snapshot)
    else:
        changed = await _copy_files(taken.root, taken.covered, reader or store.actor, directory, private)
        blobs = [blob for blob in await store.blobs(snapshot) if blob.path in changed] if changed else []
    async for batch in store.contents(blobs):
        await _in_tree(directory, Actor.current(), partial(_fill, batch=batch, private=private))
    await Actor.current().call(lambda: give(directory, owner))


async def _copy_files(
    root: Path, covered: StatCache, reader: Actor, directory: Path, private: frozenset[bytes]
) -> set[bytes]:
    """Copy the files whose contents still match the snapshot; return the others."""
    changed: set[bytes] = set()
    paths = iter(covered)

    def read() -> list[tuple[Blob, bytes]]:
        with Tree(root) as tree:
            return _read_unchanged(tree, covered, paths, changed)

    while batch := await reader.call(read):
        await _in_tree(directory, Actor.current(), partial(_fill, batch=batch, private=private))
    return changed


def _read_unchanged(
    tree: Tree, covered: StatCache, paths: Iterator[bytes], changed: set[bytes]
) -> list[tuple[Blob, bytes]]:
    """Read the next files, about 32 MiB; return an empty list at the end."""
    batch: list[tuple[Blob, bytes]] = []
    size = 0
    for path in paths:
        entry = covered.get(path)
        assert entry is not None
        try:
            data, _ = tree.read(path, entry.size)
        except OSError:
            changed.add(path)
            continue
        if blob_id(data) != entry.blob:
            changed.add(path)
            continue
        batch.append((Blob(path, git_mode(entry.mode), entry.blob.hex(), len(data)), data))
        size += len(data) + 1000
        if size >= BATCH_BYTES:
            break
    return batch


def _fill(tree: Tree, batch: Iterable[tuple[Blob, bytes]], private: frozenset[bytes]) -> None:
    for blob, data in batch:
        tree.directory(blob.path.rpartition(b"/")[0], create=True)
        _write(tree, blob.path, blob, data, 0o600 if blob.path in private else 0o666)


def _write(tree: Tree, path: bytes, blob: Blob, data: bytes, mode: int) -> None:
    if stat.S_ISLNK(blob.git_mode):
        tree.link(path, data)
    else:
        executable = (mode & 0o444) >> 2 if blob.git_mode & 0o100 else 0
        tree.write(path, data, mode | executable)


async def restore(
    store: SnapshotStore,
    *,
    wanted: str,
    expected: str | None,
    label: str,
    force: bool = False,
    way_back: str | None = None,
) -> Restored:
    """Set the files that differ between two snapshots to what they are in `wanted`.

    Args:
        store: The store of the workspace that is written.
        wanted: The snapshot to restore.
        expected: The snapshot that those files are expected to match. None: any files may be there, all of them the
        user's own.
        label: Label under which the state before is kept.
        force: Overwrite files that differ from `expected`.
        way_back: Label under which, if `force` overwrites something, a snapshot is kept for undoing the restore:
        `expected`, with the written files as they were before.

    Raises:
        WorkspaceConflict: Files changed since `expected`, or no snapshot can hold what would be overwritten; nothing
            was written.
        InfrastructureFault: The disk is full, or a file cannot be written. The difference between the workspace and the
        snapshot under `label` shows which files were written.
    """
    await _sweep(store)
    base = expected or wanted
    plan = await _plan(store, await store.take(label, base=base), wanted=wanted, expected=expected)
    clashes = plan.clashes
    if clashes and not force:
        since = f"changed since the checkpoint of {await _time_of(store, base)}"
        raise WorkspaceConflict(since, paths=clashes, advice=_FORCE, can_force=True)
    if plan.uncovered and force:  # a snapshot holds even ignored files, if they are named
        clashes = clashes | plan.uncovered
        safety = await store.take(label, base=base, also=plan.uncovered)
        plan = await _plan(store, safety, wanted=wanted, expected=expected)
    if plan.uncovered:
        raise _uncovered(plan, can_force=expected is not None and not force, is_forced=force)
    earlier = None if way_back is None else await store.find(way_back)
    if way_back is not None and (clashes or earlier is not None):
        written = {change.raw_path for change in plan.todo.files}
        await store.combine(way_back, base=earlier or base, other=plan.safety.id, paths=written)
    await _apply(store, plan.safety.id, wanted, todo=plan.todo, by_run=plan.by_run)
    remaining = await _in_tree(store.workspace, store.actor, lambda tree: marks_of(tree, plan.leavings))
    return Restored(
        plan.todo,
        plan.safety,
        left=tuple(sorted(map(os.fsdecode, remaining))),
        kept=plan.kept,
        overwritten=tuple(sorted(map(os.fsdecode, clashes))),
    )


def _uncovered(plan: "_Plan", *, can_force: bool, is_forced: bool) -> WorkspaceConflict:
    """The error about files that would be overwritten and that no snapshot holds."""
    reason = (
        "in the way, and no checkpoint holds what they are"
        if is_forced
        else "in the way and ignored or not readable"
    )
    advice = _FORCE if can_force else "move them"
    return WorkspaceConflict(reason, paths=plan.uncovered, advice=advice, can_force=can_force)


@frozen
class _Plan:
    """The changes that a restore would make, and the files in its way."""

    safety: Snapshot
    todo: Diff
    clashes: frozenset[bytes]
    """Files that differ from the expected state."""
    uncovered: frozenset[bytes]
    """Files that `safety` does not hold and that would be overwritten."""
    kept: tuple[str, ...]
    leavings: _Leavings
    by_run: _Leavings


async def _plan(store: SnapshotStore, safety: Snapshot, *, wanted: str, expected: str | None) -> _Plan:
    changes, clashes = (await store.diff(safety.id, wanted)).files, frozenset[bytes]()
    if expected is not None:
        changes, clashes = await _only_expected(store, changes, (expected, safety.id, wanted))
    there = (await store.memo(wanted)).skipped
    kept = {c.path for c in changes if c.kind == "deleted" and lies_in(c.raw_path, there)}
    todo = Diff(tuple(change for change in changes if change.path not in kept))
    leavings = _left_by_run(await store.memo(expected or safety.id), there)
    marks = await _in_tree(store.workspace, store.actor, lambda tree: marks_of(tree, leavings))
    # A file that another has put in its place since is not the run's.
    by_run = {path: mark for path, mark in leavings.items() if expected and marks.get(path) == mark}
    uncovered = await _find_uncovered(store, by_run, todo)
    return _Plan(safety, todo, clashes, uncovered, tuple(sorted(kept)), leavings, by_run)


async def _time_of(store: SnapshotStore, snapshot: str) -> str:
    """When a snapshot was taken, in the time zone of this machine."""
    taken_s = next((one.taken_s for one in await store.kept() if one.id == snapshot), 0)
    return datetime.fromtimestamp(taken_s, UTC).astimezone().isoformat(" ", "seconds")


async def _only_expected(
    store: SnapshotStore, changes: tuple[FileChange, ...], states: tuple[str, str, str]
) -> tuple[tuple[FileChange, ...], frozenset[bytes]]:
    """Select the changes that lead from the expected state to the wanted one; the user's own changes stay.

    Returns:
        The changes, and those of their paths that are not in the expected state.
    """
    expected, present, wanted = states
    to_change, moved_on = await run_both(
        lambda: store.changed_paths(expected, wanted), lambda: store.changed_paths(expected, present)
    )
    selected = tuple(change for change in changes if change.raw_path in to_change)
    # A file that is already in the wanted state is not a conflict.
    return selected, frozenset(moved_on & {change.raw_path for change in selected})


def _left_by_run(memo: Memo, there: Container[bytes]) -> dict[bytes, Mark | None]:
    """Files that only the run made and no snapshot holds: fifos, sockets, files that are too large or unreadable."""
    if memo.base is None:
        return {}
    own = (path for path in memo.skipped if path != ELSEWHERE and path not in there)
    return {path: memo.marks.get(path) for path in own}


async def _find_uncovered(store: SnapshotStore, by_run: _Leavings, todo: Diff) -> frozenset[bytes]:
    """Find the files in the way whose contents the snapshot does not hold, as they are ignored, unreadable or too large.

    A file that the run itself made may be replaced.
    """
    added = [c.raw_path for c in todo.files if c.kind == "added" and not lies_in(c.raw_path, by_run)]

    def there(tree: Tree) -> frozenset[bytes]:
        statuses = ((path, tree.lstat(path)) for path in added)
        return frozenset(path for path, status in statuses if status and not stat.S_ISDIR(status.st_mode))

    return await _in_tree(store.workspace, store.actor, there)


async def _apply(store: SnapshotStore, present: str, wanted: str, *, todo: Diff, by_run: _Leavings) -> None:
    deleted = {change.raw_path for change in todo.files if change.kind == "deleted"}
    written = {change.raw_path for change in todo.files} - deleted
    changed, _ = await store.changes(present, wanted)
    blobs = [blob for blob in changed if blob.path in written]
    private = (await store.memo(wanted)).private
    root, actor = store.workspace, store.actor
    deleted |= await _in_tree(root, actor, lambda tree: _check_ways(tree, blobs, deleted, by_run))
    scratch = b".ringfence-" + secrets.token_hex(8).encode()
    note = store.directory / _NOTE
    note.write_bytes(scratch)
    await _in_tree(root, actor, lambda tree: tree.make_scratch(scratch))
    try:
        staged: list[tuple[Blob, bytes]] = []
        async for batch in store.contents(blobs):
            stage = partial(_stage, scratch=scratch, batch=batch, private=private, start=len(staged))
            staged += await _in_tree(root, actor, stage)
        await _in_tree(root, actor, lambda tree: _commit(tree, staged, deleted))
    finally:
        with anyio.CancelScope(shield=True):
            await _in_tree(root, actor, lambda tree: tree.remove_scratch(scratch))
            note.unlink(missing_ok=True)


async def _sweep(store: SnapshotStore) -> None:
    """Remove the private directory of a restore that was killed."""
    note = store.directory / _NOTE
    try:
        scratch = note.read_bytes()
    except FileNotFoundError:
        return
    if re.fullmatch(rb"\.ringfence-[0-9a-f]{16}", scratch):
        await _in_tree(store.workspace, store.actor, lambda tree: tree.remove_scratch(scratch))
    note.unlink()


def _check_ways(tree: Tree, blobs: Iterable[Blob], deleted: set[bytes], by_run: _Leavings) -> set[bytes]:
    """Return the run's own files that must be removed, too; refuse if files of others are in the way.

    A directory with files in the place of a file is in the way, and so is a file in the place of a directory.
    """
    in_the_way: set[bytes] = set()
    for blob in blobs:
        if _is_directory(tree, blob.path):
            in_the_way.update(_below(tree, blob.path))
        parts = blob.path.split(b"/")
        for depth in range(1, len(parts)):
            above = b"/".join(parts[:depth])
            status = tree.lstat(above)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                in_the_way.add(above)
    clashes = in_the_way - deleted - by_run.keys()
    if clashes:
        raise WorkspaceConflict(
            "in the way and not covered, or too deep to look into", paths=clashes, advice="move them"
        )
    # Fifos and sockets of the run hold no data, and make other programs wait.
    marks = by_run.items()
    specials = {
        path for path, mark in marks if mark and stat.S_IFMT(mark.mode) in (stat.S_IFIFO, stat.S_IFSOCK)
    }
    return in_the_way & by_run.keys() | specials


def _is_directory(tree: Tree, path: bytes) -> bool:
    status = tree.lstat(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _below(tree: Tree, path: bytes) -> list[bytes]:
    """The files in a directory; the directory itself if it is too deep to examine."""
    found: list[bytes] = []
    try:
        for name in tree.children(path):
            child = path + b"/" + name
            found += _below(tree, child) if _is_directory(tree, child) else [child]
    except OSError as exc:
        if exc.errno != errno.ENAMETOOLONG:
            raise
        found.append(path)
    return found


def _stage(
    tree: Tree, scratch: bytes, batch: Iterable[tuple[Blob, bytes]], private: frozenset[bytes], start: int
) -> list[tuple[Blob, bytes]]:
    staged = []
    for number, (blob, data) in enumerate(batch, start):
        old = tree.lstat(blob.path)
        place = scratch + b"/%d" % number
        _write(tree, place, blob, data, 0o600 if blob.path in private else 0o666)
        if old is not None and stat.S_ISREG(old.st_mode) and stat.S_ISREG(blob.git_mode):
            bits = stat.S_IMODE(old.st_mode) & 0o666
            tree.chmod_own(place, bits | ((bits & 0o444) >> 2 if blob.git_mode & 0o100 else 0))
        staged.append((blob, place))
    return staged


def _commit(tree: Tree, staged: Iterable[tuple[Blob, bytes]], deleted: set[bytes]) -> None:
    for path in sorted(deleted, reverse=True):
        tree.unlink(path)
        tree.remove_empty_parents(path)
    for blob, place in staged:
        tree.close_below()
        if _is_directory(tree, blob.path):
            if _below(tree, blob.path):
                raise OSError(errno.ENOTEMPTY, "somebody wrote into it meanwhile", os.fsdecode(blob.path))
            # Moved aside as a whole: the private directory is removed with its contents.
            tree.close_below()
            tree.move(blob.path, place + b"-aside")
        tree.directory(blob.path.rpartition(b"/")[0], create=True)
        tree.move(place, blob.path)


async def _in_tree(root: Path, actor: Actor, work: Callable[[Tree], _Result]) -> _Result:
    def run() -> _Result:
        with Tree(root, unlock=stat.S_IRWXU) as tree:
            return work(tree)

    try:
        return await actor.call(run)
    except OSError as exc:
        name = errno.errorcode.get(exc.errno or 0, "?")
        at = "" if exc.filename is None else f", {os.fsdecode(exc.filename)!r}"
        raise InfrastructureFault(
            f"could not write in {str(root)!r}: {exc.strerror} ({name}{at}); {_next_step(exc, root, actor)}"
        ) from exc


def _next_step(error: OSError, root: Path, actor: Actor) -> str:
    """The advice for an error. Root writes in another user's workspace with that user's permissions only."""
    with suppress(OSError):
        owner = root.stat().st_uid
        if error.errno in (errno.EACCES, errno.EPERM) and actor.switches and owner != actor.uid:
            back = f"chown -R {actor.uid}:{actor.gid} {shlex.quote(str(root))}"
            return (
                f"it belonged to user {actor.uid}, with whose rights it is written, and belongs to user {owner} now: "
                f"`{back}` gives it back, then try again"
            )
    return "mend that and try again"

"""Stores snapshots, states of the workspace, as commits in a private git store outside the workspace.

A snapshot covers the files that git tracks or would offer to add, with contents, links and the executable bit, but not
ignored files, empty directories, owners and times. Files beyond a size, and entries that are neither file nor link, are
skipped and named in the snapshot.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import LARGE, Git, GitBoundReached, write_clean_git_dir
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.run_as import Actor, scratch_directory
from ringfence.sandbox.workspace.snapshot.capture import Capture
from ringfence.sandbox.workspace.snapshot.diff import (
    Diff,
    PatchTooLarge,
    compare_trees,
    parse_diff,
    parse_diff_and_patch,
    without_lines,
)
from ringfence.sandbox.workspace.snapshot.memo import Memo, load_memo, save_memo
from ringfence.sandbox.workspace.snapshot.objects import (
    Blob,
    find_changed,
    git_mode,
    import_changes,
    read_blobs,
    read_changes,
    read_line,
)
from ringfence.sandbox.workspace.snapshot.stat_cache import StatCache, load_cache, save_cache
from ringfence.sandbox.workspace.snapshot.walk import MAX_NAMES_BYTES, Walk

PATCH_LIMIT_BYTES = 256 * 1024**2
_LISTING_LIMIT_BYTES = 8 * MAX_NAMES_BYTES
"""More than twice the names of all files that two snapshots can hold, with git's output for each."""
_LOCK_TIMEOUT_S = 120.0
_MOST_PACKS = 20
"""Packs of dropped snapshots that may remain; repacking a large workspace's store takes seconds."""
_OPTIONS = ("core.compression=1",)
_PATCH = (
    "-r",
    "-p",
    "--binary",
    "--full-index",
    "--no-abbrev",
    "--no-renames",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
)
NAMED = "named-"
"""Prefix of the labels of named checkpoints, which `gc` leaves alone."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*/[a-z]+")


@frozen
class Kept:
    """A snapshot as the store lists it."""

    label: str
    id: str
    tree: str
    taken_s: int
    """When it was taken, in seconds since the epoch."""

    @property
    def run(self) -> str:
        """The run that it belongs to."""
        return self.label.partition("/")[0]

    @property
    def name(self) -> str:
        """Name of a checkpoint that a user took; empty for a run's."""
        return self.run.removeprefix(NAMED) if self.run.startswith(NAMED) else ""


@frozen
class Snapshot:
    """A stored state of the workspace."""

    id: str
    """The id of a commit in the store."""
    tree: str
    """The id of its tree; equal states have equal trees."""
    files: int
    root: Path
    """The directory that was read."""
    found: Walk
    """The result of the walk. The snapshot does not hold its `skipped` paths, which are not ignored."""
    ignored: frozenset[bytes] = frozenset()
    """Paths that git ignores; ignored directories end in a slash."""
    notes: tuple[str, ...] = ()
    duration_ms: float = 0.0
    covered: StatCache | None = None
    """The files that it holds, with the ids of their contents; None once the list is no longer needed."""


class SnapshotStore:
    """The snapshots of one workspace.

    Args:
        workspace: The workspace, resolved.
        state: The state directory.
        actor: The user as which the workspace is read and written; the store itself always belongs to the caller.
        excludes: The user's own ignore rules, in the format of `.gitignore`.
    """

    def __init__(
        self, workspace: Path, state: Path, *, actor: Actor | None = None, excludes: bytes = b""
    ) -> None:
        self.workspace = workspace
        self.state = state
        self.actor = actor or Actor.current()
        self._excludes = excludes
        name = hashlib.sha256(os.fsencode(workspace)).hexdigest()
        self.directory = state / "checkpoints" / f"{name}.git"
        self._cache_file = self.directory / "cache" / name[:32]
        self._git = Git(self.directory, actor=Actor.current(), options=_OPTIONS)

    async def take(
        self,
        label: str,
        *,
        base: str | None = None,
        root: Path | None = None,
        actor: Actor | None = None,
        also: Collection[bytes] = (),
    ) -> Snapshot:
        """Store the state of the workspace, pinned by the ref `refs/ringfence/<label>`.

        Args:
            label: Such as `<run>/before` or `<run>/after`.
            base: The snapshot from before an agent worked, which this one will be compared with. Its files are
                examined even if they are ignored now, its ignore rules replace those in the tree, git does not
                enter the tree, and permissions that the owner has lost are restored.
            root: The directory to read in place of the workspace: a clone of it.
            actor: The user that reads `root`; by default the one for the workspace.
            also: With `base`: further files that are examined even if they are ignored.

        Raises:
            UsageError: The files exceed the limit.
            InfrastructureFault: Git failed, or another snapshot of this workspace takes too long.
        """
        if not _LABEL.fullmatch(label):
            raise UsageError(f"{label!r} does not name a checkpoint; use <run>/<word>")
        start, began_ns = time.perf_counter(), time.time_ns()
        root, actor = root or self.workspace, actor or self.actor
        refs, is_clone = [f"refs/ringfence/{label}"], root != self.workspace
        if not is_clone:
            # The source of the stat cache: for a clone, none is kept for the next snapshot.
            refs.append(f"refs/ringfence-last/{self._cache_file.name}")
        async with self._locked():
            earlier = await self.memo(base) if base else None
            cache = await anyio.to_thread.run_sync(load_cache, self._cache_file)
            capture = Capture(
                self._git, refs, root, actor, cache, is_clone, self._is_trusted, earlier, began_ns
            )
            known = await self._known(earlier, cache)
            await capture.walk_tree({*known, *also} if also else known, self._excludes)
            await capture.keep()
            if capture.is_news and not is_clone:
                await anyio.to_thread.run_sync(save_cache, self._cache_file, capture.cache)
            memo = await capture.memo(base)
            await anyio.to_thread.run_sync(save_memo, self.directory, capture.commit, memo)
        return Snapshot(
            id=capture.commit,
            tree=capture.tree,
            files=len(capture.cache),
            root=root,
            covered=capture.cache,
            found=capture.found,
            ignored=memo.ignored,
            notes=capture.notes(),
            duration_ms=(time.perf_counter() - start) * 1000,
        )

    def _is_trusted(self, directory: Path) -> bool:
        return why_untrusted(directory, self.state) is None

    async def _known(self, earlier: Memo | None, cache: StatCache) -> Collection[bytes]:
        """The files of a snapshot."""
        if earlier is None:
            return ()
        if earlier.tree == cache.tree:
            return cache
        answer = await self._git.run(
            "ls-tree", "-r", "-z", "--name-only", earlier.tree, output_limit_bytes=_LISTING_LIMIT_BYTES
        )
        return set(answer.stdout.split(b"\0")) - {b""}

    async def memo(self, snapshot: str) -> Memo:
        """Load the data of a snapshot besides its files.

        Raises:
            RecordError: There is no such snapshot.
        """
        return await anyio.to_thread.run_sync(load_memo, self.directory, snapshot)

    async def combine(self, label: str, *, base: str, other: str, paths: Collection[bytes]) -> None:
        """Store a snapshot that equals `base` except for the files `paths`, which are as in `other`.

        Raises:
            InfrastructureFault: Git failed or the disk is full.
        """
        refs = [f"refs/ringfence/{label}"]
        async with self._locked():
            memo, more = await self.memo(base), await self.memo(other)
            changed = [blob for blob in await self._changed(base, other) if blob[0] in paths]
            commit, tree = await import_changes(
                self._git,
                refs,
                base_tree=memo.tree,
                deleted=[path for path, mode, _ in changed if not mode],
                written=[Blob(path, mode, name, 0) for path, mode, name in changed if mode],
            )
            private = (memo.private - frozenset(paths)) | (more.private & frozenset(paths))
            combined = msgspec.structs.replace(memo, tree=tree, private=private)
            await anyio.to_thread.run_sync(save_memo, self.directory, commit, combined)

    async def has(self, label: str) -> bool:
        """Whether there is a snapshot under this label."""
        return await self.find(label) is not None

    async def find(self, label: str) -> str | None:
        """Return the id of the snapshot under this label; None if there is none."""
        return next((one.id for one in await self.kept() if one.label == label), None)

    async def diff(self, earlier: str, later: str) -> Diff:
        """The changes from one snapshot to another; without numbers of lines if counting them takes too much."""
        return parse_diff(
            await compare_trees(self._git, earlier, later, output_limit_bytes=_LISTING_LIMIT_BYTES)
        )

    async def compare(self, earlier: str, later: str) -> tuple[Diff, bytes]:
        """The changes from one snapshot to another and their patch, with a single git process.

        Raises:
            PatchTooLarge: As `patch`; `diff` still returns the changes.
        """
        try:
            answer = await self._git.run(
                "diff-tree",
                "--raw",
                "--numstat",
                *_PATCH,
                earlier,
                later,
                output_limit_bytes=PATCH_LIMIT_BYTES,
            )
        except GitBoundReached:
            return await self.diff(earlier, later), await self.patch(earlier, later)
        return parse_diff_and_patch(answer.stdout)

    async def changed_paths(self, earlier: str, later: str) -> set[bytes]:
        """Files that differ between two snapshots."""
        return {path for path, _, _ in await self._changed(earlier, later)}

    async def _changed(self, earlier: str, later: str) -> list[tuple[bytes, int, str]]:
        if (await self.memo(earlier)).tree == (await self.memo(later)).tree:
            return []
        command = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", earlier, later)
        result = await self._git.run(*command, timeout_s=600.0, output_limit_bytes=_LISTING_LIMIT_BYTES)
        return read_changes(result.stdout)

    async def files_changed_in(self, root: Path, snapshot: str) -> frozenset[bytes]:
        """The files of a snapshot that a clone no longer holds as they are in it. No process may work in the clone.

        Nothing is stored, and new files are not looked for.
        """
        cache = await anyio.to_thread.run_sync(load_cache, self._cache_file)
        if cache.tree == (await self.memo(snapshot)).tree:
            entries = ((path, cache.get(path)) for path in cache)
            known = [Blob(path, git_mode(at.mode), at.blob.hex(), at.size) for path, at in entries if at]
        else:  # another snapshot was taken since
            known = await self.blobs(snapshot)
        return await anyio.to_thread.run_sync(find_changed, root, known)

    async def patch(self, earlier: str, later: str) -> bytes:
        """The changes as a patch that `git apply` takes, binary files included.

        Raises:
            PatchTooLarge: It is larger than 256 MiB, or takes minutes or too much memory.
        """
        command = ("diff-tree", *_PATCH, earlier, later)
        try:
            return (await self._git.run(*command, output_limit_bytes=PATCH_LIMIT_BYTES)).stdout
        except GitBoundReached as exc:
            if exc.bound != "output":
                return await self._patch_without_lines(command, await self.diff(earlier, later))
            raise _too_large(exc) from exc

    async def _patch_without_lines(self, command: Sequence[str], diff: Diff) -> bytes:
        """The same patch, in which files with too many lines to compare are included whole, as binary files are."""
        async with scratch_directory(self._git.actor) as scratch:
            await anyio.to_thread.run_sync(write_clean_git_dir, scratch)
            rules = without_lines([change.raw_path for change in diff.files if change.binary])
            with (scratch / "info" / "attributes").open("ab") as attributes:
                attributes.write(rules)
            objects = {"GIT_OBJECT_DIRECTORY": str(self.directory / "objects")}
            git = Git(scratch, actor=self._git.actor, options=_OPTIONS, environment=objects)
            try:
                return (await git.run(*command, output_limit_bytes=PATCH_LIMIT_BYTES)).stdout
            except GitBoundReached as exc:
                raise _too_large(exc) from exc

    async def blobs(self, snapshot: str) -> list[Blob]:
        """All files of a snapshot."""
        command = ("ls-tree", "-r", "-z", "-l", snapshot)
        result = await self._git.run(*command, output_limit_bytes=_LISTING_LIMIT_BYTES)
        return [read_line(line) for line in result.stdout.split(b"\0") if line]

    async def changes(
        self, earlier: str, later: str, *, diff: Diff | None = None
    ) -> tuple[list[Blob], set[bytes]]:
        """Files of `later` that are new or changed since `earlier`, and the paths that only `earlier` holds.

        Args:
            earlier: The earlier snapshot.
            later: The later snapshot.
            diff: Their comparison, if the caller has it.

        Raises:
            InfrastructureFault: The store has lost one of them.
        """
        changed = await self._changed(earlier, later) if diff is None else diff.entries
        found = [(path, mode, name) for path, mode, name in changed if mode]
        gone = {path for path, mode, _ in changed if not mode}
        if not found:
            return [], gone
        asked = "".join(f"{name}\n" for _, _, name in found).encode()
        answer = await self._git.run("cat-file", "--batch-check=%(objectsize)", stdin=asked)
        sizes = answer.stdout.split(b"\n")[:-1]
        lost = [size for size in sizes if not size.isdigit()]
        if lost or len(sizes) != len(found):
            raise InfrastructureFault(
                f"{str(self.directory)!r} has lost contents of checkpoint {later!r}: {lost[:1]!r}; nothing was written"
            )
        blobs = [
            Blob(path=path, git_mode=mode, id=name, size=int(size))
            for (path, mode, name), size in zip(found, sizes, strict=True)
        ]
        return blobs, gone

    def contents(self, blobs: Iterable[Blob]) -> AsyncIterator[list[tuple[Blob, bytes]]]:
        """Yield the contents of files, in lists of about 32 MiB."""
        return read_blobs(self._git, blobs)

    async def kept(self) -> list[Kept]:
        """All snapshots that are pinned."""
        if not (self.directory / "HEAD").exists():
            return []
        form = "%(refname:lstrip=2) %(objectname) %(tree) %(committerdate:unix)"
        answer = await self._git.run("for-each-ref", f"--format={form}", "refs/ringfence/")
        found = [line.split(" ") for line in answer.stdout.decode().splitlines()]
        return [Kept(label, commit, tree, int(taken)) for label, commit, tree, taken in found]

    async def gc(self, keep: frozenset[str]) -> int:
        """Drop the snapshots of runs that are not in `keep`, but no named checkpoints; return how many."""
        async with self._locked():
            await self._forget_caches()
            return await self._drop(lambda one: not one.name and one.run not in keep)

    async def drop(self, label: str) -> None:
        """Drop the snapshot under a label, and the objects that only it held."""
        async with self._locked():
            await self._drop(lambda one: one.label == label)

    async def drop_run(self, run: str) -> None:
        """Drop all snapshots of a run; objects that only they held are removed once there are many packs."""
        async with self._locked():
            await self._drop(lambda one: one.run == run, most_packs=_MOST_PACKS)

    async def _forget_caches(self) -> None:
        """Remove files that version 0.1 kept beside the stat cache, and caches of directories other than it."""
        others = [path for path in (self.directory / "cache").glob("*") if path != self._cache_file]
        keys = {path.name.partition(".")[0] for path in others} - {self._cache_file.name}
        commands = "".join(f"delete refs/ringfence-last/{key}\n" for key in sorted(keys))
        await self._git.run("update-ref", "--stdin", stdin=commands.encode())
        for path in others:
            path.unlink()

    async def _drop(self, is_dead: Callable[[Kept], bool], *, most_packs: int | None = None) -> int:
        """Drop snapshots, and objects that only they held, at once or if there are too many packs; return how many."""
        everything = await self.kept()
        dead = [one for one in everything if is_dead(one)]
        commands = "".join(f"delete refs/ringfence/{one.label}\n" for one in dead)
        await self._git.run("update-ref", "--stdin", stdin=commands.encode())
        left = {one.id for one in everything if not is_dead(one)}
        for one in dead:
            if one.id not in left:
                (self.directory / "memo" / one.id).unlink(missing_ok=True)
        packs = len(list((self.directory / "objects" / "pack").glob("*.pack")))
        if dead and (most_packs is None or packs > most_packs):
            whole = replace(self._git, bounds=LARGE)
            await whole.run("repack", "-a", "-d", "-q", timeout_s=600.0)
            await whole.run("prune", "--expire=now", timeout_s=600.0)
        return len(dead)

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """Lock this workspace's store exclusively; create the store if it does not exist."""
        make_private_dir(self.directory.parent)
        with (self.directory.with_suffix(".lock")).open("wb") as lock:
            with anyio.move_on_after(_LOCK_TIMEOUT_S) as deadline:
                while not _try_lock(lock.fileno()):  # noqa: ASYNC110 - another process holds it
                    await anyio.sleep(0.02)
            if deadline.cancelled_caught:
                raise InfrastructureFault(
                    f"another checkpoint of {str(self.workspace)!r} holds {lock.name!r}; wait for its end"
                )
            if not (self.directory / "HEAD").exists():
                make_private_dir(self.directory)
                write_clean_git_dir(self.directory)
                (self.directory / "workspace").write_bytes(os.fsencode(self.workspace) + b"\n")
            try:
                yield
            except OSError as exc:
                raise InfrastructureFault(
                    f"the state of {str(self.workspace)!r} could not be kept in {str(self.directory)!r}: {exc};"
                    " see to the free space and the permissions there"
                ) from exc


def _too_large(exc: GitBoundReached) -> PatchTooLarge:
    return PatchTooLarge(
        f"no patch was made: {exc}; the changes are kept all the same, `ringfence diff --stat` lists them"
    )


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

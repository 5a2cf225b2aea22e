"""Prepares the workspace of a run and delivers its work.

`prepare` takes a snapshot, makes the private git directory, the clone and the mounts, and begins the record. Then
sandboxes work on it. `RunWorkspace.deliver` fetches the commits made inside through a new sandbox, takes a second
snapshot, compares the two, and completes patch and record.
"""

import os
import stat
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from ringfence.config.paths import make_private_dir
from ringfence.config.trust import PROJECT_FILE_NAMES, note_author, remember_author
from ringfence.errors import InfrastructureFault, SandboxError, UsageError
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Placement
from ringfence.sandbox.workspace.git.commits import (
    NOT_TAKEN,
    ImportedCommits,
    Inside,
    has_new_commits,
    import_commits,
)
from ringfence.sandbox.workspace.git.layout import has_git, read_origin, read_small
from ringfence.sandbox.workspace.git.merge import select_differing
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.open import Workspace
from ringfence.sandbox.workspace.placement import place_workspace, subdirectory_note
from ringfence.sandbox.workspace.protect.mounts import links_note
from ringfence.sandbox.workspace.protect.repositories import distrust_all
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    apply_run,
    compare_run,
    diff_run,
    load_record,
    open_store,
    runs_on_your_machine,
    save_record,
)
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.diff import Diff, FileChange, PatchTooLarge
from ringfence.sandbox.workspace.snapshot.ignore import escape
from ringfence.sandbox.workspace.snapshot.memo import list_names, unlocked_note
from ringfence.sandbox.workspace.snapshot.store import Snapshot, SnapshotStore
from ringfence.sandbox.workspace.tree import Tree

KEEP_S = 600.0
"""Time limit for the snapshot and the comparison after a run."""
_DISCARDED = "what was changed inside was discarded: this run keeps none of it"
_MAX_SHOWN = 20

OpenSandbox = Callable[[Placement], AbstractAsyncContextManager[Inside]]
"""Opens a new sandbox with a placement."""


@frozen
class Finished:
    """The delivered work of a run."""

    record: WorkRecord
    after: Snapshot
    diff: Diff
    patch: bytes
    """The patch; empty if nothing changed, or if it would be too large, which a note reports."""
    runs_on_your_machine: tuple[str, ...]
    """Changed files that the host runs or trusts on its own."""
    notes: tuple[str, ...] = ()


@frozen
class Changes:
    """What a sandbox changed in its private copy of the workspace."""

    files: tuple[FileChange, ...]
    """Each file that was changed, and how."""
    patch: bytes
    """The changes as a patch that `git apply` takes; empty if there are none, or if it would be too large."""
    runs_on_your_machine: tuple[str, ...]
    """Changed files that tools on your machine run or trust by themselves: look at them first."""
    notes: tuple[str, ...]
    """What else you should know, such as changes that are in no patch."""


@frozen
class RunWorkspace:
    """A workspace prepared for a run's sandboxes; `deliver` keeps their work when they are dead."""

    workspace: Workspace
    before: Snapshot
    record: WorkRecord
    run_dir: Path

    @property
    def placement(self) -> Placement:
        """The placement of the run's sandboxes."""
        return self.workspace.placement

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user."""
        return tuple(self.record.notes)

    async def deliver(self, open_sandbox: OpenSandbox | None) -> Finished:
        """Keep the commits, the files and the patch of a run. No sandbox on the workspace may be alive.

        Args:
            open_sandbox: Opens the sandbox in which git packs the commits. If it is None, or raises a `SandboxError`,
                commits are left behind.

        Raises:
            InfrastructureFault: Git failed, the disk is full, or it takes too long.
        """
        commits = await self._fetch_commits(open_sandbox) if open_sandbox else ImportedCommits({})
        try:
            with anyio.fail_after(KEEP_S):
                record = msgspec.structs.replace(self.record, refs=commits.refs)
                record, after = await close(record, self.run_dir, self.workspace.state)
                store = open_store(record, self.workspace.state)
                record, more = await self._with_committed_files(record, commits, after, store)
                return await _compare(record, after, store, (*commits.notes, *more))
        except TimeoutError as exc:
            raise InfrastructureFault(
                f"the state of the workspace could not be kept in {KEEP_S:g} s; it is as the agent left it: look at"
                f" {self.record.workspace!r} by hand"
            ) from exc

    async def changed_files(self) -> frozenset[bytes]:
        """Return the files of the workspace that were changed or removed in the clone. No sandbox may be alive.

        Raises:
            InfrastructureFault: They could not be compared in time.
        """
        assert self.record.clone is not None
        store = open_store(self.record, self.workspace.state)
        try:
            with anyio.fail_after(KEEP_S):
                return await store.files_changed_in(Path(self.record.clone), self.record.before)
        except (TimeoutError, OSError) as exc:
            raise InfrastructureFault(
                f"the private copy of run {self.record.run!r} could not be compared with the workspace: {exc!r}"
            ) from exc

    async def discard(self) -> None:
        """Remove the clone, and record that the run changed nothing. No sandbox on the workspace may be alive.

        Raises:
            InfrastructureFault: The disk is full.
        """
        assert self.record.mode != "bind"
        notes = [*self.record.notes, _DISCARDED]
        record = msgspec.structs.replace(self.record, after=self.record.before, notes=notes)
        clone = record.clone

        def discard() -> None:
            save_record(self.run_dir, record)
            if clone is not None:
                remove_tree(Path(clone))

        try:
            await anyio.to_thread.run_sync(discard)
        except OSError as exc:
            raise InfrastructureFault(
                f"the private copy of run {record.run!r} could not be removed: {exc}; remove {clone!r} by hand"
            ) from exc

    async def deliver_again(self, work: Finished) -> Finished | None:
        """Keep changes that the check made as the run's; return None if it changed nothing, or only a clone.

        A check runs code that the agent wrote, so its changes count as the agent's.

        Args:
            work: From `deliver`, before the check.

        Raises:
            InfrastructureFault: Git failed or the disk is full.
        """
        record = work.record
        if record.mode != "bind":
            return None
        store = open_store(record, self.workspace.state)
        after = await store.take(f"{record.run}/checked", base=record.before)
        appeared = await _git_appeared(record, after, store)
        is_same = (await store.memo(work.after.id)).is_same(await store.memo(after.id))
        if is_same and appeared == record.git_appeared:
            return None
        changed = [change.path for change in (await store.diff(work.after.id, after.id)).files]
        changed += [path for path in appeared if path not in record.git_appeared]
        note = f"the check changed files, they count as the run's: {list_names(changed) or 'see below'}"
        notes = list(dict.fromkeys([*record.notes, note, *after.notes]))
        record = msgspec.structs.replace(record, after=after.id, git_appeared=appeared, notes=notes)
        save_record(self.run_dir, record)
        return await _compare(record, after, store, (*work.notes, note))

    async def changes(self) -> Changes:
        """List what a sandbox without a run changed in its clone. No process inside may be alive.

        Raises:
            InfrastructureFault: Git failed or the disk is full.
        """
        work = await self.deliver(None)
        notes = (*work.record.notes, *work.notes)
        return Changes(work.diff.files, work.patch, work.runs_on_your_machine, notes)

    async def apply(self, *, force: bool) -> None:
        """Apply the changes that `changes` has found to the workspace.

        Raises:
            WorkspaceConflict, PolicyRefused, RingfenceError: As `record.apply_run`.
        """
        await apply_run(load_record(self.run_dir), self.workspace.state, force=force)

    async def _fetch_commits(self, open_sandbox: OpenSandbox) -> ImportedCommits:
        """Fetch the commits made inside. If the sandbox for that fails, a note reports it and the outcome stays."""
        if not self.workspace.repositories:
            return ImportedCommits({})
        notes = await self._restore_access()
        changed = [each for each in self.workspace.repositories if await has_new_commits(each)]
        if not changed:
            return ImportedCommits({}, notes)
        # Git in that sandbox reads the agent's data, which may take control of it: the workspace is read-only there,
        # and the sandbox is dead before the second snapshot.
        sealed = replace(
            self.placement,
            workspace_read_only=True,
            upload="none" if self.placement.upload == "none" else "git",
            is_downloaded=False,
        )
        parts: list[ImportedCommits] = []
        try:
            async with open_sandbox(sealed) as sandbox:
                for each in changed:
                    parts.append(await self._import(sandbox, each))  # noqa: PERF401 -- what was imported before a failure counts
        except SandboxError as exc:
            parts.append(ImportedCommits({}, (f"{NOT_TAKEN}: {exc}",)))
        return ImportedCommits(
            {name: commit for part in parts for name, commit in part.refs.items()},
            (*notes, *(note for part in parts for note in part.notes)),
            tuple(file for part in parts for file in part.committed),
        )

    async def _import(self, sandbox: Inside, git: PrivateGit) -> ImportedCommits:
        """Fetch the commits made in a repository; notes name those of a submodule, which has separate refs."""
        record = self.record
        out = await import_commits(
            sandbox, git, run_dir=self.run_dir, actor=record.actor, protect=record.protect
        )
        if not git.place:
            return out
        made = [f"a commit made in it is there as {name}" for name in sorted(out.refs)]
        notes = tuple(f"submodule {git.place!r}: {note}" for note in (*made, *out.notes))
        return ImportedCommits({}, notes, out.committed)

    async def _restore_access(self) -> tuple[str, ...]:
        """Restore the owner's permissions that the next sandbox needs; return a note on those that were missing.

        An agent can remove them from the workspace, or from a directory with a mount in it, to keep its commits from
        being fetched.
        """
        (source, actor), workspace = _work_tree(self.record), self.workspace.path
        targets = [mount.target for mount in self.placement.mounts]
        inside = sorted(
            {target.parent for target in targets if target.is_relative_to(workspace)} - {workspace}
        )

        def unlock() -> tuple[bytes, ...]:
            with suppress(OSError), Tree(source, unlock=stat.S_IRUSR | stat.S_IXUSR) as tree:
                for folder in inside:
                    with suppress(OSError):
                        tree.directory(os.fsencode(folder.relative_to(workspace)))
                return tuple(tree.unlocked)
            return ()

        return unlocked_note(await actor.call(unlock))

    async def _with_committed_files(
        self, record: WorkRecord, commits: ImportedCommits, after: Snapshot, store: SnapshotStore
    ) -> tuple[WorkRecord, tuple[str, ...]]:
        """The record with the committed files that differ from the workspace, and a note on those omitted."""
        if not commits.committed:
            return record, ()
        tree = {blob.path: (blob.git_mode, blob.id) for blob in await store.blobs(after.id)}
        committed, left_out = select_differing(commits.committed, tree, record.protect)
        record = msgspec.structs.replace(record, committed=committed)
        save_record(self.run_dir, record)
        return record, (f"commits change {left_out} more files than are listed",) if left_out else ()


async def prepare(
    workspace: Workspace,
    *,
    run: str,
    run_dir: Path,
    protect: Collection[str] = (),
    earlier: WorkRecord | None = None,
) -> RunWorkspace:
    """Take a snapshot of a workspace, prepare what its sandboxes see, and begin the record.

    Args:
        workspace: From `open_workspace`.
        run: The run's id.
        run_dir: The run's directory in the state directory.
        protect: Patterns, as in `.gitignore`, of further paths that the agent may not write.
        earlier: The record of a run on a clone that was not applied, from whose work the new clone starts.

    Raises:
        UsageError: The workspace is too large; or the work of `earlier` no longer fits it.
        PolicyRefused: It has more protected files than can be guarded, or the walk did not reach its end.
        InfrastructureFault: Git failed or the disk is full.
    """
    make_private_dir(run_dir)
    store = workspace.store
    before = await store.take(f"{run}/before")
    start = await _find_start(earlier, workspace, store, before)
    found = before.found if workspace.traits.is_fence else None
    workspace = await place_workspace(workspace, run_dir, found, protect=protect, start=start or before)
    source, repositories = workspace.placement.workspace_source, workspace.repositories
    own_start = None
    if start is not None:
        # A checkpoint of this run, which is kept when those of the earlier run are removed.
        own_start = await store.take(f"{run}/start", base=before.id, root=source, actor=Actor.current())
    record = WorkRecord(
        run=run,
        workspace=str(workspace.path),
        mode=workspace.mode,
        uid=workspace.owner.uid,
        gid=workspace.owner.gid,
        before=before.id,
        start=own_start.id if own_start else None,
        base_commit=repositories[0].refs.head_commit() if repositories else None,
        repository=await workspace.owner.call(partial(_origin_of, repositories)),
        clone=str(source) if workspace.mode == "clone" else None,
        git_present=has_git(workspace.path),
        notes=[
            *before.notes,
            *(subdirectory_note(workspace.path) if found else ()),
            *(note_author(workspace.path, workspace.state) if found else ()),
            *workspace.notes,
            *(await _links_note(workspace, before) if workspace.mode == "bind" and found else ()),
        ],
        protect=[*protect, *(f"/{os.fsdecode(escape(path))}" for path in workspace.obeyed_paths)],
    )
    save_record(run_dir, record)
    # The list of files is no longer needed, and would be kept in memory for as long as the run lasts.
    return RunWorkspace(workspace, replace(before, covered=None), record, run_dir)


def _origin_of(repositories: Collection[PrivateGit]) -> str:
    """The address that the workspace's own repository was cloned from; empty without one."""
    return next((read_origin(each.layout.common) for each in repositories if not each.place), "")


async def _links_note(workspace: Workspace, before: Snapshot) -> tuple[str, ...]:
    """Note the writable files that have hard links outside of the workspace."""
    path = workspace.path
    held = {mount.target: mount.read_only for mount in workspace.placement.mounts}
    read_only = {
        os.fsencode(place.relative_to(path)) for place in held if held[place] and place.is_relative_to(path)
    }

    def look() -> tuple[str, ...]:
        with Tree(path) as tree:
            return links_note(tree, before.found.linked, before.ignored, read_only=read_only)

    return await workspace.owner.call(look)


async def _find_start(
    earlier: WorkRecord | None, workspace: Workspace, store: SnapshotStore, before: Snapshot
) -> str | None:
    """Return the checkpoint that a clone starts from; None: the one taken before the run."""
    if earlier is None or earlier.after is None:
        return None
    mode = workspace.mode
    is_same = not (await store.diff(earlier.before, before.id)).files
    if mode != "clone" or not is_same:
        why = "the workspace has changed since" if mode == "clone" else f"this is mode {mode!r}"
        raise UsageError(
            f"run {earlier.run!r} changed files in a clone that were never applied, and {why}; bring them in"
            f" with `ringfence apply {earlier.run[-8:]}`, or leave out --continue"
        )
    return earlier.after


async def close(record: WorkRecord, run_dir: Path, state: Path) -> tuple[WorkRecord, Snapshot]:
    """Take the snapshot after a run and complete its record. Also used for a run that was interrupted.

    Raises:
        InfrastructureFault: Git failed or the disk is full.
    """
    store = open_store(record, state)
    root, actor = _work_tree(record)
    after = await store.take(f"{record.run}/after", base=record.before, root=root, actor=actor)
    appeared = await _git_appeared(record, after, store)
    notes = [*record.notes, *after.notes]
    record = msgspec.structs.replace(record, after=after.id, git_appeared=appeared, notes=notes)
    save_record(run_dir, record)
    return record, after


def _work_tree(record: WorkRecord) -> tuple[Path, Actor]:
    """The directory that the agent wrote to, and the user that reads it: a clone can be reached only by the caller."""
    if record.clone:
        return Path(record.clone), Actor.current()
    return Path(record.workspace), record.actor


async def _git_appeared(record: WorkRecord, after: Snapshot, store: SnapshotStore) -> list[str]:
    """Distrust the git directories that the run made in the workspace itself; return their paths."""
    if record.clone:
        return []
    before = await store.memo(record.before)
    appeared = [os.fsdecode(path) for path in sorted(after.found.git_entries.difference(before.git_entries))]
    if not record.git_present and has_git(Path(record.workspace)):
        appeared.append(".git")
    distrust_all(Path(record.workspace), appeared, run=record.run, state=store.state)
    return sorted(appeared)


async def _compare(
    record: WorkRecord, after: Snapshot, store: SnapshotStore, notes: tuple[str, ...]
) -> Finished:
    """Compare the run's end with its beginning."""
    try:
        diff, patch = await compare_run(record, store)
    except PatchTooLarge as exc:
        diff, patch, notes = await diff_run(record, store), b"", (*notes, str(exc))
    if diff.unkept:
        names = "; ".join(map(str, diff.unkept[:_MAX_SHOWN]))
        more = f"; and {len(diff.unkept) - _MAX_SHOWN} more" if len(diff.unkept) > _MAX_SHOWN else ""
        notes = (*notes, f"changed, but in no patch: {names}{more}")
    await _remember_settings(record, diff, store.state)
    return Finished(
        record=record,
        after=after,
        diff=diff,
        patch=patch,
        runs_on_your_machine=tuple(runs_on_your_machine(record, diff)),
        notes=(*notes, *after.notes),
    )


async def _remember_settings(record: WorkRecord, diff: Diff, state: Path) -> None:
    """Record the agent as the author of project files it left: later runs read these before they build their fence."""
    left = [change.path for change in diff.files if change.kind != "deleted"]
    left += [change.path for change in diff.unkept if change.kind != "deleted"]
    made = [path for path in left if path.rpartition("/")[2] in PROJECT_FILE_NAMES]
    root, actor = _work_tree(record)
    for path in made[:_MAX_SHOWN]:
        content = await actor.call(partial(read_small, root, os.fsencode(path)))
        if content is not None:
            remember_author(Path(record.workspace, path), content, run=record.run, state=state)

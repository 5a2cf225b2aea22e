"""A run's workspace, from before its first sandbox until after its last.

`prepare`: a snapshot, the private git directory, the clone, the mounts, the record. Then sandboxes work on it.
`RunWorkspace.deliver`: the commits made inside, through a new sandbox; a snapshot, what changed, the patch, the record.
"""

import os
import shlex
import stat
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from ringfence.config.authorship import PROJECT_FILE_NAMES, author_of, remember_author, told
from ringfence.config.discovery import find_project_file
from ringfence.config.paths import make_private_dir
from ringfence.config.trust import is_trusted
from ringfence.errors import ConfigurationError, InfrastructureFault, SandboxError, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement
from ringfence.sandbox.workspace.git.commits import (
    NOT_TAKEN,
    ImportedCommits,
    Inside,
    has_new_commits,
    import_commits,
)
from ringfence.sandbox.workspace.git.layout import has_git, read_small
from ringfence.sandbox.workspace.git.merge import beside_tree
from ringfence.sandbox.workspace.git.private import PrivateGit, Submodule
from ringfence.sandbox.workspace.open import Workspace
from ringfence.sandbox.workspace.placement import place_workspace
from ringfence.sandbox.workspace.protect.hard_links import links_note
from ringfence.sandbox.workspace.protect.repositories import distrust_all
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    diff_run,
    open_store,
    patch_run,
    runs_on_your_machine,
    save_record,
)
from ringfence.sandbox.workspace.run_as import Actor, both
from ringfence.sandbox.workspace.snapshot.diff import Diff, PatchTooLarge
from ringfence.sandbox.workspace.snapshot.ignore import escape
from ringfence.sandbox.workspace.snapshot.memo import unlocked_note
from ringfence.sandbox.workspace.snapshot.store import Snapshot, SnapshotStore
from ringfence.sandbox.workspace.tree import Tree

KEEP_S = 600.0
"""How long keeping the state of the workspace may take."""
_SHOWN = 20


OpenSandbox = Callable[[Placement], AbstractAsyncContextManager[Inside]]
"""Opens a new sandbox at a placement."""


@frozen
class Finished:
    """What a run came to."""

    record: WorkRecord
    after: Snapshot
    diff: Diff
    patch: bytes
    """Empty where nothing changed, or it would be too large (a note says so)."""
    runs_on_your_machine: tuple[str, ...]
    """Changed files that the host runs or trusts by itself."""
    notes: tuple[str, ...] = ()


@frozen
class RunWorkspace:
    """A workspace made ready for a run's sandboxes, and what is kept of it when they are dead."""

    workspace: Workspace
    before: Snapshot
    record: WorkRecord
    run_dir: Path

    @property
    def placement(self) -> Placement:
        """Of the run's sandboxes."""
        return self.workspace.placement

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user."""
        return tuple(self.record.notes)

    async def deliver(self, open_sandbox: OpenSandbox | None) -> Finished:
        """Keep what a run made: its commits, its files, its patch. No sandbox on the workspace may be alive.

        Args:
            open_sandbox: For git to pack commits in; None: commits are left behind. A `SandboxError` of it says why
                they are.

        Raises:
            InfrastructureFault: Git failed, the disk is full, or it takes too long.
        """
        commits = await self._fetch_commits(open_sandbox) if open_sandbox else ImportedCommits({})
        try:
            with anyio.fail_after(KEEP_S):
                record = msgspec.structs.replace(self.record, refs=commits.refs)
                store = open_store(record, self.workspace.state)
                record, after = await _closed(record, self.run_dir, store)
                record, more = await self._with_committed_files(record, commits, after, store)
                return await _finished(record, after, store, (*commits.notes, *more))
        except TimeoutError as exc:
            raise InfrastructureFault(
                f"the state of the workspace could not be kept in {KEEP_S:g} s; it is as the agent left it: look at"
                f" {self.record.workspace!r} by hand"
            ) from exc

    async def deliver_again(self, work: Finished) -> Finished | None:
        """Keep what the check left as the run's end; None if it changed nothing, or only a clone.

        What a check runs was written by the agent: what it changes is the agent's doing.

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
        if appeared == record.git_appeared and await store.is_same(work.after.id, after.id):
            return None
        changed = [change.path for change in (await store.diff(work.after.id, after.id)).files]
        changed += [path for path in appeared if path not in record.git_appeared]
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        note = f"the check changed files, they count as the run's: {', '.join(changed[:_SHOWN]) or 'see below'}{more}"
        notes = list(dict.fromkeys([*record.notes, note, *after.notes]))
        record = msgspec.structs.replace(record, after=after.id, git_appeared=appeared, notes=notes)
        save_record(self.run_dir, record)
        return await _finished(record, after, store, (*work.notes, note))

    async def _fetch_commits(self, open_sandbox: OpenSandbox) -> ImportedCommits:
        """Bring the commits made inside out; what keeps a sandbox from that does not decide how the run ended."""
        git = self.workspace.git
        if git is None:
            return ImportedCommits({})
        notes = await self._give_rights_back()
        if not self.workspace.submodules and not await has_new_commits(git):
            return ImportedCommits({}, notes)
        # What the agent made is only data to the git in there, yet a program reads it: the workspace is read-only to
        # it, and it is dead before the state of the files is kept.
        sealed = replace(
            self.placement,
            workspace_read_only=True,
            upload="none" if self.placement.upload == "none" else "git",
            is_downloaded=False,
        )
        parts: list[ImportedCommits] = []
        try:
            async with open_sandbox(sealed) as sandbox:
                parts.append(await self._import(sandbox, git))
                parts += [await self._import_submodule(sandbox, each) for each in self.workspace.submodules]
        except SandboxError as exc:
            parts.append(ImportedCommits({}, (f"{NOT_TAKEN}: {exc}",)))
        return ImportedCommits(
            {name: commit for part in parts for name, commit in part.refs.items()},
            (*notes, *(note for part in parts for note in part.notes)),
            tuple(file for part in parts for file in part.committed),
        )

    async def _import(self, sandbox: Inside, git: PrivateGit, place: str = "") -> ImportedCommits:
        record = self.record
        return await import_commits(
            sandbox, git, run_dir=self.run_dir, actor=record.actor, place=place, protect=record.protect
        )

    async def _import_submodule(self, sandbox: Inside, module: Submodule) -> ImportedCommits:
        """Bring the commits made in a submodule into its own repository; notes name its refs."""
        out = await self._import(sandbox, module.private, module.place)
        made = [f"a commit made in it is there as {name}" for name in sorted(out.refs)]
        notes = tuple(f"submodule {module.place!r}: {note}" for note in (*made, *out.notes))
        return ImportedCommits({}, notes, out.committed)

    async def _give_rights_back(self) -> tuple[str, ...]:
        """Open the workspace again for the sandbox that brings commits out; what had to be, as a note.

        An agent that takes its owner's rights away on the workspace, or on a directory that something is mounted in,
        would keep a further sandbox from being made.
        """
        source, workspace = self.placement.workspace_source, self.workspace.path
        assert source is not None
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

        actor = Actor.current() if self.record.clone else self.record.actor
        return unlocked_note(await actor.call(unlock))

    async def _with_committed_files(
        self, record: WorkRecord, commits: ImportedCommits, after: Snapshot, store: SnapshotStore
    ) -> tuple[WorkRecord, tuple[str, ...]]:
        """The record with the files that commits change otherwise than the workspace; a note on those left out."""
        if not commits.committed:
            return record, ()
        tree = {blob.path: (blob.git_mode, blob.id) for blob in await store.blobs(after.id)}
        committed, left_out = beside_tree(commits.committed, tree, record.protect)
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
    """Keep the state of a workspace, make what its sandboxes are shown, and begin the record.

    Args:
        workspace: From `open_workspace`.
        run: The run's id.
        run_dir: The run's directory in the state directory.
        protect: Patterns, as in `.gitignore`, of further paths that the agent may not write.
        earlier: A run on a clone, not applied, whose work the new clone starts from.

    Raises:
        UsageError: The workspace is too large; or the work of `earlier` does not fit it any more.
        PolicyRefused: There is more in it than can be guarded, or it was not looked over to its end.
        InfrastructureFault: Git failed or the disk is full.
    """
    make_private_dir(run_dir)
    settings = workspace.settings
    store = SnapshotStore(workspace.path, workspace.state, actor=workspace.owner, excludes=settings.excludes)
    before = await store.take(f"{run}/before")
    start = await _start(earlier, workspace, store, before)
    found = before if workspace.traits.is_fence else None
    workspace = await place_workspace(workspace, run_dir, found, protect=protect, files=(store, start))
    source = workspace.placement.workspace_source
    record = WorkRecord(
        run=run,
        workspace=str(workspace.path),
        mode=workspace.mode,
        uid=workspace.owner.uid,
        gid=workspace.owner.gid,
        before=before.id,
        start=await _keep_start(store, before, source, run) if start != before.id else None,
        base_commit=workspace.git.refs.head_commit() if workspace.git else None,
        clone=str(source) if workspace.mode == "clone" else None,
        git_present=has_git(workspace.path),
        notes=[
            *before.notes,
            *(await anyio.to_thread.run_sync(surroundings, workspace.path, workspace.state) if found else ()),
            *workspace.notes,
            *(await _links_note(workspace, before) if workspace.mode == "bind" and found else ()),
        ],
        protect=[*protect, *(f"/{os.fsdecode(escape(path))}" for path in workspace.obeyed_paths)],
    )
    save_record(run_dir, record)
    return RunWorkspace(workspace, before, record, run_dir)


async def _links_note(workspace: Workspace, before: Snapshot) -> tuple[str, ...]:
    """Note the files with names elsewhere that can be written inside."""
    path = workspace.path
    held = {mount.target: mount.read_only for mount in workspace.placement.mounts}
    read_only = {
        os.fsencode(place.relative_to(path)) for place in held if held[place] and place.is_relative_to(path)
    }

    def look() -> tuple[str, ...]:
        with Tree(path) as tree:
            return links_note(tree, before.linked, before.ignored, read_only=read_only)

    return await workspace.owner.call(look)


async def _start(
    earlier: WorkRecord | None, workspace: Workspace, store: SnapshotStore, before: Snapshot
) -> str:
    """The checkpoint that a clone starts from."""
    if earlier is None or earlier.after is None:
        return before.id
    mode = workspace.mode
    is_same = not (await store.diff(earlier.before, before.id)).files
    if mode != "clone" or not is_same:
        why = "the workspace has changed since" if mode == "clone" else f"this is mode {mode!r}"
        raise UsageError(
            f"run {earlier.run!r} changed files in a clone that were never applied, and {why}; bring them in"
            f" with `ringfence apply {earlier.run[-8:]}`, or leave out --continue"
        )
    return earlier.after


async def _keep_start(store: SnapshotStore, before: Snapshot, source: Path | None, run: str) -> str:
    """A checkpoint of the run's own, which does not go when the earlier run's do."""
    taken = await store.take(f"{run}/start", base=before.id, root=source, actor=Actor.current())
    return taken.id


async def close(record: WorkRecord, run_dir: Path, state: Path) -> tuple[WorkRecord, Snapshot]:
    """Keep the state after a run and complete its record. Also serves a run found interrupted.

    Raises:
        InfrastructureFault: Git failed or the disk is full.
    """
    return await _closed(record, run_dir, open_store(record, state))


async def _closed(record: WorkRecord, run_dir: Path, store: SnapshotStore) -> tuple[WorkRecord, Snapshot]:
    label = f"{record.run}/after"
    if record.clone:
        # The clone lies in the run's directory, where only the caller can walk to; links in it are not
        # followed.
        root = Path(record.clone)
        after = await store.take(label, base=record.before, root=root, actor=Actor.current())
    else:
        after = await store.take(label, base=record.before)
    appeared = await _git_appeared(record, after, store)
    notes = [*record.notes, *after.notes]
    record = msgspec.structs.replace(record, after=after.id, git_appeared=appeared, notes=notes)
    save_record(run_dir, record)
    return record, after


async def _git_appeared(record: WorkRecord, after: Snapshot, store: SnapshotStore) -> list[str]:
    """Git directories in the workspace itself that were not there before the run."""
    if record.clone:
        return []
    before = await store.memo(record.before)
    appeared = [os.fsdecode(path) for path in after.git_entries if path not in before.git_entries]
    if not record.git_present and has_git(Path(record.workspace)):
        appeared.append(".git")
    distrust_all(Path(record.workspace), appeared, run=record.run, state=store.state)
    return sorted(appeared)


async def _finished(
    record: WorkRecord, after: Snapshot, store: SnapshotStore, notes: tuple[str, ...]
) -> Finished:
    diff, (patch, too_large) = await both(partial(diff_run, record, store), partial(_patch, record, store))
    if diff.unkept:
        names = "; ".join(map(str, diff.unkept[:_SHOWN]))
        more = f"; and {len(diff.unkept) - _SHOWN} more" if len(diff.unkept) > _SHOWN else ""
        notes = (*notes, f"changed, but in no patch: {names}{more}")
    await _remember_settings(record, diff, store.state)
    notes = (*notes, *too_large)
    return Finished(
        record=record,
        after=after,
        diff=diff,
        patch=patch,
        runs_on_your_machine=tuple(runs_on_your_machine(record, diff)),
        notes=(*notes, *after.notes),
    )


async def _patch(record: WorkRecord, store: SnapshotStore) -> tuple[bytes, tuple[str, ...]]:
    """The patch; empty with a note where it would be too large."""
    try:
        return await patch_run(record, store), ()
    except PatchTooLarge as exc:
        return b"", (str(exc),)


async def _remember_settings(record: WorkRecord, diff: Diff, state: Path) -> None:
    """Keep whose a project file is that the run left: later runs read it before they build their fence."""
    left = [change.path for change in diff.files if change.kind != "deleted"]
    left += [change.path for change in diff.unkept if change.kind != "deleted"]
    made = [path for path in left if path.rpartition("/")[2] in PROJECT_FILE_NAMES]
    root = Path(record.clone or record.workspace)
    actor = Actor.current() if record.clone else record.actor
    for path in made[:_SHOWN]:
        content = await actor.call(partial(read_small, root, os.fsencode(path)))
        if content is not None:
            remember_author(Path(record.workspace, path), content, run=record.run, state=state)


def surroundings(workspace: Path, state: Path) -> list[str]:
    """Notes for the start of a run."""
    return [*_part_note(workspace), *_settings_note(workspace, state)]


def _part_note(workspace: Path) -> list[str]:
    """Note that the project is larger than what the agent sees. A home that is a repository is no project."""
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises where there is none
    if has_git(workspace):
        return []
    for folder in workspace.parents:
        if folder in (home, Path(folder.anchor)):
            return []
        if (folder / ".git").is_file() or (folder / ".git" / "HEAD").is_file():
            whole = f"use `-C {shlex.quote(str(folder))}` to give it the whole"
            seen = "the agent sees only this directory and no history"
            return [f"the workspace is a part of the repository at {str(folder)!r}; {seen}; {whole}"]
    return []


def _settings_note(workspace: Path, state: Path) -> list[str]:
    """Note a project file that a run left: it can only tighten, but that may be what keeps this run from working."""
    with suppress(ConfigurationError):
        file = find_project_file(workspace)
        run = author_of(file, state) if file is not None else None
        if file is not None and run is not None:
            content = read_small(file.parent, os.fsencode(file.name))
            if content is not None and not is_trusted(file, content):
                return [f"{told(file, run)}; it is not trusted, so it only tightens this run"]
    return []

"""A run's workspace from before its first sandbox until after its last."""

import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.git.config import UserSettings, read_settings
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git, has_git, why_not_used
from ringfence.sandbox.workspace.git.private import (
    Identity,
    PrivateGit,
    Submodule,
    make_mount_point,
    make_private_git,
    make_submodules,
)
from ringfence.sandbox.workspace.ownership import Decision, check_own_program, decide_for
from ringfence.sandbox.workspace.protect.mounts import (
    cover_note,
    covers_for,
    guard_git,
    overlays_for,
    refuse_unseen,
    shut_in,
)
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.protect.roots_files import check_roots_files
from ringfence.sandbox.workspace.refusals import check_reachable, check_workspace
from ringfence.sandbox.workspace.restore import materialise
from ringfence.sandbox.workspace.run_as import Actor, owner_of
from ringfence.sandbox.workspace.snapshot.ignore import escape
from ringfence.sandbox.workspace.snapshot.store import Snapshot, SnapshotStore
from ringfence.sandbox.workspace.surroundings import surroundings
from ringfence.sandbox.workspace.work import (
    WorkRecord,
    save_record,
)

_SHOWN = 5


@frozen
class Prepared:
    """A workspace made ready for a run's sandboxes."""

    placement: Placement
    before: Snapshot
    record: WorkRecord
    run_dir: Path
    state: Path
    layout: GitLayout | None
    private: PrivateGit | None
    submodules: tuple[Submodule, ...] = ()
    """Those with a private git directory of their own."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Things the user should be told."""
        return tuple(self.record.notes)


async def prepare(
    workspace: Path,
    mode: WorkspaceMode | None,
    *,
    run: str,
    run_dir: Path,
    state: Path,
    protect: Collection[str] = (),
    earlier: WorkRecord | None = None,
    is_fenced: bool = True,
    unseen: str | None = None,
) -> Prepared:
    """Check the workspace, keep its state, and make what is mounted over it.

    Args:
        workspace: The workspace as named by the user.
        mode: The mode that was asked for; None: by the table of `ownership`.
        run: The run's id.
        run_dir: The run's directory in the state directory.
        state: The state directory.
        protect: Patterns, as in `.gitignore`, of further paths that the agent may not write.
        earlier: A run on a clone, not applied, whose work the new clone starts from.
        is_fenced: False for the bare host: the workspace itself, as the caller, with nothing mounted.
        unseen: Why the engine cannot be shown this machine's directories, so that the files are carried.

    Raises:
        UsageError: The workspace is absent, no directory, unreadable or too large; or the work of `earlier`
            does not fit it any more.
        PolicyRefused: It may not be one, or not in this mode.
        InfrastructureFault: Git failed or the disk is full.
    """
    workspace = await anyio.to_thread.run_sync(
        lambda: check_workspace(workspace, home=Path.home(), state=state)
    )
    decision = decide_for(workspace, mode, unseen=unseen) if is_fenced else _on_host(mode)
    reader = owner_of(workspace) if os.geteuid() == 0 else Actor.current()
    await reader.call(lambda: check_reachable(workspace))
    make_private_dir(run_dir)
    unused = why_untrusted(workspace, state) or await reader.call(lambda: why_not_used(workspace))
    layout = None if unused else await reader.call(lambda: find_git(workspace))
    settings = await read_settings(reader, workspace, layout)
    store = SnapshotStore(workspace, state, actor=reader, excludes=settings.excludes)
    before = await store.take(f"{run}/before")
    ground = _Ground(workspace, decision, store, run_dir, is_carried=unseen is not None)
    start = await _start(earlier, ground, before)
    has_private = layout is not None and decision.mode != "read_only" and is_fenced
    private = await ground.private_git(settings.identity) if has_private else None
    # Where nothing is written, git inside works on a directory that is thrown away.
    is_shown = layout is not None and decision.mode == "read_only" and is_fenced and unseen is None
    shown = await ground.private_git(settings.identity) if is_shown else private
    submodules, left_out = await ground.submodules(layout if private else None, before, settings.identity)
    source = await ground.clone(start, private) if decision.mode == "clone" else workspace
    if private is not None and not private.overlays:
        private = replace(private, directory=source / ".git")
    guards = _guards(ground, before, private, settings, protect=protect) if is_fenced else None
    placement = _placement(ground, source, shown, guards)
    placement = _with_submodules(placement, submodules)
    record = WorkRecord(
        run=run,
        workspace=str(workspace),
        mode=decision.mode,
        uid=reader.uid,
        gid=reader.gid,
        before=before.id,
        start=await _keep_start(store, before, placement, run) if start != before.id else None,
        base_commit=private.refs.head_commit() if private else None,
        clone=str(source) if decision.mode == "clone" else None,
        git_present=has_git(workspace),
        notes=[
            *before.notes,
            *(await anyio.to_thread.run_sync(surroundings, workspace, state) if is_fenced else ()),
            *([unused] if unused else ()),
            *(private.notes if private else ()),
            *(note for submodule in submodules for note in submodule.notes),
            *left_out,
            *(_told(before, guards, decision) if guards else ()),
            *(_own_note(workspace) if guards and decision.mode == "bind" else ()),
            *_carried_note(unseen, decision),
            *_obeyed_note(settings),
        ],
        protect=[*protect, *(f"/{os.fsdecode(escape(path))}" for path in _named(settings))],
    )
    save_record(run_dir, record)
    return Prepared(placement, before, record, run_dir, state, layout, private, submodules)


@frozen
class _Ground:
    """What is worked on, as whom, and where what is made for it lies."""

    workspace: Path
    decision: Decision
    store: SnapshotStore
    run_dir: Path
    is_carried: bool

    @property
    def owner(self) -> Actor:
        """The identity of the sandbox."""
        return Actor(self.decision.uid, self.decision.gid)

    async def private_git(self, identity: Identity) -> PrivateGit | None:
        """A git directory for the agent."""
        return await make_private_git(
            self.workspace,
            self.run_dir / "git",
            reader=self.store.actor,
            owner=self.owner,
            identity=identity,
            stands_alone=self.is_carried,
        )

    async def submodules(
        self, layout: GitLayout | None, before: Snapshot, identity: Identity
    ) -> tuple[tuple[Submodule, ...], tuple[str, ...]]:
        """Git directories for the submodules; a clone has none: there they are plain directories."""
        if layout is None or layout.refused is not None or self.decision.mode != "bind":
            return (), ()
        return await make_submodules(
            layout,
            before.git_entries,
            self.run_dir / "submodules",
            reader=self.store.actor,
            owner=self.owner,
            identity=identity,
        )

    async def clone(self, checkpoint: str, private: PrivateGit | None) -> Path:
        """A directory with the files of a checkpoint."""
        clone = self.run_dir / "work"
        clone.mkdir(mode=0o700)
        if private is not None:
            make_mount_point(clone, private, self.run_dir / "git")
        await materialise(self.store, checkpoint, clone, self.owner)
        return clone


@frozen
class _Guards:
    read_only: Collection[bytes]
    specials: Collection[bytes]
    protect: Collection[str]


def _guards(
    ground: _Ground,
    before: Snapshot,
    private: PrivateGit | None,
    settings: UserSettings,
    *,
    protect: Collection[str],
) -> _Guards:
    """What is guarded; a workspace of which that is not known is refused where it is shown itself."""
    mode = ground.decision.mode
    if mode != "clone":
        refuse_unseen(ground.workspace, before.blindness)
    if ground.decision.is_idmapped:
        check_roots_files(ground.workspace)
    shut = shut_in({os.fsencode(path): why for path, why in before.skipped.items()}) if mode == "bind" else ()
    own = check_own_program(ground.workspace) if mode == "bind" else ()
    read_only = (*before.git_entries, *_fixed(settings), *shut, *own) if mode == "bind" else ()
    return _Guards(read_only, _reachable(before.specials, private), protect)


def _fixed(settings: UserSettings) -> list[bytes]:
    """What the user's git obeys in the workspace, and the agent therefore may not write."""
    return [os.fsencode(path) for path in settings.obeyed if path != "."]


def _named(settings: UserSettings) -> list[bytes]:
    """These, and what it would obey if it appeared."""
    return [*_fixed(settings), *map(os.fsencode, settings.perhaps)]


def _obeyed_note(settings: UserSettings) -> tuple[str, ...]:
    if not settings.obeyed:
        return ()
    names = ", ".join(map(repr, settings.obeyed[:_SHOWN]))
    more = f" and {len(settings.obeyed) - _SHOWN} more" if len(settings.obeyed) > _SHOWN else ""
    return (
        f"your git configuration leads into the workspace; ringfence does not follow it, your git does: {names}{more}",
    )


def _reachable(specials: Collection[bytes], private: PrivateGit | None) -> tuple[bytes, ...]:
    """Those that an agent could get at: its private git directory hides what is in the user's."""
    return tuple(path for path in specials if private is None or not path.startswith(b".git/"))


def _on_host(mode: WorkspaceMode | None) -> Decision:
    if mode not in (None, "bind"):
        raise PolicyRefused(
            f"workspace mode {mode!r} is refused: the host backend has no fence to show another workspace with;"
            " use --sandbox bubblewrap, or leave the mode out",
            rule="host-mode",
        )
    return Decision(os.geteuid(), os.getegid(), "bind")


async def _start(earlier: WorkRecord | None, ground: _Ground, before: Snapshot) -> str:
    """The checkpoint that a clone starts from."""
    if earlier is None or earlier.after is None:
        return before.id
    mode = ground.decision.mode
    is_same = not (await ground.store.diff(earlier.before, before.id)).files
    if mode != "clone" or not is_same:
        why = "the workspace has changed since" if mode == "clone" else f"this is mode {mode!r}"
        raise UsageError(
            f"run {earlier.run!r} changed files in a clone that were never applied, and {why}; bring them in"
            f" with `ringfence apply {earlier.run[-8:]}`, or leave out --continue"
        )
    return earlier.after


async def _keep_start(store: SnapshotStore, before: Snapshot, placement: Placement, run: str) -> str:
    """A checkpoint of the run's own, which does not go when the earlier run's do."""
    taken = await store.take(
        f"{run}/start", base=before.id, root=placement.workspace_source, actor=Actor.current()
    )
    return taken.id


def _placement(
    ground: _Ground, source: Path, private: PrivateGit | None, guards: _Guards | None
) -> Placement:
    workspace, decision = ground.workspace, ground.decision
    if guards is None:
        return Placement(decision.uid, decision.gid, workspace, workspace)
    if decision.mode == "read_only":
        reachable = _reachable(guards.specials, private)
        return Placement(
            decision.uid,
            decision.gid,
            workspace,
            workspace,
            workspace_read_only=True,
            overlays=(*(private.overlays if private else ()), *covers_for(workspace, reachable)),
            carry="in" if ground.is_carried else "none",
        )
    overlays = list(private.overlays if private else ())
    if private is None and decision.mode == "bind":
        overlays += guard_git(workspace)
    overlays += overlays_for(
        workspace,
        source=source,
        git_entries=guards.read_only,
        protect=guards.protect,
        covered=guards.specials if decision.mode == "bind" else (),
    )
    return Placement(
        decision.uid,
        decision.gid,
        workspace,
        source,
        overlays=tuple(overlays),
        carry="both" if ground.is_carried else "none",
        is_idmapped=decision.is_idmapped,
    )


def _own_note(workspace: Path) -> tuple[str, ...]:
    own = [os.fsdecode(path) for path in check_own_program(workspace)]
    return tuple(f"{path!r} is read-only inside: ringfence itself runs from it" for path in own)


def _carried_note(unseen: str | None, decision: Decision) -> tuple[str, ...]:
    if unseen is None or decision.mode != "clone":
        return ()
    note = (
        f"{unseen}: your files are carried there and come back when the sandbox ends, protected ones as they were; "
        "if the engine or ringfence dies before, what was made inside is lost"
    )
    return (note,)


def _with_submodules(placement: Placement, submodules: Iterable[Submodule]) -> Placement:
    # The last: what is mounted upon itself would show their own `.git` again.
    more = tuple(overlay for submodule in submodules for overlay in submodule.private.overlays)
    return replace(placement, overlays=(*placement.overlays, *more))


def _told(before: Snapshot, guards: _Guards, decision: Decision) -> list[str]:
    """What leads out of the workspace, for the user to know."""
    if decision.mode == "clone":
        return []
    return [*cover_note(guards.specials), *(before.shared if decision.mode == "bind" else ())]

"""Opens a workspace, in one way for runs, sandboxes, checks and inspection.

`open_workspace` resolves the path, decides as whom and how it is shown, locks it where it is written, and looks at its
git. `show_workspace` makes what a sandbox is shown: a private git directory, the copy in mode `clone`, and mounts.
"""

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Carry, Overlay, Placement, Traits
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.git.config import UserSettings, read_settings
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git, why_not_used
from ringfence.sandbox.workspace.git.private import (
    PrivateGit,
    Submodule,
    make_mount_point,
    make_private_git,
    make_submodules,
)
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.policy import (
    Decision,
    check_reachable,
    check_workspace,
    decide_for,
    decide_on_host,
)
from ringfence.sandbox.workspace.protect.mounts import (
    check_roots_files,
    cover_note,
    covers_for,
    guard_git,
    overlays_for,
    refuse_unseen,
    shut_in,
)
from ringfence.sandbox.workspace.protect.repositories import expect_no_git, settle_git, why_untrusted
from ringfence.sandbox.workspace.restore import materialise
from ringfence.sandbox.workspace.run_as import Actor, owner_of
from ringfence.sandbox.workspace.snapshot.store import Snapshot, SnapshotStore
from ringfence.sandbox.workspace.snapshot.walk import Walk

_SHOWN = 5


@frozen
class Workspace:
    """The workspace of one run or sandbox."""

    path: Path
    """Resolved; it has the same path inside."""
    state: Path
    """The state directory."""
    decision: Decision
    owner: Actor
    """As whom host code reads and writes its files."""
    traits: Traits = Traits()
    """Of the backend: whether it fences, and whether files are uploaded and downloaded."""
    layout: GitLayout | None = None
    """Its git directory, where that is used."""
    settings: UserSettings = UserSettings()
    """What the git configuration of its owner says."""
    notes: tuple[str, ...] = ()
    """What the user should be told about it."""

    @property
    def mode(self) -> WorkspaceMode:
        """How it is shown."""
        return self.decision.mode

    @property
    def sandbox_user(self) -> Actor:
        """As whom the sandbox runs."""
        return Actor(self.decision.uid, self.decision.gid)

    @property
    def obeyed_files(self) -> list[bytes]:
        """Files in it that the user's git obeys, and an agent therefore may not write."""
        return [os.fsencode(path) for path in self.settings.obeyed if path != "."]

    @property
    def obeyed_paths(self) -> list[bytes]:
        """These, and what it would obey if it appeared."""
        return [*self.obeyed_files, *map(os.fsencode, self.settings.perhaps)]


@frozen
class Findings:
    """What was found in a workspace that a mount has to deal with; paths are relative to it."""

    git_entries: Collection[bytes]
    """Every `.git` below its own."""
    specials: Collection[bytes]
    """Sockets, fifos and devices."""
    closed: Mapping[bytes, str]
    """What was not looked into, and why; directories end in a slash."""
    blindness: str
    """Why there may be sockets and repositories that were not found; empty: there are none."""

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> "Findings":
        """What was found while a snapshot was taken."""
        closed = {os.fsencode(path): why for path, why in snapshot.skipped.items()}
        return cls(snapshot.git_entries, snapshot.specials, closed, snapshot.blindness)

    @classmethod
    def of_walk(cls, found: Walk) -> "Findings":
        """What was found by a walk alone."""
        return cls(sorted(found.git_entries), found.specials, found.closed, found.blindness)

    def reachable_specials(self, git: PrivateGit | None) -> tuple[bytes, ...]:
        """Those that an agent could get at: its private git directory hides what is in the user's."""
        return tuple(path for path in self.specials if git is None or not path.startswith(b".git/"))


@frozen
class View:
    """How a workspace is shown to a sandbox."""

    placement: Placement
    git: PrivateGit | None = None
    """The private git directory whose commits are fetched; None where there are none to fetch."""
    submodules: tuple[Submodule, ...] = ()
    """Those with a private git directory of their own."""
    notes: tuple[str, ...] = ()
    """What the user should be told about it."""


@asynccontextmanager
async def open_workspace(
    path: Path,
    mode: WorkspaceMode | None,
    *,
    state: Path,
    holder: str | None,
    traits: Traits,
) -> AsyncIterator[Workspace]:
    """Resolve a workspace, decide how it is shown, lock it if it is written itself, and look at its git.

    Args:
        path: As named by the user.
        mode: The mode that was asked for; None: by the table of `policy`.
        state: The state directory.
        holder: Who works there, which others are told: a run's id. None: nobody is kept from writing meanwhile.
        traits: Of the backend. Where it does not fence, the workspace itself is worked on, as the caller.

    Raises:
        UsageError: It is absent, no directory, or unreadable.
        PolicyRefused: It may not be a workspace, or not in this mode; or another run holds it, or one above or in it
            (`workspace-busy`).
        InfrastructureFault: The lock cannot be made, or git did not answer.
    """
    resolved = await anyio.to_thread.run_sync(lambda: check_workspace(path, home=Path.home(), state=state))
    decision = decide_for(resolved, mode, unseen=traits.unseen) if traits.is_fence else decide_on_host(mode)
    owner = owner_of(resolved) if os.geteuid() == 0 else Actor.current()
    await owner.call(lambda: check_reachable(resolved))
    with _locked(resolved, decision, holder, state):
        unused = why_untrusted(resolved, state) or await owner.call(lambda: why_not_used(resolved))
        layout = None if unused else await owner.call(lambda: find_git(resolved))
        settings = await read_settings(owner, resolved, layout)
        notes = (
            *([unused] if unused else ()),
            *_upload_note(traits.unseen, decision),
            *_obeyed_note(settings),
        )
        yield Workspace(resolved, state, decision, owner, traits, layout, settings, notes)


@contextmanager
def _locked(path: Path, decision: Decision, holder: str | None, state: Path) -> Iterator[None]:
    """Hold a workspace that is worked on itself; sandboxes on a clone, or that only read, need not."""
    if holder is None or decision.mode != "bind":
        yield
        return
    with held(path, by=holder, state=state):
        expect_no_git(path, holder, state)
        try:
            yield
        finally:
            settle_git(path, state)


async def show_workspace(
    workspace: Workspace,
    directory: Path,
    found: Findings | None,
    *,
    protect: Collection[str] = (),
    files: tuple[SnapshotStore, str] | None = None,
) -> View:
    """Make what a sandbox is shown of a workspace.

    Args:
        workspace: From `open_workspace`.
        directory: Takes the private git directory and the clone; goes when no sandbox needs them any more.
        found: What is in the workspace. None: nothing is guarded, for a copy that is thrown away or the bare host.
        protect: Patterns, as in `.gitignore`, of further paths that the agent may not write.
        files: The snapshot that a clone starts from.

    Raises:
        PolicyRefused: There is more in it than can be guarded, or it was not looked over to its end.
        InfrastructureFault: Git failed or the disk is full.
    """
    decision, source = workspace.decision, workspace.path
    git = await _make_git(workspace, directory)
    fetched = git if workspace.mode != "read_only" else None
    submodules, left_out = await _make_submodules(workspace, directory, found, fetched)
    if workspace.mode == "clone":
        assert files is not None
        source = await _make_clone(workspace, directory, git, files)
    if fetched is not None and not fetched.overlays:
        fetched = replace(fetched, directory=source / ".git")
    overlays = await anyio.to_thread.run_sync(lambda: _overlays(workspace, source, git, found, protect))
    inner = (overlay for submodule in submodules for overlay in submodule.private.overlays)
    placement = Placement(
        decision.uid,
        decision.gid,
        workspace.path,
        source,
        workspace_read_only=workspace.mode == "read_only",
        # The last: what is mounted upon itself would show the submodules' own `.git` again.
        overlays=(*overlays, *inner),
        carry=_carry(workspace, found),
        is_idmapped=decision.is_idmapped,
    )
    covered = found.reachable_specials(git) if found is not None and workspace.mode != "clone" else ()
    notes = (
        *(git.notes if git is not None else ()),
        *(note for submodule in submodules for note in submodule.notes),
        *left_out,
        *cover_note(covered),
        *(
            f"{os.fsdecode(path)!r} is read-only inside: ringfence itself runs from it"
            for path in decision.own_environment
        ),
    )
    return View(placement, fetched, submodules, notes)


def _carry(workspace: Workspace, found: Findings | None) -> Carry:
    """Whether files are uploaded; those of a clone come back, but not those of a copy that is thrown away."""
    if workspace.traits.sees_host_files:
        return "none"
    return "both" if workspace.mode == "clone" and found is not None else "in"


async def _make_git(workspace: Workspace, directory: Path) -> PrivateGit | None:
    """A git directory for the agent; where nothing is written, one that is thrown away."""
    is_uploaded = not workspace.traits.sees_host_files
    if (
        workspace.layout is None
        or not workspace.traits.is_fence
        or (is_uploaded and workspace.mode == "read_only")
    ):
        return None
    return await make_private_git(
        workspace.path,
        directory / "git",
        reader=workspace.owner,
        owner=workspace.sandbox_user,
        identity=workspace.settings.identity,
        stands_alone=is_uploaded,
    )


async def _make_submodules(
    workspace: Workspace, directory: Path, found: Findings | None, git: PrivateGit | None
) -> tuple[tuple[Submodule, ...], tuple[str, ...]]:
    """Git directories for the submodules; a clone has none: there they are plain directories."""
    layout = workspace.layout
    if git is None or found is None or layout is None or layout.refused or workspace.mode != "bind":
        return (), ()
    return await make_submodules(
        layout,
        found.git_entries,
        directory / "submodules",
        reader=workspace.owner,
        owner=workspace.sandbox_user,
        identity=workspace.settings.identity,
    )


async def _make_clone(
    workspace: Workspace, directory: Path, git: PrivateGit | None, files: tuple[SnapshotStore, str]
) -> Path:
    """A directory with the files of a snapshot."""
    clone = directory / "work"
    clone.mkdir(mode=0o700)
    if git is not None:
        make_mount_point(clone, git, directory / "git")
    store, snapshot = files
    await materialise(store, snapshot, clone, workspace.sandbox_user)
    return clone


def _overlays(
    workspace: Workspace,
    source: Path,
    git: PrivateGit | None,
    found: Findings | None,
    protect: Collection[str],
) -> tuple[Overlay, ...]:
    """What is mounted upon the workspace, in order."""
    overlays = git.overlays if git is not None else ()
    if found is None:
        return overlays
    if workspace.mode == "clone":
        return overlays + overlays_for(workspace.path, source=source, protect=protect)
    refuse_unseen(workspace.path, found.blindness)
    specials = found.reachable_specials(git)
    if workspace.mode == "read_only":
        return overlays + covers_for(workspace.path, specials)
    if workspace.decision.is_idmapped:
        check_roots_files(workspace.path)
    guarded = (
        *found.git_entries,
        *workspace.obeyed_files,
        *shut_in(found.closed),
        *workspace.decision.own_environment,
    )
    return (overlays or guard_git(workspace.path)) + overlays_for(
        workspace.path, git_entries=guarded, protect=protect, covered=specials
    )


def protected_placement(workspace: Workspace, protect: Collection[str]) -> Placement:
    """What can be told of a workspace's placement before anything is made for it: for `ringfence policy`."""
    decision = workspace.decision
    overlays: tuple[Overlay, ...] = ()
    if workspace.traits.is_fence and workspace.mode != "read_only":
        overlays = overlays_for(workspace.path, git_entries=decision.own_environment, protect=protect)
    return Placement(
        decision.uid,
        decision.gid,
        workspace.path,
        workspace.path,
        workspace_read_only=workspace.mode == "read_only",
        overlays=overlays,
    )


@asynccontextmanager
async def open_copy(workspace: Workspace, files: tuple[SnapshotStore, str]) -> AsyncIterator[View]:
    """A copy of a snapshot at the same path inside, to be thrown away; the user's workspace is not touched.

    The private git directory is the user's repository as it is now: commits fetched since are in it.

    Raises:
        RecordError: The snapshot is gone.
        InfrastructureFault: Git failed or the disk is full.
    """
    async with temporary_directory(workspace.state, "replica-") as directory:
        yield await show_workspace(workspace, directory, None, files=files)


@asynccontextmanager
async def temporary_directory(state: Path, prefix: str) -> AsyncIterator[Path]:
    """A directory of the caller's own in the state directory, which goes at the end; locked as long as we live."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=make_private_dir(state / "tmp")))
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try_lock(lock, fcntl.LOCK_EX, what=repr(str(directory)))
        yield directory
    finally:
        os.close(lock)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, directory)


def _remove(directory: Path) -> None:
    with suppress(OSError):  # gc tries again
        remove_tree(directory)


def _upload_note(unseen: str | None, decision: Decision) -> tuple[str, ...]:
    if unseen is None or decision.mode != "clone":
        return ()
    note = (
        f"{unseen}: your files are carried there and come back when the sandbox ends, protected ones as they were; "
        "if the engine or ringfence dies before, what was made inside is lost"
    )
    return (note,)


def _obeyed_note(settings: UserSettings) -> tuple[str, ...]:
    if not settings.obeyed:
        return ()
    names = ", ".join(map(repr, settings.obeyed[:_SHOWN]))
    more = f" and {len(settings.obeyed) - _SHOWN} more" if len(settings.obeyed) > _SHOWN else ""
    return (
        f"your git configuration leads into the workspace; ringfence does not follow it, your git does: {names}{more}",
    )

"""Opens a workspace, in one way for runs, sandboxes, checks and inspection.

`open_workspace` resolves the path, decides as whom and how it is shown, locks it where it is written, and looks at its
git. What a sandbox is shown of it is made in `placement`.
"""

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox.base import Placement, Traits
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.git.config import UserSettings, read_settings
from ringfence.sandbox.workspace.git.layout import GitLayout, examine_git
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.policy import (
    check_reachable,
    check_workspace,
    choose_on_host,
    choose_user_and_mode,
)
from ringfence.sandbox.workspace.protect.own_program import check_own_program
from ringfence.sandbox.workspace.protect.repositories import expect_no_git, settle_git, why_untrusted
from ringfence.sandbox.workspace.run_as import Actor, owner_of
from ringfence.sandbox.workspace.snapshot.memo import named_note

_SHOWN = 5


@frozen
class Workspace:
    """The workspace of one run or sandbox."""

    path: Path
    """Resolved; it has the same path inside."""
    state: Path
    """The state directory."""
    mode: WorkspaceMode
    """How it is shown."""
    owner: Actor
    """As whom host code reads and writes its files."""
    placement: Placement
    """What a launch needs of it; from `open_workspace` the workspace itself, with nothing mounted upon it."""
    traits: Traits = Traits()
    """Of the backend: whether it fences, and whether files are uploaded and downloaded."""
    layout: GitLayout | None = None
    """Its git directory, where that is used."""
    settings: UserSettings = UserSettings()
    """What the git configuration of its owner says."""
    own_environment: tuple[bytes, ...] = ()
    """The virtual environment that ringfence runs from, where it lies in the workspace: read-only inside."""
    git: PrivateGit | None = None
    """The private git directory whose commits are fetched; None where there are none to fetch."""
    submodules: tuple[PrivateGit, ...] = ()
    """Those with a private git directory of their own."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""

    @property
    def sandbox_user(self) -> Actor:
        """As whom the sandbox runs."""
        return Actor(self.placement.uid, self.placement.gid)

    @property
    def obeyed_files(self) -> list[bytes]:
        """Files in it that the user's git obeys, and an agent therefore may not write."""
        return [os.fsencode(path) for path in self.settings.obeyed if path != "."]

    @property
    def obeyed_paths(self) -> list[bytes]:
        """These, and what it would obey if it appeared."""
        return [*self.obeyed_files, *map(os.fsencode, self.settings.perhaps)]


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
        holder: Who works there, which others see: a run's id. None: nobody is kept from writing meanwhile.
        traits: Of the backend. Where it does not fence, the workspace itself is worked on, as the caller.

    Raises:
        UsageError: It is absent, no directory, or unreadable.
        PolicyRefused: It may not be a workspace, or not in this mode; or another run holds it, or one above or in it
            (`workspace-busy`).
        InfrastructureFault: The lock cannot be made, or git did not answer.
    """
    resolved = await anyio.to_thread.run_sync(lambda: check_workspace(path, home=Path.home(), state=state))
    user, mode = _choose(resolved, mode, traits)
    own_environment = check_own_program(resolved) if traits.is_fence and mode == "bind" else ()
    owner = Actor.for_files(resolved)
    await owner.call(lambda: check_reachable(resolved))
    with _locked(resolved, mode, holder, state):
        found: GitLayout | str | None = why_untrusted(resolved, state)
        found = found or await owner.call(lambda: examine_git(resolved))
        layout = found if isinstance(found, GitLayout) else None
        settings = await read_settings(owner, resolved, layout)
        notes = (
            *([found] if isinstance(found, str) else ()),
            *_upload_note(traits.unseen, mode),
            *_obeyed_note(settings),
        )
        yield Workspace(
            resolved,
            state,
            mode,
            owner,
            Placement(
                user.uid,
                user.gid,
                resolved,
                resolved,
                workspace_read_only=mode == "read_only",
                is_idmapped=mode == "bind" and owner.uid == 0 != user.uid,
            ),
            traits,
            layout,
            settings,
            own_environment,
            notes=notes,
        )


def _choose(workspace: Path, asked: WorkspaceMode | None, traits: Traits) -> tuple[Actor, WorkspaceMode]:
    """As whom a sandbox runs, and the mode."""
    if not traits.is_fence:
        return choose_on_host(asked)
    return choose_user_and_mode(Actor.current(), owner_of(workspace), asked=asked, unseen=traits.unseen)


@contextmanager
def _locked(path: Path, mode: WorkspaceMode, holder: str | None, state: Path) -> Iterator[None]:
    """Hold a workspace that is worked on itself; sandboxes on a clone, or that only read, need not."""
    if holder is None or mode != "bind":
        yield
        return
    with held(path, by=holder, state=state):
        expect_no_git(path, holder, state)
        try:
            yield
        finally:
            settle_git(path, state)


@asynccontextmanager
async def temporary_directory(state: Path, prefix: str) -> AsyncIterator[Path]:
    """A directory of the caller's own in the state directory, which goes at the end; locked as long as we live.

    Raises:
        InfrastructureFault: It cannot be made.
    """
    folder = make_private_dir(state / "tmp")
    try:
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    except OSError as exc:
        raise InfrastructureFault(
            f"could not make a directory in {str(folder)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
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


def _upload_note(unseen: str | None, mode: WorkspaceMode) -> tuple[str, ...]:
    if unseen is None or mode != "clone":
        return ()
    note = (
        f"{unseen}: your files are carried there and come back when the sandbox ends, protected ones as they were; "
        "if the engine or ringfence dies before, what was made inside is lost"
    )
    return (note,)


def _obeyed_note(settings: UserSettings) -> tuple[str, ...]:
    what = "your git configuration leads into the workspace; ringfence does not follow it, your git does"
    return named_note(what, settings.obeyed, most=_SHOWN)

"""Prepares a sandbox's view of a workspace: a private git directory, the copy in mode `clone`, and mounts."""

import os
import shlex
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from ringfence.sandbox.base import BindMount, Placement
from ringfence.sandbox.workspace.git.layout import has_git
from ringfence.sandbox.workspace.git.private import (
    PrivateGit,
    make_mount_point,
    make_private_git,
    make_submodules,
)
from ringfence.sandbox.workspace.open import Workspace
from ringfence.sandbox.workspace.protect.mounts import (
    READ_ONLY_PATHS,
    check_own_git,
    check_roots_files,
    closed_directories,
    cover_note,
    git_entries,
    make_masks,
    make_mounts,
    refuse_unseen,
    special_files,
)
from ringfence.sandbox.workspace.restore import materialise
from ringfence.sandbox.workspace.run_as import Actor, temporary_directory
from ringfence.sandbox.workspace.snapshot.store import Snapshot
from ringfence.sandbox.workspace.snapshot.walk import Walk


async def place_workspace(
    workspace: Workspace,
    directory: Path,
    found: Walk | None,
    *,
    protect: Collection[str] = (),
    start: Snapshot | str | None = None,
    reader: Actor | None = None,
) -> Workspace:
    """Prepare a sandbox's view of a workspace.

    Args:
        workspace: From `open_workspace`.
        directory: Holds the private git directory and the clone; removed when no sandbox needs them any more.
        found: The walk of the workspace. None: nothing is guarded, for a temporary copy or the bare host.
        protect: Patterns, as in `.gitignore`, of further paths that the agent may not write.
        start: The snapshot that a clone starts from; one that was just taken is copied from the directory it is of.
        reader: The user that reads that directory, if not the workspace's owner.

    Returns:
        The workspace with its placement, the git directories that were made, and notes.

    Raises:
        PolicyRefused: It has more files than can be guarded, or the walk did not reach its end.
        InfrastructureFault: Git failed or the disk is full.
    """
    source = workspace.path
    git = await _make_git(workspace, directory)
    submodules, left_out = await _make_submodules(workspace, directory, found, git)
    if workspace.mode == "clone":
        assert start is not None
        source = await _make_clone(workspace, directory, git, start, reader)
    if git is not None and not git.mounts:
        git = replace(git, directory=source / ".git")
    made = (*((git,) if git is not None else ()), *submodules)
    mounts = await anyio.to_thread.run_sync(lambda: _mounts(workspace, source, git, found, protect))
    inner = (mount for submodule in submodules for mount in submodule.mounts)
    placement = replace(
        workspace.placement,
        workspace_source=source,
        # Last, as a directory that is mounted on itself would show the submodules' own `.git` again.
        mounts=(*mounts, *inner),
        upload="none" if workspace.traits.sees_host_files else "all",
        # A temporary copy is not downloaded.
        is_downloaded=not workspace.traits.sees_host_files
        and workspace.mode == "clone"
        and found is not None,
    )
    notes = (
        *workspace.notes,
        *(note for each in made for note in each.notes),
        *left_out,
        *(cover_note(_reachable_specials(found, git)) if found and workspace.mode != "clone" else ()),
        *(
            f"{os.fsdecode(path)!r} is read-only inside: ringfence itself runs from it"
            for path in workspace.own_environment
        ),
    )
    fetched = made if workspace.mode != "read_only" else ()
    return replace(workspace, placement=placement, repositories=fetched, notes=notes)


@asynccontextmanager
async def open_copy(workspace: Workspace, snapshot: Snapshot) -> AsyncIterator[Placement]:
    """Prepare a temporary copy of a run's last snapshot at the same path inside; the workspace is not touched.

    The private git directory is made from the user's repository as it is now, with commits imported since.

    Raises:
        RecordError: The snapshot is gone.
        InfrastructureFault: Git failed or the disk is full.
    """
    async with temporary_directory(workspace.state, "replica-") as directory:
        placed = await place_workspace(workspace, directory, None, start=snapshot, reader=Actor.current())
        yield placed.placement


def protected_placement(workspace: Workspace, protect: Collection[str]) -> Placement:
    """The placement of a workspace as known before anything is made for it, for `ringfence config policy show`."""
    if not workspace.traits.is_fence or workspace.mode == "read_only":
        return workspace.placement
    read_only = (*READ_ONLY_PATHS, *workspace.own_environment)
    return replace(workspace.placement, mounts=make_mounts(workspace.path, read_only, protect=protect))


def _mounts(
    workspace: Workspace,
    source: Path,
    git: PrivateGit | None,
    found: Walk | None,
    protect: Collection[str],
) -> tuple[BindMount, ...]:
    """The mounts on the workspace, in order: the private git directory first."""
    mounts = git.mounts if git is not None else ()
    if found is None:
        return mounts
    if workspace.mode == "clone":
        return mounts + make_mounts(workspace.path, READ_ONLY_PATHS, source=source, protect=protect)
    refuse_unseen(workspace.path, found.blindness)
    specials = special_files(_reachable_specials(found, git))
    if workspace.mode == "read_only":
        return mounts + make_masks(workspace.path, specials)
    if workspace.placement.is_idmapped:
        check_roots_files(workspace.path)
    if not mounts:
        check_own_git(workspace.path)
    read_only = (
        *(() if mounts else (b".git",)),
        *READ_ONLY_PATHS,
        *git_entries(found.git_entries),
        *workspace.obeyed_files,
        *closed_directories(found.skipped),
        *workspace.own_environment,
    )
    return mounts + make_mounts(workspace.path, read_only, specials, protect=protect)


def _reachable_specials(found: Walk, git: PrivateGit | None) -> list[bytes]:
    """The paths that an agent could reach: its private git directory hides those in the user's."""
    return [path for path in found.specials if git is None or not path.startswith(b".git/")]


async def _make_git(workspace: Workspace, directory: Path) -> PrivateGit | None:
    """Make a git directory for the agent; a temporary one if nothing is written."""
    is_uploaded = not workspace.traits.sees_host_files
    if (
        workspace.layout is None
        or not workspace.traits.is_fence
        or (is_uploaded and workspace.mode == "read_only")
    ):
        return None
    return await make_private_git(
        workspace.layout,
        directory / "git",
        reader=workspace.owner,
        owner=workspace.sandbox_user,
        identity=workspace.settings.identity,
        stands_alone=is_uploaded,
    )


async def _make_submodules(
    workspace: Workspace, directory: Path, found: Walk | None, git: PrivateGit | None
) -> tuple[tuple[PrivateGit, ...], tuple[str, ...]]:
    """Make git directories for the submodules; not in a clone, where submodules are plain directories."""
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
    workspace: Workspace,
    directory: Path,
    git: PrivateGit | None,
    start: Snapshot | str,
    reader: Actor | None,
) -> Path:
    """Make a directory with the files of a snapshot."""
    clone = directory / "work"
    clone.mkdir(mode=0o700)
    if git is not None:
        make_mount_point(clone, git, directory / "git")
    snapshot, taken = (start, None) if isinstance(start, str) else (start.id, start)
    await materialise(workspace.store, snapshot, clone, workspace.sandbox_user, taken=taken, reader=reader)
    return clone


def subdirectory_note(workspace: Path) -> tuple[str, ...]:
    """Note if the workspace is part of a larger repository, other than a home that is a repository."""
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises if there is no home
    if has_git(workspace):
        return ()
    for folder in workspace.parents:
        if folder in (home, Path(folder.anchor)):
            break
        if (folder / ".git").is_file() or (folder / ".git" / "HEAD").is_file():
            note = (
                f"the workspace is a part of the repository at {str(folder)!r}; the agent sees only this directory and "
                f"no history; use `-C {shlex.quote(str(folder))}` to give it the whole"
            )
            return (note,)
    return ()

"""The workspace of a sandbox that is opened without a run, and what becomes of its private copy."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement
from ringfence.sandbox.registry import examine
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.workspace.open import Workspace, open_workspace, temporary_directory
from ringfence.sandbox.workspace.placement import place_workspace
from ringfence.sandbox.workspace.policy import user_without_workspace
from ringfence.sandbox.workspace.protect.repositories import distrust_all
from ringfence.sandbox.workspace.record import apply_run, load_record, open_store
from ringfence.sandbox.workspace.run import RunWorkspace, prepare
from ringfence.sandbox.workspace.snapshot.diff import FileChange
from ringfence.sandbox.workspace.snapshot.walk import Walk, walk

SANDBOX_PREFIX = "sandbox-"
"""Begins the names of temporary directories, and of the snapshots, of sandboxes that are opened without a run."""
_DISTRUST_S = 60.0


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
class SandboxWorkspace:
    """The workspace of a sandbox that is opened without a run."""

    placement: Placement
    notes: tuple[str, ...] = ()
    clone: RunWorkspace | None = None
    """In mode `clone`: the private copy, whose changes can be brought into the workspace."""

    async def changes(self) -> Changes:
        """What was changed in the clone. Nothing inside may be alive.

        Raises:
            InfrastructureFault: Git failed or the disk is full.
        """
        assert self.clone is not None
        work = await self.clone.deliver(None)
        return Changes(
            work.diff.files, work.patch, work.runs_on_your_machine, (*work.record.notes, *work.notes)
        )

    async def apply(self, *, force: bool) -> None:
        """Bring the changes that `changes` has found into the workspace.

        Raises:
            WorkspaceConflict, PolicyRefused, RingfenceError: As `record.apply_run`.
        """
        assert self.clone is not None
        await apply_run(load_record(self.clone.run_dir), self.clone.workspace.state, force=force)


def check_clone(own: SandboxWorkspace | None) -> SandboxWorkspace:
    """Refuse a sandbox that does not work on a private copy.

    Raises:
        UsageError: It is one.
    """
    if own is None or own.clone is None:
        raise UsageError(
            "changes and apply are for SandboxSpec(mode='clone'): in other modes there is no private copy, and what is"
            " written is written to the workspace itself"
        )
    return own


@asynccontextmanager
async def open_for_sandbox(
    spec: SandboxSpec, name: str, state: Path, *, is_locked: bool = True
) -> AsyncIterator[SandboxWorkspace]:
    """The workspace of a sandbox that is opened without a run; it is released when the context is left.

    Args:
        spec: Its workspace and mode.
        name: Of the sandbox, shown to other processes that find the workspace locked.
        state: The state directory.
        is_locked: Whether others are kept from writing to it meanwhile.

    Raises:
        UsageError, PolicyRefused, InfrastructureFault: As `open_workspace` and `prepare`.
    """
    if spec.workspace is None:
        user = user_without_workspace()
        yield SandboxWorkspace(Placement(user.uid, user.gid, None, None))
        return
    traits = await examine(spec)
    holder = name if is_locked else None
    opened = open_workspace(spec.workspace, spec.mode, state=state, holder=holder, traits=traits)
    async with opened as workspace, temporary_directory(state, SANDBOX_PREFIX) as directory:
        if workspace.mode != "clone":
            found = None
            if traits.is_fence:
                path = workspace.path
                found = await workspace.owner.call(lambda: walk(path, gathers=False))
            placed = await place_workspace(workspace, directory, found)
            try:
                yield SandboxWorkspace(placed.placement, placed.notes)
            finally:
                if found is not None and workspace.mode == "bind":
                    await _distrust_new(workspace, found, name)
            return
        prepared = await prepare(workspace, run=directory.name, run_dir=directory)
        try:
            yield SandboxWorkspace(prepared.placement, prepared.notes, prepared)
        finally:
            with anyio.CancelScope(shield=True):
                await open_store(prepared.record, state).forget(directory.name)


async def _distrust_new(workspace: Workspace, before: Walk, name: str) -> None:
    """Remember the git repositories that came below the workspace as an agent's, as after a run."""
    with anyio.move_on_after(_DISTRUST_S, shield=True):
        shut = before.closed  # on all others an agent may have taken the rights to look
        after = await workspace.owner.call(lambda: walk(workspace.path, gathers=False, shut=shut))
        made = [os.fsdecode(path) for path in after.git_entries - before.git_entries]
        distrust_all(workspace.path, made, run=name, state=workspace.state)

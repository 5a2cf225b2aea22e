"""Opens the workspace of a sandbox without a run.

In mode `clone` a private copy is prepared as for a run, without commits; in other modes only the mounts are made.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from ringfence.frozen import frozen
from ringfence.sandbox.base import Placement
from ringfence.sandbox.registry import examine
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.workspace.open import Workspace, open_workspace, user_without_workspace
from ringfence.sandbox.workspace.placement import place_workspace
from ringfence.sandbox.workspace.protect.repositories import distrust_all
from ringfence.sandbox.workspace.record import open_store
from ringfence.sandbox.workspace.run import RunWorkspace, prepare
from ringfence.sandbox.workspace.run_as import temporary_directory
from ringfence.sandbox.workspace.snapshot.walk import Walk, walk

SANDBOX_PREFIX = "sandbox-"
"""Prefix of the names of temporary directories and snapshots of sandboxes without a run."""
_PRIVATE_COPY = "commands work on a private copy, which goes with the sandbox; apply() brings the work in"
"""Note for a program that did not request a clone."""
_DISTRUST_S = 60.0


@frozen
class SandboxWorkspace:
    """The workspace of a sandbox that is opened without a run."""

    placement: Placement
    notes: tuple[str, ...] = ()
    clone: RunWorkspace | None = None
    """In mode `clone`: the private copy, whose changes can be applied to the workspace."""


@asynccontextmanager
async def open_for_sandbox(
    spec: SandboxSpec, name: str, state: Path, *, is_locked: bool = True
) -> AsyncIterator[SandboxWorkspace]:
    """Open the workspace of a sandbox without a run; release it when the context is left.

    Args:
        spec: The spec, which names workspace and mode.
        name: The name of the sandbox, shown to other processes that find the workspace locked.
        state: The state directory.
        is_locked: Whether to keep other runs and sandboxes from writing to it meanwhile.

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
        if workspace.mode == "clone":
            prepared = await prepare(workspace, run=directory.name, run_dir=directory)
            unasked = (_PRIVATE_COPY,) if spec.mode is None else ()
            try:
                yield SandboxWorkspace(prepared.placement, (*unasked, *prepared.notes), prepared)
            finally:
                with anyio.CancelScope(shield=True):
                    await open_store(prepared.record, state).drop_run(directory.name)
            return
        found = None
        if traits.is_fence:
            found = await workspace.owner.call(lambda: walk(workspace.path, gathers=False))
        placed = await place_workspace(workspace, directory, found)
        try:
            yield SandboxWorkspace(placed.placement, placed.notes)
        finally:
            if found is not None and workspace.mode == "bind":
                await _distrust_new(workspace, found, name)


async def _distrust_new(workspace: Workspace, before: Walk, name: str) -> None:
    """Distrust the git repositories that appeared below the workspace, as after a run."""
    with anyio.move_on_after(_DISTRUST_S, shield=True):
        shut = before.skipped  # the agent may have removed read permission from any other directory
        after = await workspace.owner.call(lambda: walk(workspace.path, gathers=False, shut=shut))
        made = [os.fsdecode(path) for path in after.git_entries - before.git_entries]
        distrust_all(workspace.path, made, run=name, state=workspace.state)

"""Workspaces opened for runs."""

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from ringfence.sandbox.base import Traits
from ringfence.sandbox.spec import WorkspaceMode
from ringfence.sandbox.workspace.open import Workspace, open_workspace
from ringfence.sandbox.workspace.record import WorkRecord
from ringfence.sandbox.workspace.run import RunWorkspace
from ringfence.sandbox.workspace.run import prepare as prepare_opened


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
) -> RunWorkspace:
    """Open a workspace and prepare it for a run."""
    traits = Traits(is_fence=is_fenced, unseen=unseen)
    opened = open_workspace(workspace, mode, state=state, holder=None, traits=traits)
    async with opened as found:
        return await prepare_opened(found, run=run, run_dir=run_dir, protect=protect, earlier=earlier)


def claimed(
    workspace: Path, mode: WorkspaceMode | None, *, run: str, state: Path, is_fenced: bool = True
) -> AbstractAsyncContextManager[Workspace]:
    """Open a workspace for a run, which holds it."""
    return open_workspace(workspace, mode, state=state, holder=run, traits=Traits(is_fence=is_fenced))

"""Sandboxes at a prepared placement."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.workspace.run import RunWorkspace


@asynccontextmanager
async def open_at(placement: Placement) -> AsyncIterator[Sandbox]:
    """A sandbox at a placement; what would be uploaded elsewhere is mounted here."""
    spec = SandboxSpec(backend="bubblewrap", workspace=placement.workspace)
    async with Sandbox.start(
        spec, placement=replace(placement, upload="none", is_downloaded=False)
    ) as sandbox:
        yield sandbox


def fence(prepared: RunWorkspace) -> AbstractAsyncContextManager[Sandbox]:
    """A sandbox at a prepared placement."""
    return open_at(prepared.placement)


async def shell(sandbox: Sandbox, script: str) -> str:
    """Run a script inside; fail the test if it fails."""
    result = await sandbox.run(["sh", "-ec", script], timeout_s=30)
    assert result.ok, (result.stdout, result.stderr)
    return result.stdout.strip()

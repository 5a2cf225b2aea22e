"""Sandboxes at a prepared placement."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.run import Prepared


@asynccontextmanager
async def fence(prepared: Prepared) -> AsyncIterator[Sandbox]:
    """A sandbox at a prepared placement; what would be uploaded elsewhere is mounted here."""
    spec = SandboxSpec(backend="bubblewrap", workspace=prepared.placement.workspace)
    async with Sandbox.start(
        spec, placement=replace(prepared.placement, upload="none", is_downloaded=False)
    ) as sandbox:
        yield sandbox


async def shell(sandbox: Sandbox, script: str) -> str:
    """Run a script inside; fail the test if it fails."""
    result = await sandbox.run(["sh", "-ec", script], timeout_s=30)
    assert result.ok, (result.stdout, result.stderr)
    return result.stdout.strip()

"""Pods that wait in the pool, and the run that takes one over with its own workspace."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sandbox.pool.conftest import Runs, project

from ringfence.sandbox.docker.image.recipe import reference

__all__ = ["project"]
pytestmark = [pytest.mark.kubernetes_node, pytest.mark.timeout(400)]


@pytest.fixture
async def runs(project: Path) -> AsyncIterator[Runs]:
    """Runs in pods; what waits afterwards is ended."""
    made = Runs(project)
    made.changes = {"backend": "kubernetes", "image": reference("base"), "soft_limits": True, "mode": "clone"}
    yield made
    await made.pool.drain()


async def test_a_run_takes_over_a_pod_with_its_own_workspace(runs: Runs):
    """A warm pod shows the workspace as it is when a run takes it, and gives back what was made in it."""
    (warm,) = await runs.warmed()
    (runs.workspace / "a.txt").write_text("two\n")
    spec, placement, run_dir = await runs.prepared()
    async with runs.pool.opened(spec, placement, run_dir, sandbox_id="cold") as sandbox:
        assert sandbox.id == warm.sandbox_id
        assert (await sandbox.run(["cat", "a.txt"])).stdout == "two\n"
        assert (await sandbox.run(["sh", "-c", "echo new >new"])).ok
    assert placement.workspace_source is not None
    assert (placement.workspace_source / "new").read_text() == "new\n"

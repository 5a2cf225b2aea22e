"""A warm sandbox keeps the promises that depend on the stream, seen from the run that took it."""

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.pool.conftest import OTHER_UID, cold_id, is_cold
from tests.sandbox.supervisor.conftest import until

from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.pool.pool import Pool, PoolSize
from ringfence.sandbox.workspace.standalone import open_for_sandbox
from ringfence.testing.conformance import Check, bounds, connections, lifetime, streams

CHECKS: tuple[Check, ...] = (
    *(connections.large_and_exact, connections.two_hundred, connections.storm, connections.slow_reader),
    *lifetime.CHECKS,
    *(streams.both_ways, streams.flood_and_others, streams.floods_that_are_read, streams.last_words),
    *(bounds.stats, bounds.memory),
)
"""Those that depend on what carries the frames, or on who answers for the sandbox; the guest keeps the others alone."""
pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the pool and the workspaces."""
    made = Path(tempfile.mkdtemp(prefix="ringfence-pool-"))
    made.chmod(0o711)
    yield made
    subprocess.run(["rm", "-rf", "--", made], check=True)


@pytest.mark.parametrize(
    "check", CHECKS, ids=lambda check: f"{check.__module__.rpartition('.')[2]}-{check.__name__}"
)
async def test_conforms(check: Check, folder: Path) -> None:
    """A sandbox from the pool keeps the contract that the check names."""
    pools: list[Pool] = []

    @asynccontextmanager
    async def open_sandbox(**changes: Any) -> AsyncIterator[Sandbox]:
        number = len(pools)
        workspace = folder / f"workspace-{number}"
        run_dir = folder / f"run-{number}"
        workspace.mkdir()
        run_dir.mkdir()
        if os.geteuid() == 0:
            os.chown(workspace, OTHER_UID, OTHER_UID)
        spec = SandboxSpec(**{"backend": "bubblewrap", "workspace": workspace, **changes})
        async with open_for_sandbox(spec, "one", folder / "state") as opened:
            placement = opened.placement
            pool = Pool(folder / f"pool-{number}", PoolSize(1, 600.0))
            pools.append(pool)
            await pool.refill(spec, placement, run_dir)
            await until(lambda: all(state for _, state in pool.waiting()))
            async with pool.opened(spec, placement, run_dir, sandbox_id=cold_id()) as sandbox:
                assert not is_cold(sandbox), pool.counts()
                async for _result in sandbox.set_up(spec.setup):
                    pass
                yield sandbox

    try:
        await check(open_sandbox)
    finally:
        for pool in pools:
            await pool.drain()

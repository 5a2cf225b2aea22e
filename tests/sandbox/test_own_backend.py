"""A backend of somebody else's, which does not see the host's files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringfence.sandbox import Sandbox, SandboxSpec, registry
from ringfence.testing.conformance import CHECKS, SLOW, Check, commands, connections, files, streams

NAME = "own"
CHECKED = [
    check
    for check in CHECKS
    if check.__module__ in {module.__name__ for module in (commands, connections, files, streams)}
    and check not in SLOW
    and check is not files.no_permission  # no fence: root's permissions are not limited
]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be named."""
    monkeypatch.setitem(registry._BACKENDS, NAME, ("tests.sandbox.own_backend", "OwnBackend"))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKED, ids=lambda check: f"{check.__module__}.{check.__name__}")
async def test_conforms(check: Check, workspace: Path):
    """It keeps what every sandbox promises, but for what only a fence can."""

    @asynccontextmanager
    async def open_sandbox(**changes: Any) -> AsyncIterator[Sandbox]:
        spec = SandboxSpec(**{"backend": NAME, "workspace": workspace, "mode": "clone", **changes})
        async with Sandbox.open(spec) as sandbox:
            yield sandbox

    await check(open_sandbox)


async def test_a_workspace_goes_there_and_back(workspace: Path):
    """Nothing of it is shared: what is made inside is seen outside only after it was downloaded."""
    (workspace / "old").write_text("as it was\n")
    spec = SandboxSpec(backend=NAME, workspace=workspace, mode="clone")
    async with Sandbox.open(spec) as sandbox:
        assert (await sandbox.run(["cat", "old"])).stdout == "as it was\n"
        assert (await sandbox.run(["sh", "-c", "echo new >new; echo changed >old"])).ok
        assert (workspace / "old").read_text() == "as it was\n"
        await sandbox.apply()
    assert (workspace / "old").read_text() == "changed\n"
    assert (workspace / "new").read_text() == "new\n"


async def test_a_workspace_that_is_read_is_only_uploaded(workspace: Path):
    """And cannot be written."""
    (workspace / "old").write_text("as it was\n")
    async with Sandbox.open(SandboxSpec(backend=NAME, workspace=workspace, mode="read_only")) as sandbox:
        assert (await sandbox.run(["cat", "old"])).stdout == "as it was\n"
        assert "Read-only" in (await sandbox.run(["sh", "-c", "echo x >old"])).stderr
    assert (workspace / "old").read_text() == "as it was\n"

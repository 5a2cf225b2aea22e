"""Sandboxes to test on: a workspace that whoever runs the tests may lend, and ways to open one."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringfence.sandbox import Sandbox, SandboxSpec

OTHER_UID = 1500
"""Somebody who is not root, as whom root's tests own a workspace."""

pytest.register_assert_rewrite("ringfence.testing.conformance")

Opener = Callable[..., AbstractAsyncContextManager[Sandbox]]


@pytest.fixture
def workspace() -> Iterator[Path]:
    """An empty workspace that can be shown as it is, short of `/tmp`'s own length limits."""
    directory = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    if os.geteuid() == 0:
        os.chown(directory, OTHER_UID, OTHER_UID)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def opener(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Opener]]:
    """Opens sandboxes of a backend, each on a workspace of its own."""
    made: list[Path] = []

    def of(backend: str) -> Opener:
        @asynccontextmanager
        async def open_sandbox(**changes: Any) -> AsyncIterator[Sandbox]:
            directory = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
            made.append(directory)
            if os.geteuid() == 0:
                os.chown(directory, OTHER_UID, OTHER_UID)
            spec = SandboxSpec(**{"backend": backend, "workspace": directory, **changes})
            async with Sandbox.open(spec) as sandbox:
                yield sandbox

        return open_sandbox

    yield of
    for directory in made:
        # Not rmtree: some checks leave trees deeper than it goes.
        subprocess.run(["rm", "-rf", "--", directory], check=True)

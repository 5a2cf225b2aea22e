"""A supervised sandbox keeps every promise of a sandbox, seen from a client of its supervisor."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.supervisor.conftest import OTHER_UID, served

from ringfence.sandbox import Sandbox
from ringfence.testing.conformance import CHECKS, Check, connections

GAPS: dict[object, str] = {
    **dict.fromkeys(connections.CHECKS, "a standing sandbox carries no connections to the host"),
}
CASES = [
    pytest.param(check, id=f"{check.__module__.rpartition('.')[2]}-{check.__name__}")
    for check in CHECKS
    if check not in GAPS
]
pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def made() -> Iterator[list[Path]]:
    """Directories that are removed afterwards."""
    directories: list[Path] = []
    yield directories
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("check", CASES)
async def test_conforms(check: Check, made: list[Path]) -> None:
    """An attached client keeps the contract of a sandbox that the check names."""

    @asynccontextmanager
    async def open_sandbox(**changes: Any) -> AsyncIterator[Sandbox]:
        directory = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
        folder = Path(tempfile.mkdtemp(prefix="ringfence-served-"))
        made.extend((directory, folder))
        if os.geteuid() == 0:
            os.chown(directory, OTHER_UID, OTHER_UID)
        async with (
            served(folder, **{"workspace": directory, **changes}) as service,
            service.attached() as sandbox,
        ):
            yield sandbox

    await check(open_sandbox)


async def test_connections_are_refused_loudly(short_dir: Path) -> None:
    """What a supervisor does not carry fails at once, and says so."""
    from ringfence.errors import RingfenceError

    async with served(short_dir) as service, service.attached() as sandbox:
        with pytest.raises(RingfenceError, match="carries no connections"):
            async with sandbox.listen(lambda _connection: None, port=0):  # type: ignore[arg-type, return-value]
                pass
        assert (await sandbox.run(["true"])).ok

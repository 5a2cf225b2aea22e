"""A held sandbox keeps every promise that a sandbox keeps, seen from a client of its holder."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.holder.conftest import OTHER_UID, held_by_us

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
    """The holder keeps the promise in the check's docstring."""

    @asynccontextmanager
    async def open_sandbox(**changes: Any) -> AsyncIterator[Sandbox]:
        directory = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
        place = Path(tempfile.mkdtemp(prefix="ringfence-holder-"))
        made.extend((directory, place))
        if os.geteuid() == 0:
            os.chown(directory, OTHER_UID, OTHER_UID)
        async with (
            held_by_us(place, **{"workspace": directory, **changes}) as holder,
            holder.attached() as sandbox,
        ):
            yield sandbox

    await check(open_sandbox)


async def test_connections_are_refused_loudly(short_dir: Path) -> None:
    """What a holder does not carry fails at once, and says so."""
    from ringfence.errors import RingfenceError

    async with held_by_us(short_dir) as holder, holder.attached() as sandbox:
        with pytest.raises(RingfenceError, match="carries no connections"):
            async with sandbox.listen(lambda _connection: None, port=0):  # type: ignore[arg-type, return-value]
                pass
        assert (await sandbox.run(["true"])).ok

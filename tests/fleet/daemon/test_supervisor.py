"""The supervisor of a machine's workers."""

import anyio
import pytest

from ringfence.fleet.daemon.supervisor import Supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_the_pause_between_starts_grows():
    """A worker that ends at once is started again after half a second, then after a second."""
    pauses: list[object] = []
    is_over = anyio.Event()

    def log(_line: str, /, **fields: object) -> None:
        pauses.append(fields["pause_s"])
        if len(pauses) == 2:
            is_over.set()

    supervisor = Supervisor("mysql://unsupported/database", capacity=1, more={}, log=log)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run, 1)
            await is_over.wait()
            tasks.cancel_scope.cancel()
    assert pauses == [0.5, 1.0]

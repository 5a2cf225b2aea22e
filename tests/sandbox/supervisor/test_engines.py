"""Standing sandboxes in containers: the same, and nothing of them left on the engine."""

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable

import anyio
import pytest

from ringfence.job.interrupted_runs import recover
from ringfence.job.store import JobStore
from ringfence.journal import is_alive, run_dir
from ringfence.sandbox.supervisor.client import read_living_state
from ringfence.sandbox.supervisor.directory import SandboxDirectory

Standing = Callable[..., Awaitable[SandboxDirectory]]
pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.docker]


def containers_of(sandbox_id: str) -> list[str]:
    """Containers, running or not, of a sandbox."""
    command = ["docker", "ps", "-aq", "--filter", f"label=ringfence.sandbox={sandbox_id}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.fixture
def image(images: Callable[[str], str | None]) -> str | None:
    """An image that the engine has."""
    return images("docker")


async def test_a_killed_supervisor_leaves_no_container_after_the_next_command(standing: Standing, image: str):
    """The engine outlives us, so what a supervisor left is removed by its label."""
    directory = await standing(backend="docker", image=image)
    state = read_living_state(directory)
    assert state.run_id is not None
    os.kill(state.pid, signal.SIGKILL)
    with anyio.fail_after(30):
        # The kernel frees a dead process's locks one after the other.
        while directory.is_alive() or is_alive(run_dir(state.run_id)):  # noqa: ASYNC110 -- no event tells of it
            await anyio.sleep(0.02)
    assert await recover(JobStore()) == [state.run_id]
    assert containers_of(state.sandbox_id) == []

"""Closing what a dead process left."""

import signal
import sys
from pathlib import Path

import anyio
import pytest
from tests.cases import slow_after

from ringfence.events import JobEnded
from ringfence.job.interrupted_runs import recover
from ringfence.job.state import JobState
from ringfence.job.store import JobStore
from ringfence.journal import Journal, new_run_id, run_dir, runs_dir, verify_run
from ringfence.journal.layout import JOURNAL_NAME

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> JobStore:
    """The store of jobs."""
    return JobStore()


def _left(store: JobStore, *, ended: str | None = None, sealed: bool = False) -> str:
    run_id = new_run_id()
    with Journal.create(run_dir(run_id), run_id) as journal:
        store.create(run_id, session_id=run_id, workspace="/w")
        if ended is not None:
            journal.append(JobEnded(state=ended, exit_code=0, reason="x"))
        if sealed:
            journal.seal()
    return run_id


async def test_a_dead_run_is_interrupted_and_sealed(store: JobStore):
    """And told once."""
    run_id = _left(store)
    assert (await recover(store), await recover(store)) == ([run_id], [])
    assert verify_run(run_dir(run_id)).status == "sealed"


async def test_of_several_that_sweep_at_once_one_tells_of_a_run(store: JobStore):
    """Workers that start side by side find the same remains; who closed them tells of it."""
    run_id = _left(store)
    told: list[str] = []

    async def look() -> None:
        told.extend(await recover(store))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(look)
    assert told == [run_id]


@pytest.mark.parametrize("sealed", [False, True])
async def test_an_end_that_was_recorded_is_kept(store: JobStore, sealed: bool):
    """A process that died after its last word is not called interrupted: the record decides, not the store."""
    run_id = _left(store, ended="succeeded", sealed=sealed)
    told = await recover(store)
    job = store.get(run_id)
    assert job is not None
    assert (told, job.state, verify_run(run_dir(run_id)).status) == ([], JobState.SUCCEEDED, "sealed")


async def test_a_living_run_is_left_alone(store: JobStore):
    """Its lock is held."""
    run_id = new_run_id()
    with Journal.create(run_dir(run_id), run_id):
        store.create(run_id, session_id=run_id, workspace="/w")
        assert await recover(store) == []


async def test_a_run_whose_directory_is_gone_is_closed(store: JobStore):
    """Somebody removed it by hand."""
    run_id = new_run_id()
    store.create(run_id, session_id=run_id, workspace="/w")
    assert await recover(store) == [run_id]


_KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from ringfence.job.request import CustomWork, RunRequest
from ringfence.job.run import JobRun
from ringfence.job.store import JobStore
from ringfence.sandbox import SandboxSpec

class Killed(JobStore):
    def create(self, job_id, **said):
        if sys.argv[1] == "after":
            super().create(job_id, **said)
        os.kill(os.getpid(), signal.SIGKILL)

async def work(sandbox, emit):
    raise AssertionError

request = RunRequest(CustomWork("x", work), Path.cwd(), SandboxSpec())
anyio.run(lambda: JobRun(request, store=Killed()).run())
"""


@pytest.mark.parametrize(("moment", "closed"), slow_after(1, [("before", 0), ("after", 1)]))
async def test_a_record_is_known_before_it_is_there(
    store: JobStore, tmp_path: Path, moment: str, closed: int
):
    """A process that is killed as it enters its run leaves no record that is not known to those who close the dead."""
    killed = await anyio.run_process([sys.executable, "-c", _KILLED, moment], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(await recover(store)) == closed
    assert [*runs_dir().rglob(JOURNAL_NAME)] == []

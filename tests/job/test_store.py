"""The store of jobs: compare-and-set, from several processes."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.job.state import JobState
from ringfence.job.store import JobStore


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    """A store with one queued job."""
    made = JobStore(tmp_path / "jobs.db")
    made.create("a", session_id="s", workspace="/w")
    return made


_RACE = """
import sys
from pathlib import Path
from ringfence.job.state import JobState
from ringfence.job.store import JobStore
store = JobStore(Path(sys.argv[1]))
sys.stdin.readline()
for state in [JobState(name) for name in sys.argv[2:]]:
    print(state.value, store.move("a", JobState.QUEUED, state))
"""


@pytest.mark.slow
def test_one_of_many_processes_ends_a_job(store: JobStore, tmp_path: Path):
    """However many want to, exactly one sets the end, and it is the one that is kept."""
    names = [state.value for state in JobState if state.is_terminal]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACE, str(tmp_path / "jobs.db"), *names[turn:], *names[:turn]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for turn in range(4)
    ]
    answers = "".join(racer.communicate("go\n", timeout=60)[0] for racer in racers).splitlines()
    won = [line.split()[0] for line in answers if line.endswith("True")]
    job = store.get("a")
    assert (len(answers), job is not None and won == [job.state.value]) == (4 * len(names), True)


def test_a_move_that_makes_no_sense_is_refused(store: JobStore):
    """Backwards is a mistake of the caller's, not a race."""
    with pytest.raises(UsageError, match="'succeeded' to 'running'"):
        store.move("a", JobState.SUCCEEDED, JobState.RUNNING)


def test_a_state_that_has_changed_is_not_set(store: JobStore):
    """Who comes second is told."""
    store.move("a", JobState.QUEUED, JobState.STARTING)
    assert not store.move("a", JobState.QUEUED, JobState.FAILED)


def test_sandboxes_are_noted(store: JobStore):
    """In the order in which they were opened."""
    store.add_sandbox("a", "one")
    store.add_sandbox("a", "two")
    assert [job.sandbox_ids for job in store.unfinished()] == [("one", "two")]


def test_an_ended_job_is_not_unfinished(store: JobStore):
    """Nor one that was removed."""
    store.move("a", JobState.QUEUED, JobState.FAILED)
    assert store.unfinished() == []
    store.remove("a")
    assert store.get("a") is None


def test_a_file_that_is_no_database_is_told(tmp_path: Path):
    """By its name."""
    (tmp_path / "jobs.db").write_text("not a database, but long enough to be looked at as one" * 20)
    with pytest.raises(InfrastructureFault, match=r"jobs\.db"):
        JobStore(tmp_path / "jobs.db").unfinished()


def test_a_locked_database_is_waited_for(store: JobStore, tmp_path: Path):
    """A reader of another process does not stand in the way."""
    other = sqlite3.connect(tmp_path / "jobs.db")
    other.execute("SELECT * FROM jobs").fetchall()
    assert store.move("a", JobState.QUEUED, JobState.STARTING)
    other.close()


def test_a_store_that_is_held_keeps_its_log(store: JobStore, tmp_path: Path):
    """A change does not write it back and remove it, until nobody holds the store; what was changed is there."""
    log = tmp_path / "jobs.db-wal"
    with store.held():
        assert store.move("a", JobState.QUEUED, JobState.STARTING)
        assert log.exists()
    assert not log.exists()
    job = JobStore(tmp_path / "jobs.db").get("a")
    assert job is not None
    assert job.state is JobState.STARTING


def test_what_goes_wrong_while_a_store_is_held_is_not_the_stores(store: JobStore):
    """Another database's error keeps its own words."""
    with pytest.raises(sqlite3.OperationalError, match="another"), store.held():
        raise sqlite3.OperationalError("another")

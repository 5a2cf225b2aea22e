"""The process of a run is signalled only if it is that process."""

import os
from pathlib import Path

from ringfence.job.run_process import is_terminable, note_process, terminate
from ringfence.journal import LOCK_NAME, Journal
from ringfence.process import start_time


def test_another_process_of_the_same_pid_is_not_signalled(tmp_path: Path) -> None:
    """The noted start time has to be that of the process, and the run has to be going on."""
    with Journal.create(tmp_path / "run", "run"):
        note_process(tmp_path / "run")
        assert is_terminable(tmp_path / "run")
        (tmp_path / "run" / LOCK_NAME).write_text(f"{os.getpid()} 1")
        assert not is_terminable(tmp_path / "run")
    (tmp_path / "run" / LOCK_NAME).write_text(f"{os.getpid()} {start_time(os.getpid())}")
    assert not is_terminable(tmp_path / "run")


def test_a_process_that_is_not_noted_is_not_signalled(tmp_path: Path) -> None:
    """A loop, a worker or a program of the user's holds the run, and would be ended with it."""
    with Journal.create(tmp_path / "run", "run"):
        assert not terminate(tmp_path / "run")


def test_the_note_goes_with_its_run(tmp_path: Path) -> None:
    """The lock of a run that has ended is empty, as verification expects it."""
    with Journal.create(tmp_path / "run", "run"):
        note_process(tmp_path / "run")
    assert (tmp_path / "run" / LOCK_NAME).read_text() == ""

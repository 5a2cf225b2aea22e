"""What goes with the runs that needed it."""

import os
from pathlib import Path

import pytest

from ringfence.job.garbage_collection import abandoned_sessions
from ringfence.job.store import JobStore
from ringfence.runtime.session import lock_session


def test_a_session_goes_when_no_run_of_it_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The files of one that can still be gone on with stay."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path))
    store = JobStore()
    for run, session in (("r1", "s1"), ("r2", "s1"), ("r3", "s2")):
        store.create(run, session_id=session, workspace="/w")
        with lock_session(session, by=run, state=tmp_path):
            pass
    store.remove("r1")
    store.remove("r3")
    assert abandoned_sessions(store) == []
    for path in (tmp_path / "sessions").iterdir():
        os.utime(path, (0, 0))
    assert [path.name for path in abandoned_sessions(store)] == ["s2"]

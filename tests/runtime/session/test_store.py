"""Where sessions lie outside: one writer, whole records, names that lead nowhere else."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import RecordError, UsageError
from ringfence.runtime.session.store import MAX_DEPTH, SessionRecord, checked_name, lock_session

RECORD = SessionRecord(client="claude", client_session_id="c1", workspace="/w")


def test_a_record_is_read_as_it_was_saved(tmp_path: Path):
    """Also by the next run."""
    with lock_session("s1", by="r1", state=tmp_path) as home:
        assert home.record() is None
        home.save(RECORD)
    with lock_session("s1", by="r2", state=tmp_path) as home:
        assert home.record() == RECORD


def test_a_session_has_one_writer(tmp_path: Path):
    """A second run is refused, and told who has it."""
    with (
        lock_session("s1", by="process 4711", state=tmp_path),
        pytest.raises(UsageError, match="in use by process 4711"),
        lock_session("s1", by="r2", state=tmp_path),
    ):
        pass


def test_a_killed_writer_lets_go(tmp_path: Path):
    """The hold ends with its process, however that ends."""
    held = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from ringfence.runtime.session.store import lock_session\n"
        "with lock_session('s1', by='r1', state=Path(sys.argv[1])):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", held, str(tmp_path)], check=False)
    assert done.returncode == -9
    with lock_session("s1", by="r2", state=tmp_path) as home:
        assert home.record() is None


@pytest.mark.parametrize("wrong", ["", ".", "..", "a/b", "-x", "a" * 101, "ä", "a\n"])
def test_only_ids_name_sessions(tmp_path: Path, wrong: str):
    """Nothing that could lead out of the directory."""
    with pytest.raises(UsageError, match="not a session id"), lock_session(wrong, by="r", state=tmp_path):
        pass


def test_a_damaged_record_is_told(tmp_path: Path):
    """With its place and what to do."""
    with lock_session("s1", by="r1", state=tmp_path) as home:
        (home.path / "session.json").write_text("{")
        with pytest.raises(RecordError, match=r"session\.json.*leave out --resume"):
            home.record()


def test_a_fork_has_files_of_its_own(tmp_path: Path):
    """What is written to it later is not in the one it comes from."""
    with lock_session("s1", by="r1", state=tmp_path) as first:
        with first.appending("projects/w/x.jsonl") as file:
            file.write(b"one\n")
        with lock_session("s2", by="r1", state=tmp_path) as second:
            second.copy_from(first)
            with second.appending("projects/w/x.jsonl") as file:
                file.write(b"two\n")
            assert second.place("projects/w/x.jsonl").read_bytes() == b"one\ntwo\n"
        assert first.place("projects/w/x.jsonl").read_bytes() == b"one\n"


@given(st.lists(st.sampled_from(["", ".", "..", "a", "b.jsonl", "x" * 256, "\0"]), max_size=MAX_DEPTH + 2))
def test_a_name_leads_nowhere_else(parts: list[str]):
    """What is let through lies below the directory that it is put in."""
    name = "/".join(parts)
    try:
        place = Path("/base") / checked_name(name)
    except ValueError:
        return
    assert place.is_relative_to("/base")
    assert ".." not in place.parts
    assert place != Path("/base")

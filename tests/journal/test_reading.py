"""Reading a journal back."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from ringfence.errors import RecordError
from ringfence.events import Event, JobStarted, MessageSent
from ringfence.journal import Journal, Record, UnknownEvent, follow, new_run_id, read, run_dir
from ringfence.journal.reader import read_named

from .conftest import MakeRun

_HOLDER = """
import sys
from pathlib import Path
from ringfence.events import JobStarted
from ringfence.journal import Journal
journal = Journal.create(Path(sys.argv[1]), "2026-01-28T10-30-45-0123abcd")
print("open", flush=True)
sys.stdin.readline()
journal.append(JobStarted())
import os
os.kill(os.getpid(), 9)
"""


def test_events_come_back_as_they_were(make_run: MakeRun, events: list[Event]) -> None:
    """Reading gives the typed events that were appended, in order, numbered."""
    records = list(read(make_run()))
    assert [record.event for record in records[1:-2]] == events
    assert [record.seq for record in records] == list(range(8))


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [(b"tool.called", b"tool.dreamt", "tool.dreamt"), (b'"call_id":"c1"', b'"call":"c1"', "tool.called")],
    ids=["new event", "new shape"],
)
def test_events_of_another_version_are_kept_raw(old: bytes, new: bytes, name: str, make_run: MakeRun) -> None:
    """An event that this version does not know keeps its name and its fields."""
    path = make_run() / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    event = list(read(path))[3].event
    assert isinstance(event, UnknownEvent)
    assert (event.name, event.fields["tool"]) == (name, "shell")


def test_half_a_line_at_the_end_is_left_out(make_run: MakeRun) -> None:
    """Reading stops before a last line that has no end."""
    path = make_run(seal=False) / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq":6,')
    assert len(list(read(path))) == 6


@pytest.mark.parametrize("line", [b"{}\n", b"\xff\n", b"[" * 100_000 + b"\n", b"x" * 3_000_000 + b"\n"])
def test_what_is_no_line_is_named(line: bytes, make_run: MakeRun) -> None:
    """A line that does not parse is an error that names it and says what to do."""
    path = make_run(seal=False) / "journal.jsonl"
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(RecordError, match=r"line [67] of .* run `ringfence runs verify`"):
        list(read(path))


def test_no_journal_is_an_error(tmp_path: Path) -> None:
    """Reading a run that is not there says so."""
    with pytest.raises(RecordError, match="cannot be read"):
        list(read(tmp_path))


async def test_following_ends_with_the_seal() -> None:
    """A follower gets what was there, what comes, and the seal; then it ends."""
    run_id = new_run_id()
    seen: list[Record] = []
    with anyio.fail_after(20):
        with Journal.create(run_dir(run_id), run_id) as journal:
            async with anyio.create_task_group() as tasks:
                started = anyio.Event()

                async def watch() -> None:
                    async for record in follow(run_dir(run_id), poll_s=0.001):
                        seen.append(record)
                        started.set()

                tasks.start_soon(watch)
                await started.wait()
                journal.append(MessageSent(content="x" * 70_000))
                journal.append(JobStarted())
                journal.seal()
    names = ["journal.opened", "message.sent", "job.started", "files.recorded", "journal.sealed"]
    assert [record.event.name for record in seen] == names


async def test_following_ends_when_the_writer_dies(tmp_path: Path) -> None:
    """A follower of a run whose process is killed gets the last event and ends."""
    with subprocess.Popen(  # noqa: ASYNC220  # starting is short, and the follower is what is tested
        [sys.executable, "-c", _HOLDER, tmp_path / "run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        names = []
        with anyio.fail_after(20):
            async for record in follow(tmp_path / "run", poll_s=0.001):
                names.append(record.event.name)
                if len(names) == 1:
                    child.stdin.write(b"go\n")
                    child.stdin.flush()
    assert names == ["journal.opened", "job.started"]


def test_events_are_read_by_name(make_run: MakeRun) -> None:
    """Events of the names are given in order; half a line at the end is left out, a line of no known form is named."""
    path = make_run(seal=False) / "journal.jsonl"
    whole = list(read(path))
    names = frozenset({"tool.called", "journal.opened"})
    wanted = [record for record in whole if record.event.name in names]
    assert len(wanted) == 2
    path.write_bytes(path.read_bytes() + b'{"seq":6,')
    assert list(read_named(path, names)) == wanted
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(RecordError, match="line 7"):
        list(read_named(path, names))

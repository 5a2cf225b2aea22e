"""The writer: every line whole, every refusal clean."""

import json
import os
import signal
import subprocess
import sys
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

from ringfence.errors import InfrastructureFault, RecordError
from ringfence.events import JobEnded, JobStarted, MessageSent, TextStreamed, ToolCalled
from ringfence.journal import Journal, is_alive, new_run_id, read, run_dir, verify_run

from .conftest import MakeRun

_WRITER = """
import sys
from pathlib import Path
from ringfence.events import MessageSent
from ringfence.journal import Journal
journal = Journal.create(Path(sys.argv[1]), "2026-01-28T10-30-45-0123abcd")
for number in range(10**9):
    journal.append(MessageSent(content=str(number) * 50))
    sys.stdout.write("x")
    sys.stdout.flush()
"""

_LIMITED = """
import resource, sys
from pathlib import Path
from ringfence.errors import InfrastructureFault
from ringfence.events import MessageSent
from ringfence.journal import Journal
journal = Journal.create(Path(sys.argv[1]), "2026-01-28T10-30-45-0123abcd")
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
count = 1
try:
    while True:
        journal.append(MessageSent(content="x" * 700))
        count += 1
except InfrastructureFault as fault:
    print(count, fault)
"""


def _new() -> tuple[Path, str]:
    run_id = new_run_id()
    return run_dir(run_id), run_id


def _lines(directory: Path) -> list[bytes]:
    return (directory / "journal.jsonl").read_bytes().splitlines(keepends=True)


def _fill(journal: Journal) -> None:
    for _ in range(10_000):
        journal.append(MessageSent(content="x" * 3000))


def test_first_line_binds_the_run() -> None:
    """The first line names the run and follows from nothing."""
    directory, run_id = _new()
    Journal.create(directory, run_id).close()
    first = json.loads(_lines(directory)[0])
    assert (first["seq"], first["prev"], first["event"]) == (0, "0" * 64, "journal.opened")
    assert first["data"]["run_id"] == run_id


def test_each_line_carries_the_hash_of_the_line_before(make_run: MakeRun) -> None:
    """`prev` is the SHA-256 of the previous line with its newline, as sha256sum gives it."""
    lines = _lines(make_run())
    for before, after in pairwise(lines):
        assert json.loads(after)["prev"] == sha256(before).hexdigest()


def test_written_before_told() -> None:
    """When `append` returns, another reader of the file finds the event."""
    directory, run_id = _new()
    with Journal.create(directory, run_id) as journal:
        record = journal.append(MessageSent(content="hello"))
        assert record is not None
        assert list(read(directory))[-1] == record


async def test_emit_writes_before_it_returns() -> None:
    """`emit` of a milestone returns when the event is in the file."""
    directory, run_id = _new()
    with Journal.create(directory, run_id) as journal:
        await journal.emit(JobEnded(state="failed", exit_code=1, reason="no"))
        assert list(read(directory))[-1].event.name == "job.ended"


def test_streamed_text_is_not_journaled() -> None:
    """Events that only a live view wants leave no line."""
    directory, run_id = _new()
    with Journal.create(directory, run_id) as journal:
        assert journal.append(TextStreamed(text="hel")) is None
    assert len(_lines(directory)) == 1


def test_encoding_is_deterministic() -> None:
    """The same event gives the same bytes, whatever the order of its keys."""
    directory, run_id = _new()
    with Journal.create(directory, run_id) as journal:
        journal.append(ToolCalled(call_id="1", tool="t", arguments={"a": 1, "b": 2}))
        journal.append(ToolCalled(call_id="1", tool="t", arguments={"b": 2, "a": 1}))
    first, second = _lines(directory)[1:]
    assert first.split(b'"data":')[1] == second.split(b'"data":')[1]


def test_only_the_owner_reads_a_record(make_run: MakeRun) -> None:
    """Files are 0600 and directories 0700, whatever the umask."""
    before = os.umask(0)
    try:
        directory = make_run(events=[MessageSent(content="x" * 70_000)])
    finally:
        os.umask(before)
    for path in [directory, directory.parent, directory.parent.parent, *directory.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_lock_tells_who_lives() -> None:
    """A run is alive while its journal is open, and no second writer gets it."""
    directory, run_id = _new()
    journal = Journal.create(directory, run_id)
    assert is_alive(directory)
    with pytest.raises(RecordError, match="held by another process"):
        Journal.reopen(directory)
    journal.close()
    assert not is_alive(directory)


def test_a_journal_is_never_started_twice(make_run: MakeRun) -> None:
    """`create` refuses a directory that has a journal."""
    directory = make_run()
    with pytest.raises(RecordError, match="there is a journal already"):
        Journal.create(directory, directory.name)


def test_nothing_follows_the_seal() -> None:
    """A sealed journal takes no more events."""
    directory, run_id = _new()
    with Journal.create(directory, run_id) as journal:
        journal.seal()
        with pytest.raises(RecordError, match="is sealed"):
            journal.append(JobStarted())


async def test_finish_seals_and_lets_go() -> None:
    """After `finish` the journal is sealed and the run is free."""
    directory, run_id = _new()
    await Journal.create(directory, run_id).finish()
    assert verify_run(directory).ok
    assert not is_alive(directory)


def test_what_cannot_be_recorded_is_refused() -> None:
    """An event that JSON cannot hold is a fault, and the journal goes on."""
    directory, run_id = _new()
    with Journal.create(directory, run_id) as journal:
        with pytest.raises(InfrastructureFault, match="cannot be recorded"):
            journal.append(MessageSent(content=object()))
        journal.append(JobStarted())
        journal.seal()
    assert verify_run(directory).ok


def test_file_size_limit_leaves_whole_lines(tmp_path: Path) -> None:
    """A line that does not fit is taken back: the record is intact up to there."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, tmp_path / "run"], capture_output=True, text=True, check=True
    )
    found = verify_run(tmp_path / "run")
    assert "File too large" in done.stdout
    assert (found.status, found.events, found.torn_bytes) == ("open", int(done.stdout.split()[0]), 0)


def test_full_disk_leaves_room_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk events are refused, but the run's end and the seal still find space."""
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", tmp_path], check=False
        ).returncode
    ):
        pytest.skip("needs root to mount a small file system")
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path))
    try:
        directory, run_id = _new()
        with Journal.create(directory, run_id) as journal:
            with pytest.raises(InfrastructureFault, match="No space left"):
                _fill(journal)
            journal.append(JobEnded(state="infrastructure", exit_code=75, reason="disk full"))
            journal.seal()
        assert verify_run(directory).ok
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow
def test_kill_loses_nothing_that_was_told(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing leaves a journal with every event that was reported, in order."""
    for round_number in range(8):
        directory = tmp_path / str(round_number)
        with subprocess.Popen([sys.executable, "-c", _WRITER, directory], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            told = len(child.stdout.read(50 + 37 * round_number))
            child.send_signal(signal.SIGKILL)
            told += len(child.stdout.read())
        found = verify_run(directory)
        assert found.status == "open"
        assert found.events >= told + 1
        assert not is_alive(directory)


@pytest.mark.slow
def test_every_torn_end_verifies_up_to_its_last_whole_line(make_run: MakeRun, tmp_path: Path) -> None:
    """Whatever byte a crash stops at, the whole lines before it verify."""
    whole = (make_run(seal=False) / "journal.jsonl").read_bytes()
    path = tmp_path / "journal.jsonl"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found = verify_run(path)
        lines = whole[:size].count(b"\n")
        # The chain knows the whole journal: it says what is missing, as soon as the run is known.
        assert (found.status, found.events) == ("truncated" if lines else "open", lines)


@pytest.mark.parametrize("cut", [1, 2, 100, -1], ids=["newline", "brace", "middle", "first line"])
def test_reopening_repairs_a_torn_end(cut: int, make_run: MakeRun) -> None:
    """Half a line is cut off, that is recorded, and the journal can be sealed."""
    directory = make_run(seal=False)
    path = directory / "journal.jsonl"
    (directory.parent.parent / "heads").unlink()  # a writer that was killed left no entry
    whole = path.read_bytes()
    path.write_bytes(whole[:20] if cut == -1 else whole[:-cut])
    with Journal.reopen(directory) as journal:
        journal.seal()
    repaired = next(record.event for record in read(directory) if record.event.name == "journal.repaired")
    assert repaired.dropped_bytes > 0  # type: ignore[attr-defined]  # found by its name
    assert verify_run(directory).ok


@pytest.mark.parametrize("damage", ["sealed", "broken", "truncated"])
def test_reopening_refuses_what_it_must_not_touch(damage: str, make_run: MakeRun) -> None:
    """A sealed, broken or truncated journal is left as it is, so that the damage is not sealed over."""
    directory = make_run(seal=damage == "sealed")
    path = directory / "journal.jsonl"
    lines = _lines(directory)
    if damage == "broken":
        lines[2] = lines[2].replace(b"fix", b"fox")
    if damage == "truncated":
        lines.pop()
    path.write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=damage):
        Journal.reopen(directory)
    assert path.read_bytes() == b"".join(lines)
    assert not is_alive(directory)

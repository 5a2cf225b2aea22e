"""A session made elsewhere becomes a sealed record of ours."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError, UsageError
from ringfence.events import (
    JobCreated,
    JobEnded,
    MessageSent,
    SessionImported,
    ToolReturned,
    TranscriptDamaged,
)
from ringfence.job.continuing import last_run_of
from ringfence.journal import export, list_runs, read, run_dir, verify
from ringfence.runtime.transcript import import_session, read_events


def _events(run_id: str) -> list[Any]:
    return [record.event for record in read(run_dir(run_id))]


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_the_record_is_sealed_and_marked(client: str, request: pytest.FixtureRequest) -> None:
    """It verifies, and says by its first event, its runtime and its state that it was imported."""
    path: Path = request.getfixturevalue(client)
    imported = import_session(path)
    _, first, created, *_, ended, _ = _events(imported.run_id)
    assert verify(run_dir(imported.run_id)).status == "sealed"
    assert isinstance(first, SessionImported)
    assert isinstance(created, JobCreated)
    assert isinstance(ended, JobEnded)
    assert (created.runtime, created.toolset, created.workspace) == ("imported", client, "/home/dev/project")
    assert ended.state == "imported"
    assert "not that it happened" in ended.reason


def test_the_record_names_the_bytes_it_was_made_of(claude: Path) -> None:
    """Size and hash of each file, sub-agents' too."""
    imported = import_session(claude)
    first = _events(imported.run_id)[1]
    content = claude.read_bytes()
    assert (first.files[0].size_bytes, first.files[0].sha256) == (len(content), sha256(content).hexdigest())
    assert [file.agent for file in first.files] == [None, "a0123456789abcdef"]


def test_all_events_are_in_the_record(claude: Path) -> None:
    """Between its beginning and its end there is what reading gives, nothing else."""
    imported = import_session(claude)
    assert _events(imported.run_id)[3:-2] == list(read_events(claude))


def test_the_end_sums_up(claude: Path) -> None:
    """Replies, calls, tokens and time are those of the session; so is the exported document's clock."""
    imported = import_session(claude)
    ended = _events(imported.run_id)[-2]
    assert (ended.turns, ended.tool_calls, ended.usage.output_tokens) == (5, 4, 197)
    assert ended.duration_s == pytest.approx(0.97, abs=0.5)
    document = export(run_dir(imported.run_id))
    assert all(message.timestamp.startswith("2026-01-02T03:04:0") for message in document.messages)


def test_secrets_are_taken_out(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the environment, those that are given, and what looks like one; also in records of no known kind."""
    monkeypatch.setenv("SOME_TOKEN", "value-of-the-environment")
    shaped = "sk-ant-api03-" + "a" * 40
    text = f"value-of-the-environment given-secret {shaped}"
    path = written(said(text), {"type": "later", "sessionId": "s", "x": {text: [text]}})
    imported = import_session(path, secrets=["given-secret"])
    files = [file for file in run_dir(imported.run_id).rglob("*") if file.is_file()]
    content = b"".join(file.read_bytes() for file in files)
    for secret in (b"value-of-the-environment", b"given-secret", shaped.encode()):
        assert secret not in content
    assert _events(imported.run_id)[3].content == "[redacted] [redacted] [redacted]"


def test_the_same_bytes_are_imported_once(claude: Path) -> None:
    """A second time the first record is named, unless another is asked for; more bytes are another record."""
    first = import_session(claude)
    second = import_session(claude)
    assert (first.is_new, second.is_new, second.run_id) == (True, False, first.run_id)
    assert import_session(claude, is_again=True).run_id != first.run_id
    with claude.open("a") as file:
        file.write('{"type":"mode","sessionId":"s"}\n')
    assert import_session(claude).is_new


def test_damage_is_in_the_record(written: Callable[..., Path], said: Callable[..., dict[str, Any]]) -> None:
    """What could not be read is counted, and its place and hash are kept."""
    path = written(said(), b"garbage\n", said(), b'{"type":')
    imported = import_session(path)
    told = [event for event in _events(imported.run_id) if isinstance(event, TranscriptDamaged)]
    assert imported.damaged == 2
    assert [event.sha256 for event in told] == [
        sha256(b"garbage").hexdigest(),
        sha256(b'{"type":').hexdigest(),
    ]


def test_what_is_added_meanwhile_is_left_out(claude: Path, said: Callable[..., dict[str, Any]]) -> None:
    """A session that goes on while it is imported is imported as it was measured."""
    before = claude.read_bytes()

    def secrets() -> Iterator[str]:
        with claude.open("a") as file:  # they are asked for between measuring and reading
            file.write(json.dumps(said("late")) + "\n")
        yield "none-of-these"

    imported = import_session(claude, secrets=secrets())
    assert imported.files[0].size_bytes == len(before)
    assert "late" not in [
        event.content for event in _events(imported.run_id) if isinstance(event, MessageSent)
    ]


def test_a_session_that_is_rewritten_meanwhile_leaves_no_record(claude: Path) -> None:
    """The record would tell of other bytes than it names."""

    def secrets() -> Iterator[str]:
        claude.write_bytes(claude.read_bytes().replace(b"All done.", b"Not done."))
        yield "none-of-these"

    with pytest.raises(RecordError, match="changed while it was imported"):
        import_session(claude, secrets=secrets())
    assert list_runs() == []
    assert list((state_dir() / "tmp").iterdir()) == []


_KILLED = """
import os, signal, sys, threading
from pathlib import Path
from ringfence.config.paths import state_dir
from ringfence.runtime.transcript import import_session

def kill():
    while not any(file.stat().st_size > 100_000 for file in state_dir().glob("tmp/import-*/journal.jsonl")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
import_session(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_killed_import_leaves_no_record(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """There is the whole record among the runs, or none; a later import clears up what was left."""
    path = written(*[said("x" * 200)] * 50_000)
    done = subprocess.run([sys.executable, "-c", _KILLED, path], timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list_runs() == []
    (left,) = (state_dir() / "tmp").iterdir()
    os.utime(left, (0, 0))
    import_session(written(said()))
    assert not left.exists()


@pytest.mark.slow
def test_a_large_body_is_kept_beside_the_record(
    written: Callable[..., Path], said: Callable[..., dict[str, Any]]
) -> None:
    """A message of 10 MB is in the record whole, and the record verifies."""
    text = "x" * 10 * 1024**2
    imported = import_session(written(said(text)))
    assert _events(imported.run_id)[3].content == text
    assert verify(run_dir(imported.run_id)).ok


def test_no_run_goes_on_with_an_imported_one(claude: Path) -> None:
    """What is in a transcript anybody may have written: it is not put before a model unasked."""
    import_session(claude)
    assert [run.state for run in list_runs()] == ["imported"]
    with pytest.raises(UsageError, match="no run"):
        last_run_of(Path("/home/dev/project"))


def test_results_keep_their_tools_and_errors(codex: Path) -> None:
    """A result names the tool that was called."""
    returned = [event for event in _events(import_session(codex).run_id) if isinstance(event, ToolReturned)]
    assert [event.tool for event in returned] == ["exec_command", "exec_command", "apply_patch"]

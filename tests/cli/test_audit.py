"""`ringfence runs` from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ringfence.cli.app import app
from ringfence.errors import RecordError, UsageError
from ringfence.events import Event, JobCreated, JobEnded, MessageSent, ToolCalled, ToolReturned
from ringfence.journal import Journal, new_run_id, run_dir
from ringfence.journal.seal import keys_dir

_EVIL = "\x1b[2J\u202e[red]ok\rno"


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments])


@pytest.fixture
def run() -> Path:
    """A sealed run whose every text is hostile."""
    return _make(seal=True)


def _make(*, seal: bool) -> Path:
    run_id = new_run_id()
    events: list[Event] = [
        JobCreated(
            job_id="j",
            session_id=run_id,
            prompt=_EVIL,
            model=_EVIL,
            runtime="api",
            toolset="operator",
            workspace=_EVIL,
            version="0",
        ),
        MessageSent(content=_EVIL),
        ToolCalled(call_id="1", tool=_EVIL, arguments={"command": _EVIL, _EVIL: _EVIL}, reasoning=_EVIL),
        ToolReturned(call_id="1", tool=_EVIL, is_error=True, content=_EVIL, duration_ms=1500.0),
        JobEnded(state="failed", exit_code=1, reason=_EVIL),
    ]
    with Journal.create(run_dir(run_id), run_id) as journal:
        for event in events:
            journal.append(event)
        if seal:
            journal.seal()
    return run_dir(run_id)


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["ls", "--json"],
        ["show", "RUN"],
        ["show", "RUN", "--json"],
        ["logs", "-f", "RUN"],
        ["logs", "-f", "RUN", "--json"],
        ["export", "RUN"],
        ["verify", "RUN"],
    ],
    ids=" ".join,
)
def test_no_text_of_an_agent_acts_on_the_terminal(arguments: list[str], run: Path) -> None:
    """Every command shows hostile text by its codes."""
    result = _run(*(run.name if word == "RUN" else word for word in arguments))
    assert result.exit_code == 0
    assert not set(result.output) & set("\x1b\r\u202e")


def test_the_transcript_tells_what_happened(run: Path) -> None:
    """`show` prints the command, its reason, its result and the end, in order, markup untouched."""
    output = _run("logs", run.name).output
    escaped = r"\x1b[2J\u202e[red]ok\x0dno"
    parts = [f"# {escaped}", f"$ {escaped}", "failed after 1.50 s", escaped, f"failed: {escaped}", "sealed"]
    places = [output.index(part) for part in parts]
    assert places[0] < places[1] < places[2]
    assert places[2] < places[4] < output.rindex("sealed")


def test_json_lines_hold_the_events(run: Path) -> None:
    """`show --json` prints one object for each event, as in the journal."""
    lines = [json.loads(line) for line in _run("logs", run.name, "--json").output.splitlines()]
    assert [line["event"] for line in lines][:2] == ["journal.opened", "job.created"]
    assert lines[2]["data"]["content"] == _EVIL


def test_list_names_each_run(run: Path) -> None:
    """`ls --json` gives the summary of each run."""
    (summary,) = json.loads(_run("ls", "--json").output)
    assert (summary["id"], summary["state"], summary["is_sealed"]) == (run.name, "failed", True)


def test_an_empty_list_is_said_on_stderr() -> None:
    """With no runs stdout stays empty."""
    result = _run("ls")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no runs yet" in result.stderr


def test_verify_of_a_sealed_run(run: Path) -> None:
    """A sealed run verifies with exit code 0, by name and by path."""
    for what in (run.name, str(run), str(run / "journal.jsonl")):
        result = _run("verify", what)
        assert (result.exit_code, result.output.split()[0]) == (0, "sealed")


def test_verify_of_an_open_run() -> None:
    """A run whose process is gone without a seal is called killed, with exit code 3."""
    directory = _make(seal=False)
    result = _run("verify", directory.name)
    assert result.exit_code == 3
    assert result.output.startswith("killed, no seal")


def test_verify_of_a_changed_run(run: Path) -> None:
    """A changed run is broken, with the line, and exit code 1."""
    path = run / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"is_error":true', b'"is_error":false'))
    result = _run("verify", run.name, "--json")
    found = json.loads(result.output)
    assert (result.exit_code, found["status"], found["bad_line"]) == (1, "broken", 6)


def test_verify_of_a_truncated_run(run: Path) -> None:
    """A run whose last lines were cut off is truncated, with exit code 1."""
    path = run / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))
    result = _run("verify", run.name)
    assert result.exit_code == 1
    assert result.output.startswith("TRUNCATED")


def test_verify_of_all_takes_the_worst(run: Path) -> None:
    """`--all` verifies every run; the worst decides the exit code."""
    _make(seal=False)
    assert _run("verify", "--all").exit_code == 3
    (run / "journal.jsonl").write_bytes(b"garbage\n")
    result = _run("verify", "--all", "--json")
    assert result.exit_code == 1
    assert sorted(found["status"] for found in json.loads(result.output)["runs"]) == ["broken", "open"]


def test_verify_with_a_given_key(run: Path, tmp_path: Path) -> None:
    """With `--key` the seal must be of that key, whatever keys this machine has."""
    key = tmp_path / "key.pub"
    key.write_bytes((keys_dir() / "journal-ed25519.pub").read_bytes())
    (keys_dir() / "journal-ed25519.pub").unlink()
    assert _run("verify", run.name).exit_code == 1
    assert _run("verify", run.name, "--key", str(key)).exit_code == 0


@pytest.mark.parametrize("arguments", [["last", "--all"], ["--anchor", "0" * 64]], ids=["both", "anchor"])
def test_verify_asks_what_to_verify(arguments: list[str]) -> None:
    """One run or all of them: both are refused, and so is an anchor for one run."""
    assert isinstance(_run("verify", *arguments).exception, UsageError)


@pytest.mark.parametrize("command", ["show", "logs", "export", "verify"])
def test_an_unknown_run_is_refused(command: str) -> None:
    """A run that is not there is an error that says where to look."""
    error = _run(command, "2026").exception
    assert isinstance(error, UsageError)
    assert "ringfence runs ls" in str(error)


def test_a_damaged_run_is_not_shown_as_if_whole(run: Path) -> None:
    """`show` stops with an error at a line that does not parse."""
    path = run / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"seq":3', b'{"seq":x'))
    assert isinstance(_run("logs", run.name).exception, RecordError)


def test_export_writes_a_file(run: Path, tmp_path: Path) -> None:
    """`export -o` writes the session, for its owner only."""
    target = tmp_path / "session.json"
    assert _run("export", run.name, "-o", str(target)).exit_code == 0
    assert json.loads(target.read_bytes())["message_count"] == 2
    assert target.stat().st_mode & 0o777 == 0o600


def test_export_keeps_an_existing_file(run: Path, tmp_path: Path) -> None:
    """It is overwritten with `--force` only, which needs a file."""
    target = tmp_path / "session.json"
    target.write_text("mine")
    error = _run("export", run.name, "-o", str(target)).exception
    assert isinstance(error, UsageError)
    assert str(error) == f"{str(target)!r} exists already; overwrite it with --force, or name another file"
    assert target.read_text() == "mine"
    assert _run("export", run.name, "-o", str(target), "--force").exit_code == 0
    assert json.loads(target.read_bytes())["message_count"] == 2
    assert isinstance(_run("export", run.name, "--force").exception, UsageError)


def test_the_record_of_a_loop_is_named_as_one(ringfence: Callable[..., Any], tmp_path: Path) -> None:
    """`diff` of a loop's record names the command that shows what the loop changed, by id and as the newest one."""
    run_id, loop = new_run_id(), "20260101-000000-abcdef"
    with Journal.create(run_dir(run_id), run_id) as journal:
        journal.append(
            JobCreated(
                job_id=run_id,
                session_id=loop,
                prompt="loop",
                model="",
                runtime="loop",
                toolset="",
                workspace=str(tmp_path),
                version="0",
            )
        )
        journal.seal()
    for words in ((run_id,), ("--all",)):
        ended = ringfence("diff", *words)
        assert f"`ringfence loop diff --loop {loop}`" in ended.err
        assert "shows why" not in ended.err

"""`ringfence session` from the command line."""

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.events import JobCreated, JobEnded, MessageSent, Origin, SessionImported, TranscriptFile, Usage
from ringfence.journal import Journal, new_run_id, run_dir

SAMPLES = Path(__file__).parent.parent / "runtime" / "transcript" / "samples"
CLAUDE_ID = "00000001-0000-4000-8000-000000000001"
CODEX_ID = "0000002a-0000-4000-8000-00000000002a"
_EVIL = "\x1b[2J\u202e[red]ok\rno"


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clients' directories, with a session each."""
    shutil.copytree(SAMPLES / "claude-2.1.329", tmp_path / "claude" / "projects" / "-home-dev-project")
    shutil.copytree(SAMPLES / "codex-0.169.0", tmp_path / "codex" / "sessions" / "2026" / "01" / "02")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A session whose every text is hostile."""
    path = tmp_path / "claude" / "projects" / "-home-dev-project" / "e.jsonl"
    call = {"type": "tool_use", "id": "1", "name": _EVIL, "input": {"command": _EVIL, _EVIL: _EVIL}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": _EVIL, "is_error": True}
    records = [
        {"type": "user", "sessionId": _EVIL, "cwd": _EVIL, "version": _EVIL, "message": {"content": _EVIL}},
        {
            "type": "assistant",
            "isSidechain": True,
            "agentId": _EVIL,
            "message": {"model": _EVIL, "content": [call]},
        },
        {"type": "user", "timestamp": _EVIL, "message": {"content": [result]}},
        {"type": "system", "subtype": _EVIL, "content": _EVIL},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + _EVIL)
    return path


@pytest.fixture
def imported() -> str:
    """A record as `session import` of version 0.1 wrote it; its run id."""
    run_id = new_run_id()
    origin = Origin(file=f"{CLAUDE_ID}.jsonl", line=1)
    file = TranscriptFile(path=f"/{CLAUDE_ID}.jsonl", size_bytes=1, sha256="0" * 64)
    with Journal.create(run_dir(run_id), run_id) as journal:
        journal.append(
            SessionImported(client="claude", client_version="2.1.329", session_id=CLAUDE_ID, files=[file])
        )
        journal.append(
            JobCreated(
                origin=origin,
                job_id=run_id,
                session_id=CLAUDE_ID,
                prompt="Do the thing",
                model="unknown",
                runtime="imported",
                toolset="claude",
                workspace="/home/dev/project",
                version="2.1.329",
            )
        )
        journal.append(MessageSent(origin=origin, content="Do the thing"))
        journal.append(
            JobEnded(
                state="imported",
                exit_code=0,
                reason="imported from the claude CLI",
                turns=0,
                tool_calls=0,
                usage=Usage(),
                cost_usd=None,
                duration_s=0.0,
            )
        )
        journal.seal()
    return run_id


@pytest.mark.parametrize("json_", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(
    "arguments",
    [["ls"], ["show", "e"], ["show", "e", "--all"], ["follow", "e", "--idle", "0.3s"]],
    ids=" ".join,
)
def test_no_text_of_a_transcript_acts_on_the_terminal(
    arguments: list[str], json_: list[str], evil: Path, ringfence: Callable[..., Any]
) -> None:
    """Every command shows hostile text by its codes."""
    ended = ringfence("session", *arguments, *json_)
    assert ended.code == 0
    assert not set(ended.out + ended.err) & set("\x1b\r\u202e")


def test_sessions_of_all_are_listed(imported: str, ringfence: Callable[..., Any]) -> None:
    """Both clients' and our own, each with its workspace and task."""
    listed = json.loads(ringfence("session", "ls", "--json").out)
    assert {one["client"] for one in listed} == {"claude", "codex", "ringfence"}
    assert {(one["workspace"], one["prompt"]) for one in listed} == {("/home/dev/project", "Do the thing")}
    header, *lines = ringfence("session", "ls").out.splitlines()
    assert (header.startswith("session "), len(lines)) == (True, 3)
    assert all("/home/dev/project" in line for line in lines)


def test_the_list_can_be_narrowed(ringfence: Callable[..., Any]) -> None:
    """By client, by workspace, by number."""
    assert len(ringfence("session", "ls", "-n", "1").out.splitlines()) == 1 + 1
    assert CODEX_ID in ringfence("session", "ls", "--client", "codex").out
    assert len(ringfence("session", "ls", "-C", "/home/dev/project").out.splitlines()) == 1 + 2
    ended = ringfence("session", "ls", "-C", "/elsewhere")
    assert (ended.out, "no sessions found" in ended.err) == ("", True)


def test_a_file_that_is_none_does_not_spoil_the_list(tmp_path: Path, ringfence: Callable[..., Any]) -> None:
    """It is listed with what is wrong with it."""
    (tmp_path / "claude" / "projects" / "-home-dev-project" / "bad.jsonl").write_text("no transcript\n")
    ended = ringfence("session", "ls")
    assert ended.code == 0
    (line,) = [line for line in ended.out.splitlines() if line.startswith("bad ")]
    assert "bad.jsonl:1: " in line


@pytest.mark.parametrize("session", [CLAUDE_ID, CODEX_ID], ids=["claude", "codex"])
def test_a_session_is_shown_as_our_own_are(session: str, ringfence: Callable[..., Any]) -> None:
    """Prompt, reply, call, result and last words in order; what the client notes for itself is left out and told."""
    ended = ringfence("session", "show", session)
    parts = ["job.created", "Do the thing", "agent  ", "$ echo one", "returned", "All done."]
    places = [ended.out.index(part) for part in parts]
    assert places == sorted(places)
    assert "of bookkeeping left out; --all shows them" in ended.err
    assert len(ringfence("session", "show", session, "--all").out) > len(ended.out)


def test_a_sub_agents_lines_are_marked(ringfence: Callable[..., Any]) -> None:
    """Its titles begin with its name."""
    assert "[a0123456789abcdef] Bash" in ringfence("session", "show", CLAUDE_ID).out


def test_json_lines_say_where_each_event_was_read(ringfence: Callable[..., Any]) -> None:
    """`show --json` prints one object for each event, with its origin."""
    lines = [json.loads(line) for line in ringfence("session", "show", CODEX_ID, "--json").out.splitlines()]
    assert lines[0]["event"] == "job.created"
    assert all(line["origin"]["file"].startswith("rollout-") for line in lines)


def test_a_session_that_version_0_1_imported_is_shown_and_verified(
    imported: str, ringfence: Callable[..., Any]
) -> None:
    """The commands for records read it, and say what it proves; no run continues it."""
    assert ringfence("runs", "verify", imported).out.startswith("sealed")
    shown = ringfence("runs", "logs", imported).out
    assert "imported from the claude CLI 2.1.329" in shown
    assert "what follows proves what these files held, not that it happened" in shown
    assert "imported: imported from the claude CLI" in shown
    assert ringfence("session", "show", imported).code == 0
    assert json.loads(ringfence("runs", "export", imported).out)["message_count"] == 1
    assert ringfence("run", "more", "--resume", imported, "--model", "scripted:x").code == 2


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("nothing.jsonl", 2, "there is no transcript"),
        ("folder", 2, "is a directory"),
        ("fifo", 2, "is a FIFO"),
        ("link", 2, "is a link"),
        ("empty", 1, "empty:1: the transcript is empty"),
        ("text", 1, "text:1: the line is no JSON"),
        ("nosuchid", 2, "no file and no session"),
    ],
)
def test_bad_input_gets_one_line(
    name: str,
    code: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ringfence: Callable[..., Any],
) -> None:
    """What is wrong, where, and what was expected or is to be done; nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello\n")
    (tmp_path / "link").symlink_to("text")
    ended = ringfence("session", "show", name)
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert reason in ended.err
    assert json.loads(ringfence("runs", "ls", "--json").out) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ls", "--client", "cursor"], "there is no client 'cursor'; there are: claude, codex, ringfence"),
        (["follow", CLAUDE_ID, "--idle", "soon"], "soon"),
    ],
    ids=["client", "idle"],
)
def test_a_wrong_option_is_said(arguments: list[str], reason: str, ringfence: Callable[..., Any]) -> None:
    """The value, and what there is instead."""
    ended = ringfence("session", *arguments)
    assert ended.code == 2
    assert reason in ended.err


def test_a_run_of_ours_is_not_followed_here(imported: str, ringfence: Callable[..., Any]) -> None:
    """It has a command of its own."""
    assert f"ringfence runs logs --follow {imported}" in ringfence("session", "follow", imported).err


@pytest.mark.slow
def test_following_ends_by_an_interrupt(
    start: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """What is added is printed at once; Ctrl-C ends it with 130."""
    path = tmp_path / "claude" / "projects" / "-home-dev-project" / f"{CLAUDE_ID}.jsonl"
    process = start("session", "follow", path, "--new", "--json")
    assert process.stdout is not None
    record = {"type": "user", "sessionId": "s", "message": {"content": "late"}}
    readable: list[Any] = []
    while not readable:
        # Until the process has begun to follow, what is added counts as old.
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        readable, _, _ = select.select([process.stdout], [], [], 0.1)
    assert json.loads(process.stdout.readline())["content"] == "late"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130

"""The real `claude` and `codex` on a person's terminal, by `ringfence claude` and `ringfence codex`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.job.terminal.person import Person

from ringfence.journal import list_runs, verify_run

from .clients import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
KEY = "sk-ant-api03-hunter2-correct-horse-battery"
SCRIPT = {"turns": [{"tools": [{"run": "echo two >> note.txt"}]}, {"text": "that was all"}]}
PROMPT = f"<scripted-model>{json.dumps(SCRIPT)}</scripted-model> please"
READY = {"claude": "bypass permissions on", "codex": "permissions: YOLO mode"}
LEAVES = {"claude": "\x03\x03", "codex": "\x03"}
DONE = {"claude": "· done ", "codex": "Worked for"}
AGAIN = {"claude": "--continue", "codex": "resume --last"}
BOTH = pytest.mark.parametrize("name", ["claude", "codex"])


@dataclass(frozen=True)
class Desk:
    """Somebody at a shell in the workspace, with ringfence on PATH."""

    person: Person
    workspace: Path

    def begin(self, name: str, arguments: str = "") -> None:
        """Start a client, and wait until it takes a prompt."""
        self.person.type(f"clear; ringfence {name} {arguments}\r")
        self.person.see(READY[name])

    def ask(self, text: str) -> None:
        """Paste a prompt, and send it off."""
        self.person.type(f"\x1b[200~{text}\x1b[201~")
        self.person.see("please")
        self.person.type("\r")

    def leave(self, name: str) -> str:
        """End the client; what ringfence says then."""
        for key in LEAVES[name]:
            self.person.type(key)
        return self.person.see("record:", "at home>")

    def events(self) -> list[dict[str, Any]]:
        """The record of the last run, verified first."""
        path = Path(list_runs()[0].path)
        assert verify_run(path).status == "sealed"
        lines = (path / "journal.jsonl").read_bytes()
        assert KEY.encode() not in lines
        return [json.loads(line) for line in lines.splitlines()]


@pytest.fixture
def model() -> Iterator[str]:
    """The scripted model; each prompt brings its script."""
    command = [sys.executable, "-m", "ringfence.testing.scripted_model", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.fixture
def desk(
    clients: dict[str, Client], workspace: Path, tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """With the scripted model in place of both APIs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    own = programs / "ringfence"
    own.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from ringfence.cli import main; main()' \"$@\"\n")
    own.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = Path(os.environ["TEST_CLIENTS"]) / "node_modules/.bin"
    env = {
        **os.environ,
        "PATH": f"{programs}:{found}:{os.environ['PATH']}",
        "PS1": "at home> ",
        "TERM": "xterm-256color",
        "ANTHROPIC_BASE_URL": model,
        "OPENAI_BASE_URL": f"{model}/v1",
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
    }
    person = Person()
    person.start("bash", "--norc", "--noprofile", "-i", env=env, cwd=workspace)
    person.see("at home>")
    yield Desk(person, workspace)
    person.close()


@BOTH
def test_a_prompt_is_there_at_once_and_is_answered(desk: Desk, name: str):
    """Nothing is asked first; the work is done, told at the end, and in the record with what was said."""
    desk.begin(name)
    desk.ask(PROMPT)
    desk.person.see("that was all\n", DONE[name])
    shown = desk.leave(name)
    assert (desk.workspace / "note.txt").read_text() == "one\ntwo\n"
    assert "1 file changed" in shown
    assert "`ringfence undo " in shown
    kinds = [event["event"] for event in desk.events()]
    end = next(event["data"] for event in desk.events() if event["event"] == "job.ended")
    # A person watched, and nothing checked it: neither a success nor a failure.
    assert (end["state"], end["turns"] >= 2, f"exited with code {end['exit_code']}" in end["reason"]) == (
        "ended",
        True,
        True,
    )
    assert kinds.count("model.exchanged") >= 2
    assert {"message.sent", "model.replied", "tool.called", "tool.returned", "session.kept"} <= set(kinds)


@BOTH
def test_ctrl_z_and_fg_bring_it_back(desk: Desk, name: str):
    """With what was on its screen; in between the shell's is there."""
    desk.begin(name)
    desk.ask(PROMPT)
    desk.person.see("that was all\n", DONE[name])
    desk.person.type("\x1a")
    desk.person.see("Stopped", "at home>")
    assert not desk.person.is_behind
    desk.person.type("fg\r")
    desk.person.see("that was all\n")
    desk.person.resize(24, 80)
    desk.person.see("that was all\n")
    assert "1 file changed" in desk.leave(name)


@BOTH
def test_the_last_session_is_found_again(desk: Desk, name: str):
    """Though the sandbox that it was in is gone; the record has only what is new."""
    desk.begin(name)
    desk.ask(PROMPT)
    desk.person.see("that was all\n", DONE[name])
    desk.leave(name)
    desk.begin(name, AGAIN[name])
    desk.person.see("that was all\n")
    desk.leave(name)
    assert "model.replied" not in [event["event"] for event in desk.events()]


def test_what_is_refused_is_told_at_the_end(desk: Desk):
    """With the option that would allow it."""
    script = {"turns": [{"tools": [{"run": "curl -sS https://example.com"}]}, {"text": "that was all"}]}
    desk.begin("claude")
    desk.ask(f"<scripted-model>{json.dumps(script)}</scripted-model> please")
    desk.person.see("that was all\n")
    assert "--allow example.com" in " ".join(desk.leave("claude").split("\n"))


def _until_written(directory: Path, text: str) -> None:
    """Wait until a transcript holds an answer: the clients write it a little after they show it."""
    deadline = time.monotonic() + 30
    while not any(
        text in line and "scripted-model" not in line  # which the prompt holds, and the script with it
        for path in directory.rglob("*.jsonl")
        for line in path.read_text(errors="replace").splitlines()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@BOTH
def test_a_client_that_is_killed_leaves_the_terminal_whole(desk: Desk, name: str):
    """And its session: what it had written is kept."""
    desk.begin(name)
    desk.ask(PROMPT)
    desk.person.see("that was all\n", DONE[name])
    pids = [
        pid
        for pid in desk.person.below()
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"/ringfence/{name}".encode())
    ]
    _until_written(Path(f"/proc/{pids[0]}/root/home/agent/.{name}"), "that was all")
    for pid in pids:
        with suppress(ProcessLookupError):  # some end with the first one
            os.kill(pid, signal.SIGKILL)
    assert "ended by signal" in desk.person.see("record:", "at home>")
    assert not desk.person.is_behind
    assert "model.replied" in [event["event"] for event in desk.events()]

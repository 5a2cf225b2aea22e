"""Runs of each runtime, and one in a container."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Unpack
from .environment import API_KEYS, PROGRAMS, embed_script
from .product import PYTHON
from .recipes import BIG

API = ("run-api", "run-docker")
CLIENTS = ("run-claude-cli", "run-claude-sdk", "run-codex-cli")
MESSAGES = {
    **dict.fromkeys(API, ("Correct add", "I correct the sign.", "Corrected.")),
    **dict.fromkeys(CLIENTS, ("Append a line.", "I append it.", "Appended.")),
}
CHANGES = {
    **dict.fromkeys(
        API, ("calc.py", "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n")
    ),
    **dict.fromkeys(CLIENTS, ("note.txt", "one\n", "one\ntwo\n")),
}
each_run = pytest.mark.parametrize("case", [*API, *CLIENTS])


@each_run
def test_a_run_is_listed_and_shown(golden: Unpack, case: str):
    """The list has its outcome; the record shows every recorded event, with the messages and the check."""
    run = golden(case)
    (row,) = run.run("runs ls", "--json").json
    assert (row["id"], row["state"], row["is_sealed"]) == (run.facts["run"], "succeeded", True)
    events = run.events("last")
    (journal,) = run.state.glob("runs/*/journal.jsonl")
    assert len(events) == len(journal.read_text().splitlines())
    assert [text for text in MESSAGES[case] if text not in json.dumps(events)] == []
    data = {event["event"]: event["data"] for event in events}
    assert data["verification.ended"]["passed"] is True
    assert data["job.ended"]["state"] == "succeeded"


@each_run
def test_a_run_is_exported(golden: Unpack, case: str):
    """The document has the messages, and each tool call with its result."""
    run = golden(case)
    session = run.run("runs export", "last").json
    assert (session["run_id"], session["outcome"]["state"]) == (run.facts["run"], "succeeded")
    contents = json.dumps([each["content"] for each in session["messages"] if "content" in each])
    assert [text for text in MESSAGES[case] if text not in contents] == []
    calls = [each for each in session["messages"] if each.get("type") == "tool_call"]
    assert calls
    assert not any(call["is_error"] for call in calls)


def test_an_export_does_not_change(golden: Unpack):
    """A run is exported as version 0.1 exported it, including a body that is stored beside the journal."""
    run = golden("run-api")
    exported = json.loads((run.root / "export.json").read_text())
    assert BIG in json.dumps(exported)
    assert run.run("runs export", "last").json == exported


@each_run
def test_a_run_is_undone_and_applied(golden: Unpack, case: str):
    """`diff` prints the patch that version 0.1 printed; `undo` and `apply` change the workspace accordingly."""
    run = golden(case)
    name, before, after = CHANGES[case]
    file = run.project / name
    assert run.run("diff", "last", "--raw").stdout == (run.root / "changes.patch").read_text()
    assert file.read_text() == after
    run.run("undo", "last")
    assert file.read_text() == before
    run.run("apply", "last")
    assert file.read_text() == after


@each_run
def test_the_session_of_a_run_is_listed_and_shown(golden: Unpack, case: str):
    """`session` has it under the id of the run, with the messages."""
    run = golden(case)
    (row,) = run.run("session ls", "--json").json
    assert (row["session_id"], row["workspace"]) == (run.facts["run"], str(run.project))
    shown = run.run("session show", run.facts["run"]).stdout
    assert [text for text in MESSAGES[case] if text not in shown] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", API)
def test_an_api_session_is_continued(golden: Unpack, case: str):
    """The next request to the model begins with the recorded conversation, which alone selects the scripted reply."""
    run = golden(case)
    replies = sum(event["event"] == "model.replied" for event in run.events("last"))
    turns = [*[{"text": "recorded"}] * replies, {"text": "Continued."}]
    model = run.write_script({"cases": [{"when": ["Correct add"], "turns": turns}]})
    options = ("--sandbox", "bubblewrap", "--model", model, "--verify", "true", "--json")
    events = run.run("run", "And now?", "--continue", *options).json_lines
    texts = [event["content"][-1]["text"] for event in events if event["event"] == "model.replied"]
    assert texts == ["Continued."]


@pytest.fixture
def scripted_apis() -> Iterator[dict[str, str]]:
    """Variables that select the scripted model as the API of both providers; each prompt carries its own script."""
    command = [PYTHON, "-P", "-m", "ringfence.testing.scripted_model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        yield {**API_KEYS, "ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}
        server.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("case", CLIENTS)
def test_a_client_session_is_continued(golden: Unpack, case: str, scripted_apis: dict[str, str]):
    """The real agent CLI finds its own files again: its next request contains the recorded prompt."""
    runtime = case.removeprefix("run-")
    program = find_program("codex" if runtime == "codex-cli" else "claude")
    if runtime == "claude-sdk" and not has_sdk():
        pytest.skip("the Claude Agent SDK is not installed: uv sync --group clients")
    run = golden(case)
    model = "gpt-5.5" if runtime == "codex-cli" else "claude-opus-4-5"
    task = embed_script("And now?", [{"text": "Continued."}])
    options = ("--runtime", runtime, "--cli-path", program, "--model", model, "--verify", "true", "--json")
    events = run.run("run", task, "--continue", *options, variables=scripted_apis).json_lines
    by_name = {event["event"]: event for event in events}
    assert by_name["session.kept"]["session_id"] == run.facts["session"]
    assert "session.lost" not in by_name
    assert "Append a line." in by_name["model.asked"]["request"]
    assert by_name["agent.answered"]["final_text"] == "Continued."


def find_program(client: str) -> Path:
    """The program of an agent CLI; without it the test is skipped, or fails where it is required."""
    directory = os.environ.get("TEST_CLIENTS", "")
    found = next(Path(directory).glob(PROGRAMS[client]), None) if directory else None
    if found is not None:
        return found
    reason = f"TEST_CLIENTS names no directory with {client}; `scripts/clients.sh` makes one"
    if os.environ.get("TEST_REQUIRES_CLIENTS"):
        pytest.fail(reason)
    pytest.skip(reason)


def has_sdk() -> bool:
    """Whether the tested interpreter has the Claude Agent SDK."""
    code = "import importlib.util as u; raise SystemExit(u.find_spec('claude_agent_sdk') is None)"
    return subprocess.run([PYTHON, "-P", "-c", code], check=False).returncode == 0

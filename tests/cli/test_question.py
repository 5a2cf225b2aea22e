"""`ringfence run --ask`: a run that is refused something ends with a question, and can be resumed."""

import os
import pty
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.journal import run_dirs

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow
_FETCH = "echo made > made.txt; curl -sS -m 5 https://api.example.invalid; echo more > more.txt"


@pytest.fixture
def run(ringfence: Cli, workspace: Path) -> Cli:
    """Run a task on a private copy of the workspace."""
    return lambda model, *options: ringfence(
        "run", "go", "-C", workspace, "--mode", "clone", "--no-verify", "--model", model, *options
    )


def _end(events: Cli) -> Any:
    return next(each["data"] for each in events() if each["event"] == "job.ended")


def test_a_refused_host_ends_the_run_with_a_question(run: Cli, script: Cli, says: Cli, events: Cli):
    """At once, with exit code 6; the record has the question, and the terminal the command that resumes the run."""
    ended = run(script(says("fetching", _FETCH), says("never")), "--ask", "host")
    assert ended.code == 6
    run_id = run_dirs()[0].name[-8:]
    assert f"ringfence run --resume {run_id} --allow api.example.invalid:443 continue" in ended.err
    end = _end(events)
    assert (end["state"], end["turns"]) == ("blocked", 1)
    rule = {"host": "api.example.invalid", "port": 443}
    assert end["question"] == {"kind": "host", "rule": rule, "text": "needed"}


def test_without_asking_the_run_goes_past_a_refusal(run: Cli, script: Cli, says: Cli, events: Cli):
    """By default nothing is asked, and there is no proxy that could notice."""
    assert run(script(says("fetching", _FETCH), says("done"))).code == 0
    assert _end(events)["question"] is None


def test_the_command_that_is_printed_resumes_the_run(
    run: Cli, ringfence: Cli, workspace: Path, script: Cli, says: Cli, events: Cli
):
    """With the work so far, and the conversation."""
    ended = run(script(says("fetching", _FETCH), says("never")), "--ask", "host")
    _, _, command = ended.err.strip().splitlines()[-1].rpartition(": ringfence ")
    look = says("looking", "cat made.txt", expect={"messages": 3})
    resumed = script(look, says("done", expect={"last_tool_result": "made"}))
    options = ("-C", workspace, "--mode", "clone", "--no-verify", "--model", resumed)
    assert ringfence(*shlex.split(command), *options).code == 0
    created = next(each["data"] for each in events() if each["event"] == "job.created")
    assert created["configuration"]["egress"]["allow"] == ["api.example.invalid:443"]


def test_the_person_at_the_terminal_allows_it(
    start: Cli, workspace: Path, script: Cli, says: Cli, events: Cli
):
    """The run is resumed at once; both records name the question."""
    model = script(says("one", _FETCH), says("done"))
    mine, theirs = pty.openpty()
    process = start(
        "run", "go", "-C", workspace, "--mode", "clone", "--no-verify", "--model", model, "--ask", "host",
        stdin=theirs, stderr=theirs, stdout=theirs,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while b"or quit (q)?" not in shown:
            shown += os.read(mine, 4096)
        os.write(mine, b"a\n")
        while os.read(mine, 4096):
            pass
    except OSError:  # the terminal is closed
        pass
    os.close(mine)
    assert process.wait(60) == 0, shown
    second, first = (path.name for path in run_dirs()[:2])
    (answered,) = [each["data"] for each in events(second) if each["event"] == "question.answered"]
    assert (answered["question"], answered["rule"]["host"]) == (first, "api.example.invalid")
    (prompt,) = [each["data"]["prompt"] for each in events(second) if each["event"] == "job.created"]
    assert "you may now connect to api.example.invalid:443" in prompt


@pytest.mark.parametrize(
    ("options", "tools", "kind", "rule"),
    [
        (
            ("--allow-tool", "read_file"),
            [{"name": "shell", "input": {"command": "true", "reasoning": "r"}}],
            "tool",
            {"tool": "shell"},
        ),
        ((), [{"name": "ask_person", "input": {"question": "Which?"}}], "question", {}),
        (
            ("--max-tokens", "10"),
            [{"name": "shell", "input": {"command": "true", "reasoning": "r"}}],
            "budget",
            {"limit": "tokens", "to": 10},
        ),
    ],
    ids=["tool", "question", "budget"],
)
def test_other_refusals_are_asked_about(
    run: Cli, script: Cli, says: Cli, events: Cli, options: Any, tools: Any, kind: str, rule: Any
):
    """A withheld tool, the agent's own question, a limit."""
    ended = run(script({"text": "x", "tools": tools}, says("never")), "--ask", kind, *options)
    assert ended.code == 6, ended
    question = _end(events)["question"]
    assert (question["kind"], question["rule"]) == (kind, rule)


def test_a_permitted_tool_may_be_used_though_others_are_allowed(run: Cli, script: Cli, says: Cli):
    """`--permit-tool` adds to `--allow-tool`; `--deny-tool` is stronger."""
    model = script(says("x", "echo hello"), says("done", expect={"last_tool_result": "hello"}))
    allowed = ("--allow-tool", "read_file", "--permit-tool", "shell")
    assert run(model, *allowed).code == 0
    refused = script(says("x", "echo hello"), says("done", expect={"last_tool_result": "there is no tool"}))
    assert run(refused, *allowed, "--deny-tool", "shell").code == 0

"""`ringfence run`: what each way of ending comes to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.journal import run_dirs, runs_dir

Cli = Callable[..., Any]


@pytest.fixture
def run(ringfence: Cli, workspace: Path) -> Cli:
    """Run a task in the workspace."""
    return lambda model, *options: ringfence("run", "do it", "-C", workspace, "--model", model, *options)


@pytest.mark.slow
def test_an_answer_after_which_nothing_is_asked_passes_the_limit(run: Cli, script: Cli, says: Cli):
    """The limit is asked before each request, and a prompt counts when it is answered."""
    assert run(script(says()), "--max-tokens", "10").code == 9
    assert run(script(says("x", "true"), says()), "--max-tokens", "10").code == 5


@pytest.mark.slow
def test_answers_that_broke_off_are_in_the_usage(run: Cli, script: Cli, says: Cli, events: Cli):
    """Their tokens were paid for: a run has used what all its exchanges have, and one turn."""
    run(script({"drop": {"after_events": 3}, "text": "ok", "usage": {"input_tokens": 50}}))
    exchanges = [event["data"] for event in events() if event["event"] == "model.exchanged"]
    (end,) = [event["data"] for event in events() if event["event"] == "job.ended"]
    assert [exchange["turn"] for exchange in exchanges] == [0, 1]
    assert end["turns"] == 1
    assert end["usage"]["input_tokens"] == sum(each["usage"]["input_tokens"] for each in exchanges) > 50


def test_an_unknown_price_refuses_a_cost_limit_before_anything(run: Cli, workspace: Path, tmp_path: Path):
    """No sandbox is opened for a limit that cannot be kept."""
    file = tmp_path / "priceless.yaml"
    file.write_text("turns: [{text: hi}]")
    ended = run(f"scripted:{file}", "--max-cost-usd", "1")
    assert ended.code == 4
    assert run_dirs() == []


@pytest.mark.slow
def test_output_that_is_no_text_is_kept(run: Cli, script: Cli, says: Cli, events: Cli):
    """Bytes that are no UTF-8 break neither journal nor view."""
    ended = run(script(says("x", r"printf '\xff\x00\x1b[31m\xe2\x80\xae'"), says()))
    returned = next(event for event in events() if event["event"] == "tool.returned")
    assert (ended.code, "\ufffd" in json.dumps(returned, ensure_ascii=False)) == (9, True)
    assert r"\x00\x1b[31m\u202e" in ended.err


@pytest.mark.slow
def test_a_read_only_workspace_stays_as_it_is(run: Cli, script: Cli, says: Cli, workspace: Path):
    """Mode read_only is kept by the kernel."""
    ended = run(
        script(says("x", "touch made"), says(expect={"last_tool_result": "Read-only"})), "--mode", "read_only"
    )
    assert (ended.code, (workspace / "made").exists()) == (9, False)


@pytest.mark.slow
def test_every_run_leaves_a_session_file(run: Cli, script: Cli, says: Cli):
    """The record of seed form lies beside the journal."""
    run(script(says("x", "echo hello"), says()))
    path = run_dirs()[0]
    session = json.loads((path / f"{path.name}.json").read_text())
    call = next(message for message in session["messages"] if message.get("type") == "tool_call")
    assert (call["result"]["stdout"], call["reasoning"]) == ("hello\n", "needed")


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--sandbox", "docker"], 2, "needs an image"),
        (["--image", "x:latest"], 4, "'x:latest' is refused"),
    ],
    ids=["none", "latest"],
)
def test_a_wrong_image_is_refused_before_anything(
    ringfence: Cli, workspace: Path, options: list[str], code: int, told: str
):
    """Before a credential is looked for, and without a record."""
    for command in (["run", "x"], ["exec"]):
        ended = ringfence(
            *command, "-C", workspace, *options, *(["--", "true"] if command == ["exec"] else [])
        )
        assert (ended.code, told in ended.err) == (code, True)
    assert not list(runs_dir().glob("*"))

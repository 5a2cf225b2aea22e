"""`ringfence replay` of what was asked through the model gateway: real sandboxes, no model at the second time."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.journal import resolve

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow

ASK = """
import http.client, json, os, sys
base = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://")
def ask(messages, stream):
    connection = http.client.HTTPConnection(base)
    body = {"model": "scripted", "max_tokens": 50, "messages": messages, "stream": stream}
    connection.request("POST", "/v1/messages", json.dumps(body), {"anthropic-version": "2023-06-01"})
    answer = connection.getresponse()
    return f"{answer.status} {answer.read().decode()}"
"""
TWICE = """
first = ask([{"role": "user", "content": "hi"}], False)
print(first)
print(ask([{"role": "user", "content": open("question").read()}], True))
"""


@pytest.fixture
def asking(workspace: Path, start: Cli, script: Cli, says: Cli, tmp_path: Path) -> Cli:
    """Runs a Python program that asks the scripted model from inside; its output and its run. Then the model is gone."""

    def run(code: str, *options: str, turns: int = 2) -> tuple[str, str]:
        (workspace / "question").write_text("what time is it?")
        model = script(*(says(f"answer {number}") for number in range(turns)))
        argv = ["exec", "-C", workspace, "--allow", "model", *options, "--", "python3", "-c", ASK + code]
        process = start(*argv, env={**os.environ, "RINGFENCE_MODEL": model})
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        (tmp_path / "script.yaml").unlink()
        return out.decode(), resolve("last").name

    return run


def test_a_command_that_asked_the_model_is_replayed_without_it(asking: Cli, ringfence: Cli):
    """Both of its requests, a whole answer and a stream; the model is gone by then."""
    out, run = asking(TWICE)
    ended = ringfence("replay", run, "--json")
    told = json.loads(ended.out)
    assert ("answer 0" in out, "event: message_stop" in out, ended.code) == (True, True, 0), ended.err
    assert (told["exchanges"], told["divergence"], told["tolerated"]) == (2, None, [])


def test_a_time_in_a_request_is_tolerated_and_told(asking: Cli, ringfence: Cli):
    """Unless the replay is to be exact."""
    code = """
import datetime
print(ask([{"role": "user", "content": f"it is {datetime.datetime.now().isoformat()}"}], True))
"""
    _, run = asking(code)
    ended, exact = ringfence("replay", run), ringfence("replay", run, "--exact")
    assert (ended.code, "replayed the command and 1 request to the model of" in ended.out) == (0, True), (
        ended.out
    )
    assert "tolerated: request 1 to the model: messages[0].content: line 1 was 'it is 20" in ended.err
    assert (exact.code, "expected was request 1 (/v1/messages)" in exact.out) == (1, True)


def test_another_request_ends_the_replay_at_once(asking: Cli, ringfence: Cli):
    """It is told what was asked, and what was expected; the program does not go on."""
    code = """
ask([{"role": "user", "content": "hi"}], False)
ask([{"role": "user", "content": f"a number: {os.urandom(8).hex()}"}], False)
if not os.path.exists("been-here"):
    print("to the end")
"""
    out, run = asking(code)
    ended = ringfence("replay", run, "--verbose")
    assert "to the end" in out
    assert ended.code == 1
    assert "replayed the command and 1 request to the model" in ended.out
    assert "DIVERGED: a process inside asked the model POST /v1/messages, expected was request 2" in ended.out
    assert "messages[0].content: line 1 was 'a number: " in ended.out
    assert "to the end" not in ended.err


def test_a_request_too_many_has_no_answer(asking: Cli, ringfence: Cli):
    """The record has none left."""
    code = """
for _ in range(1 if "HTTP_PROXY" in os.environ else 2):
    ask([{"role": "user", "content": "hi"}], False)
"""
    _, run = asking(code, "--allow", "example.org")
    ended = ringfence("replay", run)
    assert (ended.code, "and the record has no further request" in ended.out) == (1, True), ended.out


def test_a_request_that_is_not_made_again_is_a_divergence(asking: Cli, ringfence: Cli):
    """Even where the command printed the same."""
    code = """
if "HTTP_PROXY" in os.environ:
    ask([{"role": "user", "content": "hi"}], False)
"""
    _, run = asking(code, "--allow", "example.org")
    ended = ringfence("replay", run)
    assert ended.code == 1
    assert "request 1 to the model (POST /v1/messages) was not made again" in ended.out


def test_output_that_differs_is_a_divergence(asking: Cli, ringfence: Cli):
    """With the line."""
    _, run = asking("print(os.urandom(8).hex())")
    ended = ringfence("replay", run)
    assert (ended.code, "DIVERGED: the command's stdout: line 1 was '" in ended.out) == (1, True)


def test_what_a_limit_cut_off_is_cut_off_again(asking: Cli, ringfence: Cli):
    """The same requests are refused, with the same words."""
    code = """
print(ask([{"role": "user", "content": "hi"}], True))
print(ask([{"role": "user", "content": "more"}], True)[:3])
"""
    with pytest.raises(AssertionError, match="limit"):
        asking(code, "--max-tokens", "5")
    run = resolve("last").name
    ended = ringfence("replay", run)
    assert (ended.code, "the same; the record ends there (limit: " in ended.out) == (0, True), ended.out


def test_commands_of_an_agent_ask_the_recorded_model(
    workspace: Path, ringfence: Cli, script: Cli, says: Cli, tmp_path: Path
):
    """Its own loop from the replies of the record, and what its tools start from the exchanges."""
    (workspace / "ask.py").write_text(ASK + 'print(ask([{"role": "user", "content": "hi"}], True))\n')
    model = script(says("let me see", "python3 ask.py"), says("from inside"), says("done"))
    ended = ringfence(
        "run", "x", "-C", workspace, "--model", model, "--allow", "model", "--max-tokens", "9000"
    )
    assert ended.code == 0, ended.err
    (tmp_path / "script.yaml").unlink()
    again = ringfence("replay", "last")
    assert (again.code, "replayed 2 turns and 1 request to the model of" in again.out) == (0, True), again.out


def test_a_command_with_a_secret_in_it_is_not_executed(
    start: Cli, workspace: Path, ringfence: Cli, monkeypatch: pytest.MonkeyPatch
):
    """The record does not hold it, and what is left is another command."""
    monkeypatch.setenv("MY_API_TOKEN", "a-secret-of-some-length-4711")
    process = start("exec", "-C", workspace, "--", "echo", "a-secret-of-some-length-4711")
    process.communicate(timeout=60)
    run = resolve("last").name
    ended = ringfence("replay", run)
    assert (ended.code, "has a secret in it" in ended.err) == (1, True), ended.err

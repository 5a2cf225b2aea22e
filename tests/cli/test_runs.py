"""`ringfence runs`: labels, the summary of a run, its events, and the removal of records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.journal import run_dirs

Cli = Callable[..., Any]


@pytest.fixture
def runs(start: Cli, workspace: Path) -> list[str]:
    """The ids of two runs, the newer one first: it has labels and made a file."""
    labels = ("--label", "team=core", "--label", "ticket=12")
    for words in (("--", "true"), (*labels, "--", "touch", "made")):
        assert start("exec", "-C", workspace, *words).wait(timeout=60) == 0
    return [path.name for path in run_dirs()]


@pytest.mark.slow
def test_labels_select_runs(ringfence: Cli, runs: list[str]) -> None:
    """All that are named must be there; the summary shows them."""
    listed = json.loads(ringfence("runs", "ls", "--label", "team=core", "--json").out)
    assert [run["id"] for run in listed] == runs[:1]
    assert listed[0]["labels"] == {"team": "core", "ticket": "12"}
    assert ringfence("runs", "ls", "--label", "team=core", "--label", "ticket=13").out == ""
    assert "team=core, ticket=12" in ringfence("runs", "show").out
    assert "KEY" not in ringfence("runs", "ls", "--label", "team").out


@pytest.mark.slow
def test_show_is_a_summary(ringfence: Cli, runs: list[str]) -> None:
    """State, changes, files and where the events are; as JSON, too."""
    shown = ringfence("runs", "show").out
    assert f"run:        {runs[0]}\n" in shown
    assert "1 file changed, +0 -0" in shown
    assert "journal.jsonl" in shown
    found = json.loads(ringfence("runs", "show", runs[0], "--json").out)
    assert (found["state"], found["changes"]["files_changed"], found["is_sealed"]) == ("succeeded", 1, True)


@pytest.mark.slow
def test_show_tells_what_a_run_used(ringfence: Cli, workspace: Path, script: Cli, says: Cli) -> None:
    """Turns, tokens, cost, and the exit code of the check; of a command its own."""
    model = script(says("x", "true"), says())
    ringfence("run", "x", "-C", workspace, "--model", model, "--verify", "exit 3")
    found = json.loads(ringfence("runs", "show", "--json").out)
    assert (found["turns"], found["check_exit_code"], found["command_exit_code"]) == (2, 3, None)
    read, written = found["usage"]["input_tokens"], found["usage"]["output_tokens"]
    shown = ringfence("runs", "show").out
    assert (
        f"used:       2 turns, 1 tool call, {read + written:,} tokens ({read:,} input, {written:,} output), $"
        in shown
    )
    assert "check:      exit code 3: exit 3" in shown


@pytest.mark.slow
def test_show_has_the_exit_code_of_a_command(ringfence: Cli, start: Cli, workspace: Path) -> None:
    """What the command of `exec` ended with, which `exec` passes through; not that of its set-up."""
    assert start("exec", "-C", workspace, "--setup", "true", "--", "sh", "-c", "exit 7").wait(timeout=60) == 7
    assert json.loads(ringfence("runs", "show", "--json").out)["command_exit_code"] == 7
    assert "command:    exit code 7" in ringfence("runs", "show").out


@pytest.mark.slow
def test_the_list_has_a_header_and_the_workspaces(ringfence: Cli, runs: list[str], workspace: Path) -> None:
    """Also where it is no terminal; `--json` has the workspace as well."""
    header, newest, _ = ringfence("runs", "ls").out.splitlines()
    assert header.split() == ["run", "state", "time", "workspace", "task"]
    assert newest.startswith(f"{runs[0]}  succeeded  ")
    assert f"  {workspace}  touch made" in newest
    assert json.loads(ringfence("runs", "ls", "--json").out)[0]["workspace"] == str(workspace)


@pytest.mark.slow
def test_a_list_that_is_cut_says_so(ringfence: Cli, runs: list[str]) -> None:
    """On stderr, with the option that shows all."""
    cut, full = ringfence("runs", "ls", "-n", "1"), ringfence("runs", "ls", "-n", "2")
    assert (cut.err, full.err) == ("1 of 2 runs; `-n 2` shows all\n", "")
    assert ringfence("runs", "ls", "--label", "team=core", "-n", "1").err == ""


@pytest.mark.slow
def test_logs_are_the_events_of_the_newest_run_here(
    ringfence: Cli, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--all` of the newest run anywhere; a run that has ended is followed to its end."""
    for words in (["logs"], ["logs", "-f"]):
        lines = ringfence("runs", *words, "--json").out.splitlines()
        assert [json.loads(lines[1])["data"]["job_id"], json.loads(lines[-1])["event"]] == [
            runs[0],
            "journal.sealed",
        ]
    monkeypatch.chdir(tmp_path)
    assert ringfence("runs", "logs").code == 2
    assert runs[0] in ringfence("runs", "show", "--all").out
    assert runs[0] in ringfence("diff", "--all").err
    assert f'"{runs[0]}"' in ringfence("runs", "export", "--all").out


@pytest.mark.slow
def test_a_record_is_removed_when_that_is_confirmed(ringfence: Cli, runs: list[str]) -> None:
    """Without an answer nothing is removed; the other runs stay."""
    assert ringfence("runs", "rm", runs[1]).code != 0
    assert len(run_dirs()) == 2
    ended = ringfence("runs", "rm", runs[1], "--yes", "--json")
    assert (ended.code, json.loads(ended.out)["removed"]) == (0, [runs[1]])
    assert [path.name for path in run_dirs()] == runs[:1]
    assert ringfence("runs", "rm", runs[1], "--yes").code == 2

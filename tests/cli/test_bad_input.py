"""What a user can do wrong: one line on stderr and the documented exit code, never a traceback."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.config.paths import user_config_file

Cli = Callable[..., Any]


def _is_told(ended: Any, code: int, *words: str) -> bool:
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.count("\n") == 1, ended.err
    assert ended.err.startswith("ringfence: ")
    return all(word in ended.err for word in words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sandbox", "moat"], ["--sandbox: 'moat' is not one of", "'bubblewrap'"]),
        (["--toolset", "everything"], ["--toolset", "everything"]),
        (["--colour"], ["--colour", "ringfence run --help"]),
        (["--memory", "lots"], ["--memory", "'lots'"]),
        (["--max-turns", "0"], ["--max-turns"]),
        (["--cpus", "many"], ["--cpus", "'many'"]),
        (["--pids=few"], ["--pids", "'few'"]),
        (["--mode", "naked"], ["--mode", "naked"]),
        (["--env", "TOKEN"], ["--env", "'TOKEN'", "NAME=VALUE"]),
        (["--label", "team"], ["--label", "'team'", "KEY=VALUE"]),
        (
            ["--runtime", "cluade"],
            ["--runtime", "'cluade'", "api, claude, claude-sdk, codex", "mean 'claude'?"],
        ),
        (["--model", "scriptd:x"], ["--model", "'scriptd:'", "mean 'scripted:x'?"]),
        (["--verify", " "], ["--verify", "empty"]),
        (["--timeout", "soon"], ["--timeout", "'soon'"]),
    ],
    ids=lambda value: value[0] if value[0].startswith("--") else "",
)
def test_an_option_that_makes_no_sense(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, options: list[str], words: list[str]
):
    """Usage errors exit 2 and name option and value."""
    model = script(says())
    ended = ringfence("run", "x", "-C", workspace, "--model", model, *options)
    assert _is_told(ended, 2, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--allow-tool", "read"], ["--allow-tool: the agent has no tool 'read'", "'read_file'", "it has: "]),
        (["--deny-tool", "zzz"], ["--deny-tool: the agent has no tool 'zzz'; it has: edit_file, list_files"]),
        (["--runtime", "claude", "--deny-tool", "Bsh"], ["--deny-tool: claude has no tool 'Bsh'", "'Bash'"]),
    ],
)
def test_a_tool_that_the_agent_does_not_have(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, options: list[str], words: list[str]
):
    """It is found before a run begins, whoever has the tools; the answer lists them."""
    ended = ringfence("run", "x", "-C", workspace, "--model", script(says()), *options)
    assert _is_told(ended, 2, *words)
    assert ringfence("runs", "ls").out == ""


def test_a_tool_in_a_file_that_the_agent_does_not_have(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli
):
    """It is an error of the configuration, at its place."""
    (workspace / "ringfence.yaml").write_text("tools:\n  deny: [shel]\n")
    ended = ringfence("run", "x", "-C", workspace, "--model", script(says()))
    assert _is_told(ended, 78, "ringfence.yaml:2:9: tools.deny: the agent has no tool 'shel'", "'shell'")


def test_a_schema_that_a_file_names_and_that_is_not_there(ringfence: Cli, workspace: Path):
    """It is an error of the configuration, at the place that names it; of the command line it would be usage."""
    user = user_config_file()
    user.parent.mkdir(parents=True, exist_ok=True)
    user.write_text("run: {output_schema: /nowhere.json}\n")
    ended = ringfence("run", "x", "-C", workspace, "--model", "scripted:x")
    assert _is_told(ended, 2, "--model 'x'")
    ended = ringfence("run", "x", "-C", workspace)
    assert _is_told(ended, 78, "ringfence.yaml:1:22: run.output_schema: ", "/nowhere.json")


def test_a_time_that_is_none_is_told_once(ringfence: Cli):
    """With its option."""
    ended = ringfence("gc", "--older-than", "soon")
    assert _is_told(ended, 2, "--older-than: 'soon' is not a duration")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--baseline maybe", "--baseline: 'maybe' is not one of 'record', 'refuse'"),
        ("--baseline=maybe", "--baseline: 'maybe' is not one of 'record', 'refuse'"),
        ("--attempts few", "--attempts: 'few': write a whole number"),
        ("--max-cost-usd much", "--max-cost-usd: 'much': write a number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_those_that_do(ringfence: Cli, option: str, told: str):
    """In one wording, whoever found it."""
    ended = ringfence("loop", "start", "--prd", "prd.json", *option.split())
    assert (ended.code, ended.err) == (2, f"ringfence: {told}; see `ringfence loop start --help`\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("runs ls -n x", "--limit: 'x': write a whole number"),
        ("runs ls -n -1", "--limit: '-1': it must be at least 1"),
        ("runs ls -n0", "--limit: '0': it must be at least 1"),
        ("runs ls --limit=1.5", "--limit: '1.5': write a whole number"),
        ("fleet schedules next a/b -n 5000", "--limit: '5000': it must be at most 1000"),
        ("sandbox forward box http", "PORT: 'http': write a whole number"),
        ("sandbox forward box 99999", "PORT: '99999': it must be at most 65535"),
    ],
)
def test_a_number_out_of_range_is_described_in_our_words(ringfence: Cli, words: str, problem: str):
    """One line with the option, the value and the bound."""
    ended = ringfence(*words.split())
    assert (ended.code, ended.out, ended.err.partition("; see ")[0]) == (2, "", f"ringfence: {problem}")


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:8080", "http://x/?key=1"])
@pytest.mark.parametrize(
    "command", [["run", "x"], ["exec", "--allow", "model", "--", "true"]], ids=["run", "exec"]
)
def test_a_base_url_that_is_none(
    ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], url: str
):
    """It is told with the variable that holds it, before a run is made."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
    name, *rest = command
    assert _is_told(
        ringfence(name, "-C", workspace, *rest), 2, repr(url), "ANTHROPIC_BASE_URL", "https://host"
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("fleet up", ["no ringfence.yaml in", "`ringfence init` writes one"]),
        ("fleet up --file fleet.yml", ["--file 'fleet.yml'", "did you mean 'fleet.yaml'?"]),
        ("fleet validate --file other", ["--file 'other'", "name an existing file"]),
    ],
    ids=["none", "misspelled", "absent"],
)
def test_a_fleet_without_a_file(
    ringfence: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: list[str]
):
    """The place is named, and what to do."""
    (tmp_path / "fleet.yaml").write_text("agents: {}\n")
    monkeypatch.chdir(tmp_path)
    assert _is_told(ringfence(*command.split()), 2, *words)


def test_init_keeps_an_existing_file(ringfence: Cli, tmp_path: Path):
    """The second call names the file and the option that overwrites it."""
    assert ringfence("init", tmp_path).code == 0
    assert _is_told(
        ringfence("init", tmp_path), 2, str(tmp_path / "ringfence.yaml"), "exists already", "--force"
    )


def test_no_task(ringfence: Cli, workspace: Path):
    """The task is given once."""
    assert _is_told(ringfence("run", "-C", workspace), 2, "PROMPT")


def test_a_task_without_quotes(ringfence: Cli, workspace: Path):
    """What is to be done is told, not only that there are too many words."""
    assert _is_told(ringfence("run", "fix", "the", "tests"), 2, "the tests", "in quotes")


def test_an_unknown_command(ringfence: Cli):
    """So is a command that is not there."""
    assert _is_told(ringfence("dance"), 2, "dance")


def test_a_workspace_that_is_not_there(ringfence: Cli, tmp_path: Path):
    """The path is named."""
    assert _is_told(ringfence("run", "x", "-C", tmp_path / "gone"), 2, "gone", "--workspace")


def test_a_workspace_that_is_a_loop(ringfence: Cli, tmp_path: Path):
    """A link to itself is no directory."""
    (tmp_path / "loop").symlink_to("loop")
    assert _is_told(ringfence("run", "x", "-C", tmp_path / "loop"), 2, "loop")


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_workspace_that_cannot_be_read(ringfence: Cli, workspace: Path, script: Cli, says: Cli):
    """Permissions are the user's to mend."""
    workspace.chmod(0)
    assert ringfence("run", "x", "-C", workspace, "--model", script(says())).code in (1, 2)
    workspace.chmod(0o700)


@pytest.mark.parametrize("place", ["/", "~"], ids=["root", "home"])
def test_a_workspace_that_is_refused(ringfence: Cli, script: Cli, says: Cli, place: str):
    """/ and home are refused by policy, in a record."""
    ended = ringfence("run", "x", "-C", Path(place).expanduser(), "--model", script(says()))
    assert (ended.code, "refused: workspace" in ended.err) == (4, True)


def test_no_key(ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """The three ways to give one are named, and nothing is made."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC", "CLAUDE")):
            monkeypatch.delenv(name)
    words = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"]
    assert _is_told(ringfence("run", "x", "-C", workspace, "--model", "claude-sonnet-5-5"), 77, *words)


def test_bad_yaml(ringfence: Cli, workspace: Path):
    """File, line and column."""
    (workspace / "ringfence.yaml").write_text("run:\n  model: [a\n")
    ended = ringfence("run", "x", "-C", workspace)
    assert _is_told(ended, 78, "ringfence.yaml:")


def test_a_bad_limit_in_a_file(ringfence: Cli, workspace: Path):
    """`memory: lots` is found where it stands."""
    (workspace / "ringfence.yaml").write_text("sandbox:\n  memory: lots\n")
    assert _is_told(ringfence("run", "x", "-C", workspace), 78, "ringfence.yaml:2:", "'lots'")


def test_a_name_of_an_mcp_server_that_no_tool_can_have(
    ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is refused where it is written."""
    monkeypatch.setenv("RINGFENCE_TOOLS__MCP", '[{"name": "a__b", "command": ["x"]}]')
    assert _is_told(ringfence("run", "x", "-C", workspace, "--model", "scripted:x"), 78, "a__b")


def test_a_script_that_is_not_there(ringfence: Cli, workspace: Path):
    """The model's script is read before a sandbox is opened."""
    assert _is_told(
        ringfence("run", "x", "-C", workspace, "--model", "scripted:/nowhere.yaml"),
        2,
        "--model '/nowhere.yaml'",
    )


@pytest.mark.parametrize("command", [["diff"], ["undo"], ["apply"], ["runs", "logs", "last"]], ids=" ".join)
def test_a_run_that_is_not_there(ringfence: Cli, command: list[str]):
    """The way to the list is named."""
    assert _is_told(ringfence(*command), 2, "runs ls")


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_state_directory_that_cannot_be_written(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The machine is to be mended: 75."""
    (tmp_path / "locked").mkdir(mode=0o500)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "locked" / "state"))
    assert _is_told(ringfence("run", "x", "-C", workspace, "--model", script(says())), 75, "locked")


def test_a_state_directory_that_is_a_file(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also told in a line."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "file"))
    assert _is_told(ringfence("run", "x", "-C", workspace, "--model", script(says())), 75, "file")


@pytest.mark.slow
def test_a_sandbox_that_cannot_be_opened(ringfence: Cli, workspace: Path, script: Cli, says: Cli):
    """Its exit code is 125, and there is a record."""
    ended = ringfence(
        "run", "x", "-C", workspace, "--model", script(says()), "--setup", "echo no >&2; exit 7"
    )
    assert (ended.code, "sandbox_start: set-up command" in ended.err) == (125, True)


@pytest.mark.parametrize("age", ["0", "0s", "0.0h"])
def test_an_age_of_nothing(ringfence: Cli, age: str):
    """The shortest one is told."""
    assert _is_told(ringfence("gc", "--older-than", age), 2, f"'{age}'", "1ms")


@pytest.mark.slow
def test_a_file_that_cannot_be_written(ringfence: Cli, workspace: Path, script: Cli, says: Cli):
    """The disk is not blamed for a directory that is not there."""
    ringfence("run", "x", "-C", workspace, "--model", script(says()))
    ended = ringfence("runs", "export", "last", "-o", "/nope/x.json")
    assert _is_told(ended, 75, "/nope/x.json", "check the path")
    assert "free some space" not in ended.err


def test_a_state_directory_that_cannot_be_made(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The variable that moves it is named."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "file" / "state"))
    assert "RINGFENCE_STATE_DIR" in ringfence("run", "x", "-C", workspace, "--model", script(says())).err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runtime", "claude-cli", "--cli-arg=--resume"], ["'--resume'", "ringfence run --continue"]),
        (["--runtime", "codex-cli", "--cli-arg=--json"], ["'--json'"]),
        (
            ["--runtime", "claude-cli", "--permission-mode", "bypass", "--allow-tool", "Bash(git log:*)"],
            ["'Bash(git log:*)'", "--allow-tool", "--permission-mode"],
        ),
    ],
    ids=["session", "output", "pattern"],
)
def test_a_client_that_cannot_be_started_so_is_refused_before_anything(
    ringfence: Cli, workspace: Path, options: list[str], words: list[str]
):
    """Nothing is made for it, and whether it is installed is no matter."""
    assert _is_told(ringfence("run", "go", "-C", workspace, *options), 2, *words)
    assert ringfence("runs", "ls").out == ""

"""`ringfence claude` and `ringfence codex`, as far as they go without the programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from ringfence.cli.app import app
from ringfence.cli.run.agent_cli import AgentCliCommand, misplaced, misplaced_option_lines

Cli = Callable[..., Any]
_ROOT: Any = get_command(app)
COMMANDS: dict[str, Any] = {name: _ROOT.get_command(None, name) for name in ("claude", "codex")}
OURS = [["-C", "/x"], ["-C/x"], ["--memory", "4g"], ["--memory=4g"], ["--soft-limits"], ["-e", "A=B"]]


def _parsed(name: str, words: list[str]) -> dict[str, Any]:
    command = COMMANDS[name]
    assert isinstance(command, AgentCliCommand)
    context = typer.Context(command, info_name=name)
    command.parse_args(context, list(words))
    return {**context.params, "args": list(context.params["args"] or ())}


@pytest.mark.parametrize(
    "words", [["--continue"], ["-p", "--model", "opus"], ["do it"], ["--", "--help"], ["-c"], []]
)
@pytest.mark.parametrize("ours", OURS, ids=" ".join)
def test_what_follows_our_options_is_the_clients(ours: list[str], words: list[str]):
    """Also what we have an option of the same name for; -- is ours, once."""
    assert _parsed("claude", [*ours, *words])["args"] == (words[1:] if words[:1] == ["--"] else words)


@pytest.mark.parametrize(
    ("name", "words", "found"),
    [
        ("claude", ["--permission-mode", "default", "--memory", "1g", "--memory=2g"], ["--memory"]),
        ("claude", ["--model", "opus", "-p", "memory"], []),
        ("claude", ["-p", "--", "--memory"], []),
        ("codex", ["--sandbox", "read-only", "--cpus=1"], ["--cpus"]),
    ],
)
def test_an_option_of_ours_that_came_too_late_is_found(name: str, words: list[str], found: list[str]):
    """Not one that the client has as well, nor what is no option."""
    assert misplaced(COMMANDS[name].params, name, words) == found


def test_an_option_of_ours_is_told_where_the_client_refused_its_arguments():
    """Its own error does not say whose it is; a client that worked took all of them."""
    assert misplaced_option_lines("claude", ["--memory"], 1) == [
        "--memory is an option of ringfence and must come first: ringfence claude --memory ..."
    ]
    assert "--cpus, --pids are options" in misplaced_option_lines("codex", ["--cpus", "--pids"], 2)[0]
    assert [misplaced_option_lines("claude", ["--memory"], code) for code in (0, 130, None)] == [[], [], []]
    assert misplaced_option_lines("claude", [], 1) == []


def test_no_usage_has_brackets_in_brackets():
    """Whoever reads it should see what may be left out."""

    def usages(command: Any, context: typer.Context) -> list[str]:
        names = command.list_commands(context) if hasattr(command, "list_commands") else []
        below = {name: command.get_command(context, name) for name in names}
        own = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        deeper = (
            usages(each, typer.Context(each, info_name=name, parent=context)) for name, each in below.items()
        )
        return [own, *(usage for several in deeper for usage in several)]

    root = get_command(app)
    found = usages(root, typer.Context(root, info_name="ringfence"))
    assert "ringfence claude [OPTIONS] [ARGS]..." in found
    assert [usage for usage in found if "[[" in usage or "]...]" in usage] == []


@given(st.lists(st.text(max_size=12), max_size=6))
def test_every_word_after_the_two_dashes_is_the_clients(words: list[str]):
    """As it is."""
    assert _parsed("codex", ["--memory", "4g", "--", *words])["args"] == words


def test_our_options_are_ours():
    """In any number, in any of their spellings."""
    words = [word for option in OURS for word in option]
    params = _parsed("claude", [*words, "resume", "--memory", "9g"])
    assert (params["memory"], params["soft_limits"], params["env"]) == ("4g", True, ["A=B"])
    assert params["args"] == ["resume", "--memory", "9g"]


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_help_is_ours_and_says_how_to_get_the_clients(ringfence: Cli, name: str):
    """Both are there."""
    ended = ringfence(name, "--help")
    assert (ended.code, f"ringfence {name} -- --help" in " ".join(ended.out.split())) == (0, True)


def test_without_a_terminal_it_is_refused(ringfence: Cli, workspace: Path):
    """What is for scripts is named."""
    ended = ringfence("claude", "-C", workspace)
    assert (ended.code, "ringfence run --runtime claude-cli" in ended.err) == (2, True)

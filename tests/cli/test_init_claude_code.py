"""`ringfence init --claude-code`: what it prints, and which options go together."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_it_says_what_it_did_and_how_to_undo_it(ringfence: Cli, tmp_path: Path):
    """Files, what is denied and allowed, where it counts, and the way back, which prints what it removed."""
    project = tmp_path / "project"
    project.mkdir()
    ended = ringfence("init", "--claude-code", project)
    assert (ended.code, ended.out) == (0, "")
    first, local, second, *extra, denied, allowed, start, undo = ended.err.splitlines()
    assert len(extra) == (find_spec("mcp") is None)
    assert all("pip install 'ringfence[mcp]'" in line for line in extra)
    assert (first, second) == (f"wrote {project}/.claude/settings.json", f"wrote {project}/.mcp.json")
    assert local == f"wrote {project}/.claude/settings.local.json"
    assert denied.startswith("denied: every tool of claude's own")
    assert allowed.startswith("allowed: the tools of `ringfence mcp`")
    assert "--allowedTools mcp__ringfence" in start
    assert undo == "take it back with `ringfence init --claude-code --remove`"
    assert "nothing to change" in ringfence("init", "--claude-code", project).err
    removed = ringfence("init", "--claude-code", "--remove", project)
    assert removed.err.splitlines() == [
        f"removed {project}/.claude/settings.json",
        f"removed {project}/.claude/settings.local.json",
        f"removed {project}/.mcp.json",
    ]
    assert ringfence("init", "--claude-code", "--remove", project).err.startswith("nothing to remove")
    assert [*project.iterdir()] == []


def test_hooks_of_the_project_are_shown(ringfence: Cli, tmp_path: Path):
    """They run on this machine, whatever claude's tools do; their names are harmless for the terminal."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.local.json").write_text('{"hooks": {"Stop": []}, "\\u001b[2J": 1}')
    printed = ringfence("init", "--claude-code", tmp_path).err
    assert "also in effect: hooks, \\x1b[2J in " in printed


@pytest.mark.parametrize("options", [("--remove",), ("--claude-code", "--remove", "--force")])
def test_options_that_do_not_go_together(ringfence: Cli, tmp_path: Path, options: tuple[str, ...]):
    """An option without effect is an error."""
    ended = ringfence("init", *options, tmp_path)
    assert ended.code == 2
    assert "--remove goes with --claude-code only, and without --force" in ended.err


def test_a_file_that_is_not_json_is_named(ringfence: Cli, tmp_path: Path):
    """With its place, and the exit code of a configuration file."""
    (tmp_path / ".mcp.json").write_text('{"mcpServers": }')
    ended = ringfence("init", "--claude-code", tmp_path)
    assert ended.code == 78
    assert f"{tmp_path}/.mcp.json:1:16: it is not JSON: Expecting value; correct it" in ended.err
    assert not (tmp_path / ".claude").exists()

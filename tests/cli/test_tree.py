"""The tree of commands: what help shows without an import, one grammar, and the names of version 0.1."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from ringfence.cli.app import app
from ringfence.cli.tree import COMMANDS, GROUPS, RENAMED, SECTIONS

Cli = Callable[..., Any]
_ROOT: Any = typer.main.get_command(app)
_BUDGET = tomllib.loads((Path(__file__).parent / "import_budget.toml").read_text())


def _command(path: str) -> Any:
    found = _ROOT
    for name in path.split():
        found = found.get_command(None, name)
    return found


@pytest.mark.parametrize("path", COMMANDS)
def test_a_help_line_is_the_commands_own(path: str) -> None:
    """What a list of commands says is what the command says first."""
    assert _command(path).help.partition("\n")[0] == COMMANDS[path].summary


@pytest.mark.parametrize(
    "line", [*GROUPS.values(), *(entry.summary for entry in COMMANDS.values())], ids=lambda line: line
)
def test_a_help_line_is_a_sentence_that_fits(line: str) -> None:
    """At most 60 characters, so that no terminal cuts it."""
    assert re.fullmatch(r"[A-Z].{5,58}\.", line)


def test_help_has_at_most_25_entries_under_headings(ringfence: Cli) -> None:
    """Every name of the table is there, and nothing else."""
    names = [name for names in SECTIONS.values() for name in names]
    assert set(names) == {path.split()[0] for path in COMMANDS}
    assert len(names) <= 25
    shown = ringfence("--help").out
    assert re.findall(r"^  ([a-z]+)  ", shown, re.MULTILINE) == names
    assert max(map(len, shown.splitlines())) <= 78


def test_every_group_is_described() -> None:
    """Each word above a command is a group."""
    assert {path.rpartition(" ")[0] for path in COMMANDS} - {""} | {"fleet", "config"} == set(GROUPS)


@pytest.mark.parametrize("old", RENAMED)
def test_an_old_name_answers_with_the_new_one(old: str, ringfence: Cli) -> None:
    """The message names both, and nothing is run."""
    ended = ringfence(*old.split(), "--json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"ringfence: `ringfence {old}")
    assert f"is now `ringfence {RENAMED[old]}" in ended.err


def test_an_old_name_keeps_the_word_after_it(ringfence: Cli) -> None:
    """The answer can be typed as it stands."""
    err = ringfence("audit", "ls", "-n", "3").err
    assert err == "ringfence: `ringfence audit ls` is now `ringfence runs ls`\n"


def test_a_misspelled_name_is_answered_with_near_ones(ringfence: Cli) -> None:
    """Also below a name."""
    assert "Did you mean 'doctor'?" in ringfence("docter").err
    assert "Did you mean 'verify'?" in ringfence("runs", "verfy").err


def _parameters(path: str) -> Iterator[tuple[str, Any]]:
    for parameter in _command(path).params:
        yield from ((option, parameter) for option in (*parameter.opts, *parameter.secondary_opts))


@pytest.mark.parametrize("path", COMMANDS)
def test_short_options_mean_the_same_everywhere(path: str) -> None:
    """`-n` is --limit, `-f` is --follow, `-C` is --workspace."""
    meanings = {"-n": "--limit", "-f": "--follow", "-C": "--workspace"}
    for option, parameter in _parameters(path):
        if option in meanings:
            assert meanings[option] in parameter.opts


@pytest.mark.parametrize("path", [path for path in COMMANDS if path.endswith(" ls")])
def test_every_list_prints_json(path: str) -> None:
    """A program reads what a person reads."""
    assert "--json" in dict(_parameters(path))


_COUNT = """
import atexit, json, sys
def count():
    open({file!r}, "w").write(json.dumps(sorted(sys.modules)))
atexit.register(count)
from ringfence.cli import main
sys.argv = ["ringfence", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", _BUDGET)
def test_a_command_imports_no_more_than_its_budget(
    name: str, workspace: Path, script: Callable[..., str], says: Callable[..., Any], tmp_path: Path
) -> None:
    """Start-up time is imports; what a command does not use is not imported."""
    row, file = _BUDGET[name], tmp_path / "modules"
    words = [word.replace("SCRIPT", script(says("done"))) for word in row["words"]]
    command = [sys.executable, "-c", _COUNT.format(file=str(file)), *words]
    done = subprocess.run(command, cwd=workspace, capture_output=True, text=True, check=False)
    assert done.returncode in row.get("codes", [0]), done.stderr
    modules = json.loads(file.read_text())
    tops = {module.partition(".")[0] for module in modules} | set(modules)
    assert tops & set(row["never"]) == set()
    assert len(modules) <= row["modules"]

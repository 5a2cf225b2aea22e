"""The skill teaches what is there: its commands, their options, the exit codes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from ringfence.cli.app import app

SKILL = Path(__file__).resolve().parent.parent.parent / "skills" / "ringfence" / "SKILL.md"
TEXT = SKILL.read_text()
EXIT_CODES = SKILL.parents[2] / "docs" / "reference" / "exit-codes.md"


def lines() -> Iterator[str]:
    """Every command of ringfence that the skill shows, in a block or in a line."""
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("ringfence "))
    without_blocks = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    yield from (span for span in re.findall(r"`([^`]+)`", without_blocks) if span.startswith("ringfence "))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the first words name, and the words after it."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="ringfence")
    while words and hasattr(command, "get_command"):
        name, *words = words
        below = command.get_command(context, name)
        assert below is not None, f"there is no command {name!r} in {context.command_path!r}"
        assert not below.hidden
        command, context = below, typer.Context(below, info_name=name, parent=context)
    return command, words


def options_of(command: Any) -> set[str]:
    """All that a command takes, and `--help`."""
    return {name for parameter in command.params for name in parameter.opts if name.startswith("-")} | {
        "--help"
    }


@pytest.mark.parametrize("line", sorted(set(lines())))
def test_a_command_that_the_skill_shows_is_there(line: str):
    """With every option it is shown with."""
    words = shlex.split(line, comments=True)[1:]
    mine = words[: words.index("--")] if "--" in words else words
    command, rest = command_of(mine)
    given = {word.split("=")[0] for word in rest if word.startswith("-")}
    assert given <= options_of(command)


def test_an_option_that_the_skill_speaks_of_is_there():
    """Of `run`, `exec` or a command of a group, wherever the text stands."""
    options = set(re.findall(r"`(--[a-z-]+)[^`]*`", TEXT))
    known: set[str] = set()
    for line in lines():
        words = shlex.split(line, comments=True)[1:]
        known |= options_of(command_of(words[: words.index("--")] if "--" in words else words)[0])
    assert options
    assert options <= known


def test_the_exit_codes_are_those_of_a_run():
    """All of them, with their states."""

    def table(text: str, state: int, code: int) -> set[tuple[str, str]]:
        rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
        return {
            (name, row[code].strip())
            for row in rows
            if row[code].strip().isdecimal()
            for name in re.findall(r"`([a-z_]+)`", row[state])
        }

    real = table(EXIT_CODES.read_text().split("## By code")[0], 0, 1)
    assert len(real) > 10
    assert table(TEXT.split("## Exit codes")[1].split("\n## ")[0], 1, 0) == real


def test_an_agent_finds_out_when_to_use_it():
    """The front matter has a name, that of its directory, and a description that fits."""
    from ringfence.config.yaml import parse_document

    _, front, _ = TEXT.split("---\n", 2)
    values = parse_document(front.encode(), SKILL).values
    assert set(values) == {"name", "description"}
    assert values["name"] == SKILL.parent.name
    assert 100 < len(values["description"]) <= 1024
    assert TEXT.count("\n") < 200

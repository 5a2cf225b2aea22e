"""The skill teaches what is there: its commands, their options, the exit codes."""

import re
from pathlib import Path

import pytest
from tests.shown_commands import command_of, commands_in, fault_of, options_of

SKILL = Path(__file__).resolve().parent.parent.parent / "skills" / "ringfence" / "SKILL.md"
TEXT = SKILL.read_text()
EXIT_CODES = SKILL.parents[2] / "docs" / "reference" / "exit-codes.md"


@pytest.mark.parametrize("line", commands_in(TEXT))
def test_a_command_that_the_skill_shows_is_there(line: str):
    """With every option it is shown with."""
    assert fault_of(line) == ""


def test_an_option_that_the_skill_speaks_of_is_there():
    """Of `run`, `exec` or a command of a group, wherever the text stands."""
    options = set(re.findall(r"`(--[a-z-]+)[^`]*`", TEXT))
    known: set[str] = set()
    for line in commands_in(TEXT):
        known |= options_of(command_of(line)[0])
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

"""A command in a standing sandbox starts quickly: what is plain is read without the command line's library."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.cli.quick import PlainExec, plain_exec

PLAIN = {
    "program": ("box ls", PlainExec("box", ("ls",))),
    "dashes": ("box -- ls -l", PlainExec("box", ("ls", "-l"))),
    "inner dashes": ("box ls -- -l", PlainExec("box", ("ls", "--", "-l"))),
    "stdin": ("-i box -- cat", PlainExec("box", ("cat",), (), is_interactive=True)),
    "variables": ("-e A=b --env C= box env", PlainExec("box", ("env",), ("A=b", "C="))),
}
OTHER = (
    "box",
    "box --",
    "-it box sh",
    "--tty box sh",
    "--timeout 1s box ls",
    "--help",
    "box --help",
    "-e A box ls",
    "-e",
    "--env=A=b box ls",
)


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_plain(case: str):
    """Name, command, variables and stdin are read as the whole command line reads them."""
    words, expected = PLAIN[case]
    assert plain_exec(["sandbox", "exec", *words.split()]) == expected


@pytest.mark.parametrize("words", OTHER)
def test_all_else_is_for_the_whole_command_line(words: str):
    """Options that need more, and mistakes."""
    assert plain_exec(["sandbox", "exec", *words.split()]) is None


@given(st.lists(st.sampled_from(["sandbox", "exec", "-i", "-e", "A=b", "--", "box", "-x", ""]), max_size=8))
def test_no_word_is_lost(words: list[str]):
    """Whatever is taken as plain has a name, a program, and every word behind it in its order."""
    plain = plain_exec(words)
    if plain is not None:
        assert not plain.name.startswith("-")
        assert not plain.command[0].startswith("-")
        assert tuple(words[-len(plain.command) :]) == plain.command


def test_what_it_loads():
    """Neither the command line's library nor the one that validates settings: they take longer than a command."""
    program = (
        "import sys, ringfence.cli.standing, ringfence.job.command, ringfence.sandbox.holder.attaching\n"
        "print(sorted({'typer', 'pydantic', 'pathspec', 'platformdirs'} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert told == "[]\n"

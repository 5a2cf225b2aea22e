"""A plain `ringfence run` is read without the command line's library, and as that would read it."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.cli.main import command
from ringfence.cli.quick_run import _LISTS, _READ, _SWITCHES, PlainRun, plain_run

PLAIN = {
    "task": ("fix", PlainRun("fix", {})),
    "dashes": ("-- --fix", PlainRun("--fix", {})),
    "values": (
        "--sandbox docker -m m -C /w --json fix",
        PlainRun("fix", {"sandbox": "docker", "model": "m", "workspace": Path("/w"), "json": True}),
    ),
    "joined": ("--model=a=b fix", PlainRun("fix", {"model": "a=b"})),
    "repeated": ("-e A=b --env C= fix", PlainRun("fix", {"env": ["A=b", "C="]})),
    "behind": ("fix --verify true", PlainRun("fix", {"verify": "true"})),
}
OTHER = (
    "",
    "-",
    "two words",
    "--help",
    "--model",
    "--model=",
    "--model --json fix",
    "--model a --model b fix",
    "--mod a fix",
    "-mm fix",
    "--json=1 fix",
    "--cpus 2 fix",
    "--resume a fix",
    "--nothing fix",
)
WORDS = [
    *_READ,
    *_LISTS,
    *_SWITCHES,
    "-m",
    "-C",
    "-e",
    "--",
    "a",
    "b=c",
    "--model=x",
    "--env=A=b",
    "-",
    "-x",
    "",
]


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_plain(case: str):
    """The task and the options that most runs have."""
    words, expected = PLAIN[case]
    assert plain_run(["run", *words.split()]) == expected


@pytest.mark.parametrize("words", OTHER)
def test_all_else_is_for_the_whole_command_line(words: str):
    """Options that need more, and mistakes."""
    assert plain_run(["run", *words.split()]) is None


@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_it_is_read_as_the_command_line_reads_it(words: list[str]):
    """Whatever is taken as plain, the whole command line takes for the same; it has the defaults of the rest."""
    plain = plain_run(["run", *words])
    if plain is None:
        return
    run = command().commands["run"]
    params = run.make_context("run", list(words)).params
    defaults = run.make_context("run", ["task"]).params
    assert {**defaults, "prompt": plain.prompt, **plain.options} == params


def test_what_it_loads():
    """Not the command line's library; nor, where nobody is shown anything, the one that draws."""
    program = (
        "import sys, ringfence.cli.run_task, ringfence.job.asked.agent, ringfence.job.agent, ringfence.cli.running\n"
        "import ringfence.cli.ndjson, ringfence.job.asked.lending\n"
        "print(sorted({'typer', 'rich'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"

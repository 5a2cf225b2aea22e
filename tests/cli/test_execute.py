"""`ringfence exec`: streams and exit codes pass through."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.events import CommandEnded
from ringfence.journal import read, resolve

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def execute(start: Cli, workspace: Path) -> Cli:
    """Run a command with some input; its exit code, stdout and stderr."""

    def run(*command: str, stdin: bytes = b"", options: tuple[str, ...] = ()) -> tuple[int, bytes, bytes]:
        process = start("exec", "-C", workspace, *options, "--", *command, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=60)
        return process.returncode, out, err

    return run


def test_streams_and_exit_code_pass_through(execute: Cli):
    """Bytes are bytes: nothing is decoded on the way."""
    blob = bytes(range(256)) * 4000
    assert execute("sh", "-c", "cat; echo oops >&2; exit 7", stdin=blob) == (7, blob, b"oops\n")


def test_a_command_that_is_not_there_exits_127(execute: Cli):
    """As in a shell, with a line that names it."""
    code, out, err = execute("no-such-program")
    assert (code, out, b"'no-such-program'" in err, err.count(b"\n")) == (127, b"", True, 1)


def test_what_cannot_be_executed_exits_126(execute: Cli):
    """As in a shell."""
    assert execute("./app.py")[0] == 126


def test_a_signal_is_told_as_a_shell_tells_it(execute: Cli):
    """128 + number."""
    assert execute("sh", "-c", "kill -TERM $$")[0] == 128 + 15


def test_input_that_nobody_reads_does_not_block(execute: Cli):
    """The command ends, so does ringfence."""
    assert execute("true", stdin=b"x" * 3_000_000)[0] == 0


def test_options_of_the_command_are_its_own(execute: Cli):
    """What follows -- is not ours."""
    assert (
        execute("printf", "%s", "--memory", options=("--memory", "256m", "--soft-limits"))[1] == b"--memory"
    )


@pytest.mark.parametrize("typed", [("--network", "bridge"), ("--podman",)])
def test_an_option_that_there_is_not_is_not_taken_for_a_program(start: Cli, typed: tuple[str, ...]):
    """It is refused by its name, and nothing is opened."""
    process = start("exec", *typed, "--", "true", stdin=subprocess.DEVNULL)
    assert (process.wait(60), f"no such option: {typed[0]}".encode() in process.stderr.read()) == (2, True)


def test_the_time_limit_exits_124(execute: Cli):
    """And is told."""
    code, _, err = execute("sleep", "60", options=("--timeout", "300ms"))
    assert (code, b"--timeout" in err) == (124, True)


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "</dev/null", ">/dev/full"])
def test_streams_that_are_not_there(workspace: Path, start: Cli, redirection: str):
    """Started without a stream, or with one that takes nothing, it does not fall over."""
    command = f'exec "$@" {redirection}'
    ordinary = start("exec", "-C", workspace, "--", "sh", "-c", "cat; echo x")
    ordinary.communicate(timeout=60)  # one run at a time works on a workspace
    inner = ordinary.args
    process = subprocess.run(
        ["sh", "-c", command, "sh", *inner], capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in process.stderr + process.stdout
    # A full disk is noticed while output is written (as if a reader had left), or when the last of it is.
    assert process.returncode in ((75, 141) if "full" in redirection else (0,))


def test_a_reader_who_leaves_ends_the_command(workspace: Path, start: Cli):
    """As SIGPIPE does."""
    process = start("exec", "-C", workspace, "--", "yes")
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    assert process.wait(60) == 141


def test_the_command_is_in_the_record(execute: Cli, events: Cli):
    """With what it wrote, and how it ended."""
    execute("sh", "-c", "echo hello; exit 3")
    ended = next(event["data"] for event in events() if event["event"] == "command.ended")
    assert (ended["stdout"], ended["exit_code"], ended["argv"][0]) == ("hello\n", 3, "sh")


def test_audit_works_on_it(execute: Cli, ringfence: Cli):
    """A command's record is one like any other."""
    execute("true")
    shown = [ringfence("audit", *words).code for words in (["verify", "last"], ["show", "last"], ["ls"])]
    session = json.loads(ringfence("audit", "export", "last").out)
    assert (shown, session["outcome"]["state"]) == ([0, 0, 0], "succeeded")


def test_files_that_run_on_the_machine_are_named(execute: Cli):
    """On stderr: what the command says is its own."""
    _, out, err = execute("sh", "-c", "echo done; echo 'echo evil' > .envrc")
    assert (out, b"RUNS ON YOUR MACHINE" in err, err.count(b".envrc")) == (b"done\n", True, 1)


def test_set_up_commands_are_in_the_record(execute: Cli):
    """Each with its output, before the command itself."""
    assert execute("cat", "made", options=("--setup", "echo made > made; echo told"))[:2] == (0, b"made\n")
    told = [record.event for record in read(resolve("last")) if isinstance(record.event, CommandEnded)]
    assert [(event.argv[-1], event.stdout) for event in told] == [
        ("echo made > made; echo told", "told\n"),
        ("made", "made\n"),
    ]

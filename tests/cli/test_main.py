"""The command itself: quick to answer, and never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.cli import error_report
from ringfence.config.paths import state_dir
from ringfence.errors import ExitCode, PolicyRefused

Cli = Callable[..., Any]

_LOADED = """
import sys
import ringfence.cli.app
rooms = {name.split('.')[1] for name in sys.modules if name.startswith('ringfence.')}
heavy = {name.split('.')[0] for name in sys.modules} & {
    'anthropic', 'pydantic', 'msgspec', 'anyio', 'rich', 'ruamel', 'cryptography', 'starlette', 'platformdirs',
    'asyncio', 'pathspec', 'sqlite3', 'httpx',
}
print(sorted(rooms), sorted(heavy))
"""


@pytest.mark.slow
def test_help_imports_no_other_room():
    """`--help` answers at once because nothing is imported for it."""
    done = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert done.stdout == "['cli', 'errors', 'escape', 'frozen'] []\n"


@pytest.mark.parametrize("command", ["run", "exec", "shell", "diff", "apply", "undo", "runs", "gc"])
def test_every_command_has_help(ringfence: Cli, command: str):
    """On stdout, with exit code 0."""
    ended = ringfence(command, "--help")
    assert (ended.code, ended.err, ended.out.startswith(f"Usage: ringfence {command}")) == (0, "", True)


def test_an_error_of_ours_is_its_line(capsys: pytest.CaptureFixture[str]):
    """And its exit code; what is not text is shown by its code."""
    assert error_report.report_error(PolicyRefused("no\x1b[2J\nway", rule="r")) is ExitCode.REFUSED
    assert capsys.readouterr().err == "ringfence: no\\x1b[2J\\nway\n"


def test_a_bug_is_a_line_and_a_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The traceback is kept, without secrets, and the line names it."""
    monkeypatch.setenv("MY_TOKEN", "do-not-show-this")
    assert error_report.report_error(KeyError("do-not-show-this")) is ExitCode.INFRASTRUCTURE
    told = capsys.readouterr().err
    kept = next((state_dir() / "crashes").iterdir())
    assert (told.count("\n"), str(kept) in told, "do-not-show" in told + kept.read_text()) == (1, True, False)


def test_a_bug_that_cannot_be_kept_is_told_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The state directory may be what is broken."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "file" / "state"))
    error_report.report_error(KeyError("x"))
    assert "could not be saved" in capsys.readouterr().err


def test_a_state_directory_that_cannot_be_made_names_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Also where a directory above it is to blame."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", "/x/y/state")
    error_report.report_error(PermissionError(13, "Permission denied", "/x/y"))
    assert "RINGFENCE_STATE_DIR" in capsys.readouterr().err


def test_an_error_of_the_system_names_its_file(capsys: pytest.CaptureFixture[str]):
    """It is no bug."""
    assert (
        error_report.report_error(PermissionError(13, "Permission denied", "/x/y")) is ExitCode.INFRASTRUCTURE
    )
    assert "'/x/y': Permission denied" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["config", "schema"], ["config", "show"]], ids=" ".join)
def test_a_reader_who_leaves_is_no_error(start: Cli, words: list[str]):
    """`| head` is an ordinary way to read: nothing is printed, and the code is that of SIGPIPE."""
    process = start(*words)
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (ExitCode.BROKEN_PIPE, b"")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["diff", "--raw"]], ids=" ".join)
def test_output_that_finds_no_room_is_told(start: Cli, workspace: Path, words: list[str]):
    """It is no bug of ours, and no success."""
    if "diff" in words:
        start("exec", "-C", workspace, "--", "touch", "made").communicate(timeout=60)
    with Path("/dev/full").open("wb") as full:
        process = start(*words, stdout=full)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"free some space" in err.splitlines()[-1]) == (75, True)


@pytest.mark.slow
@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_started_without_streams(redirection: str):
    """The exit code is what it would be, and no file takes the place of a stream."""
    command = [sys.executable, "-c", "from ringfence.cli import main; main()", "dance"]
    done = subprocess.run(["sh", "-c", f'"$@" {redirection}', "sh", *command], timeout=60, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize(
    "statement", ["sys.exit(0)", "sys.exit()", "raise SystemExit", "raise BaseException", "raise ValueError"]
)
def test_nothing_that_is_raised_becomes_success(statement: str, tmp_path: Path):
    """A command in which something is raised does not end with 0, whatever that is."""
    code = f"import sys\nfrom ringfence.cli.exit import end_by\n\ndef act():\n    {statement}\n\nend_by(act)"
    environment = {"RINGFENCE_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (ExitCode.INFRASTRUCTURE, 1), done


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_success(shell: str, tmp_path: Path):
    """Typer ends the command by itself after it has printed a completion, with 0."""
    environment = {
        "RINGFENCE_STATE_DIR": str(tmp_path),
        "PATH": os.environ["PATH"],
        "_RINGFENCE_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "ringfence doc",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "ringfence doc",
        "COMP_CWORD": "1",
    }
    words = [sys.executable, "-P", "-m", "ringfence"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "doctor" in done.stdout) == (0, True), done

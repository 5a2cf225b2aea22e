"""`ringfence help` and `-h`: commands, pages, and what a shell completes."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from ringfence.cli.tree import COMMANDS, GROUPS
from ringfence.config.names import RuntimeName

Cli = Callable[..., Any]
_DOCS = Path(__file__).parents[2] / "docs"
_PAGES = sorted(page for page in _DOCS.glob("*/*.md") if page.parent.name not in ("adr", "images"))
_SCREEN_LINES = 24


def _topic(page: Path) -> str:
    is_command = page.stem in COMMANDS or page.stem in GROUPS
    return f"{page.parent.name}/{page.stem}" if is_command else page.stem


@pytest.mark.parametrize("path", ["run", "runs", "runs show", "fleet schedules ls", "help"])
def test_help_of_a_command_is_what_its_option_prints(ringfence: Cli, path: str) -> None:
    """`help COMMAND`, `COMMAND --help` and `COMMAND -h` are the same."""
    shown = ringfence("help", *path.split())
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: ringfence {path} ")
    assert ringfence(*path.split(), "--help").out == shown.out
    assert ringfence(*path.split(), "-h").out == shown.out


@pytest.mark.parametrize("words", [[], ["exec"], ["claude"], ["sandbox", "exec"]], ids=" ".join)
def test_h_is_help_everywhere(ringfence: Cli, words: list[str]) -> None:
    """At the root, and before the arguments of other programs."""
    assert ringfence(*words, "-h").out == ringfence(*words, "--help").out != ""


def test_a_page_with_the_name_of_a_command_is_named_below_its_help(ringfence: Cli) -> None:
    """The command wins; the page is shown by its full name."""
    shown = ringfence("help", "fleet").out
    assert shown.startswith("Usage: ringfence fleet ")
    assert "`ringfence help reference/fleet`" in shown.splitlines()[-1]
    assert ringfence("help", "reference/fleet").out.startswith("# Fleet\n")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("credental", "did you mean 'credentials'?"),
        ("runs shwo", "did you mean 'runs show'"),
        ("user-namespaces", "did you mean 'allow-user-namespaces'?"),
        ("xyzzy", "`ringfence help` lists the pages"),
        ("audit ls", "is now `ringfence runs ls`"),
    ],
)
def test_an_unknown_word_is_answered_with_near_ones(ringfence: Cli, words: str, hint: str) -> None:
    """Commands and pages are both near."""
    ended = ringfence("help", *words.split())
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert hint in ended.err


def test_pages_are_listed_by_kind(ringfence: Cli) -> None:
    """Every page has one line, and every group fits on a screen."""
    groups = ringfence("help").out.split("\n\n")[:-1]
    kinds = ["Tutorials", "How-to guides", "Reference", "Explanation"]
    assert list(dict.fromkeys(group.partition(" (")[0] for group in groups)) == kinds
    assert max(group.count("\n") for group in groups) < _SCREEN_LINES
    listed = [line.split()[0] for group in groups for line in group.splitlines()[1:]]
    assert sorted(listed) == sorted(_topic(page) for page in _PAGES)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_a_page_in_a_pipe_stands_alone(ringfence: Cli, page: Path) -> None:
    """It is Markdown without comments, and its links are commands, files of the source, or addresses."""
    shown = ringfence("help", _topic(page)).out
    assert "<!--" not in shown
    prose = re.sub(r"^```.*?^```$", "", shown, flags=re.MULTILINE | re.DOTALL)
    assert [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target] == []
    named = set(re.findall(r"`ringfence help ([a-z/-]+)`", prose))
    assert named <= {_topic(each) for each in _PAGES}


@pytest.mark.slow
def test_a_page_on_a_terminal_is_rendered() -> None:
    """Headings, tables and code are set, without the marks of Markdown."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "ringfence", "help", "run-as-root"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(command, stdout=theirs, env=environment)
        os.close(theirs)
        shown = b""
        try:
            while part := terminal.read(65_536):
                shown += part
        except OSError:
            pass  # Linux reports the closed end of a terminal as EIO
        assert process.wait(timeout=60) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert "\x1b[" in shown.decode()
    assert "Run as root" in plain
    assert not re.search(r"^(#|\|-|```)|<!--|`", plain, re.MULTILINE)


def _complete(words: str, **environment: str) -> list[str]:
    variables = {
        **os.environ,
        "_RINGFENCE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        **environment,
    }
    command = [sys.executable, "-P", "-m", "ringfence"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("ringfence run --runtime cl", {"claude", "claude-cli", "claude-sdk"}),
        ("ringfence exec --sandbox b", {"bubblewrap"}),
        ("ringfence run --mode ", {"bind", "clone", "read_only"}),
        ("ringfence run --settings-source ", {"user", "project", "local"}),
        ("ringfence run --allow ", {"packages", "model", "open"}),
        ("ringfence help scr", {"scripted-model"}),
        ("ringfence runs show 2026", {"2026-01-01T00-00-00-00000001"}),
        ("ringfence diff ", {"last", "2026-01-01T00-00-00-00000001"}),
        ("ringfence sandbox exec d", {"dev"}),
    ],
)
def test_a_shell_completes_values(words: str, values: set[str], tmp_path: Path) -> None:
    """Those that a file or a table holds."""
    (tmp_path / "runs" / "2026-01-01T00-00-00-00000001").mkdir(parents=True)
    (tmp_path / "standing" / "dev").mkdir(parents=True)
    assert set(_complete(words, RINGFENCE_STATE_DIR=str(tmp_path))) == values


@pytest.mark.slow
@pytest.mark.parametrize("words", ["ringfence sandbox rm ", "ringfence runs logs "])
def test_a_completion_prints_no_error(words: str, tmp_path: Path) -> None:
    """Even if the state directory is refused: others can write to it."""
    tmp_path.chmod(0o777)
    assert set(_complete(words, RINGFENCE_STATE_DIR=str(tmp_path))) <= {"last"}


def test_each_runtime_is_completed() -> None:
    """The names of the code are among those that are offered."""
    from ringfence.config.names import RUNTIME_NAMES

    assert set(get_args(RuntimeName)) < set(RUNTIME_NAMES)

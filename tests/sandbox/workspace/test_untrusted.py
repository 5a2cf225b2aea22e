"""A `.git` that came while an agent worked is used by no later run, however that run ended."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.sandbox.workspace.busy import claimed
from ringfence.sandbox.workspace.untrusted import why_untrusted

KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from ringfence.sandbox.workspace.busy import claimed
workspace, state = map(Path, sys.argv[1:])
with claimed(workspace, "bind", run="killed", state=state):
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def mine(workspace: Path, own) -> Path:
    """A workspace without git that is worked on itself, also by root."""
    if os.geteuid() == 0:
        own(workspace)
    return workspace


@pytest.fixture
def killed(mine: Path, state: Path) -> Path:
    """The workspace after a run that made a repository and was killed."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(mine), str(state)], check=False)
    assert done.returncode == -signal.SIGKILL
    return mine


def test_of_a_killed_run(killed: Path, state: Path):
    """It is not used, by this run or the next, and it is said why."""
    for _ in range(2):
        assert "'killed'" in (why_untrusted(killed, state) or "")


def test_of_a_killed_run_after_another(killed: Path, state: Path):
    """Nor after another run on the workspace has come and gone."""
    with claimed(killed, "bind", run="second", state=state):
        assert "'killed'" in (why_untrusted(killed, state) or "")
    assert "'killed'" in (why_untrusted(killed, state) or "")


def test_a_copy_is_trusted(killed: Path, state: Path):
    """Who looked at it and copied it has it used, as he was told."""
    assert why_untrusted(killed, state)
    shutil.copytree(killed / ".git", killed / ".git.new")
    shutil.rmtree(killed / ".git")
    (killed / ".git.new").rename(killed / ".git")
    assert why_untrusted(killed, state) is None


def test_a_failed_run(mine: Path, state: Path, git):
    """One that came to its end by an error is settled as well."""

    def run() -> None:
        with claimed(mine, "bind", run="failed", state=state):
            git(mine, "init", "-q")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert "made by run 'failed'" in (why_untrusted(mine, state) or "")


def test_the_users_own(mine: Path, state: Path, git):
    """A repository made by the user between two runs is the user's."""
    with claimed(mine, "bind", run="first", state=state):
        pass
    git(mine, "init", "-q")
    assert why_untrusted(mine, state) is None


def test_while_it_works(mine: Path, state: Path, git):
    """Others that look while the run goes on do not use it either."""
    with claimed(mine, "bind", run="first", state=state):
        git(mine, "init", "-q")
        assert why_untrusted(mine, state) is not None

"""A `.git` that came while an agent worked is used by no later run, however that run ended."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.sandbox.workspace.runs import claimed, prepare

from ringfence.sandbox.workspace.protect.repositories import distrust_all, why_untrusted

KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
import anyio
from ringfence.sandbox.base import Traits
from ringfence.sandbox.workspace.open import open_workspace
workspace, state = map(Path, sys.argv[1:])
async def main():
    async with open_workspace(workspace, "bind", state=state, holder="killed", traits=Traits()):
        subprocess.run(["git", "init", "-q", str(workspace)], check=True)
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
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
    """A `.git` that a killed run made is not used by later runs, and the reason names the run."""
    for _ in range(2):
        assert "'killed'" in (why_untrusted(killed, state) or "")


@pytest.mark.slow
async def test_of_a_killed_run_after_another(killed: Path, state: Path):
    """It is not used after another run on the workspace, either."""
    async with claimed(killed, "bind", run="second", state=state):
        assert "'killed'" in (why_untrusted(killed, state) or "")
    assert "'killed'" in (why_untrusted(killed, state) or "")


@pytest.mark.slow
def test_a_copy_is_trusted(killed: Path, state: Path):
    """A `.git` that the user has copied, as the message advises, is used."""
    assert why_untrusted(killed, state)
    shutil.copytree(killed / ".git", killed / ".git.new")
    shutil.rmtree(killed / ".git")
    (killed / ".git.new").rename(killed / ".git")
    assert why_untrusted(killed, state) is None


async def test_a_failed_run(mine: Path, state: Path, git):
    """A `.git` that was made by a run that ended with an error is not used."""

    async def run() -> None:
        async with claimed(mine, "bind", run="failed", state=state):
            git(mine, "init", "-q")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run()
    assert "made by run 'failed'" in (why_untrusted(mine, state) or "")


async def test_the_users_own(mine: Path, state: Path, git):
    """A repository made by the user between two runs is the user's."""
    async with claimed(mine, "bind", run="first", state=state):
        pass
    git(mine, "init", "-q")
    assert why_untrusted(mine, state) is None


async def test_exchanged_while_others_look(mine: Path, state: Path, git):
    """A `.git` that replaces another one before the run's end is the run's as well, whoever asks meanwhile."""
    async with claimed(mine, "bind", run="first", state=state):
        git(mine, "init", "-q")
        assert why_untrusted(mine, state) is not None
        (mine / ".git").rename(mine / "old")
        git(mine, "init", "-q")
        assert why_untrusted(mine, state) is not None
    assert "made by run 'first'" in (why_untrusted(mine, state) or "")


@pytest.mark.slow
def test_of_a_renamed_workspace(killed: Path, state: Path):
    """Renaming the directory around it does not make a run's `.git` trusted."""
    assert why_untrusted(killed, state)
    assert "'killed'" in (why_untrusted(killed.rename(killed.parent / "other"), state) or "")


@pytest.mark.slow
def test_another_of_the_same_number(killed: Path, state: Path):
    """A `.git` that the user makes later is trusted although the file system reuses the inode."""
    assert why_untrusted(killed, state)
    mark = next((state / "untrusted-git").glob("*-*.json"))
    known = msgspec.json.decode(mark.read_bytes())
    if not known["born_ns"]:
        pytest.skip("this file system does not tell when a file was made")
    mark.write_bytes(msgspec.json.encode({**known, "born_ns": known["born_ns"] - 1}))
    assert why_untrusted(killed, state) is None


@pytest.mark.anyio
async def test_one_within_is_untrusted_on_its_own(mine: Path, state: Path, own, git):
    """A repository that a run made in a directory is not used when that directory is the workspace."""
    (mine / "app").mkdir()
    if os.geteuid() == 0:
        own(mine)
    async with claimed(mine, "bind", run="first", state=state):
        prepared = await prepare(mine, "bind", run="first", run_dir=state / "runs" / "first", state=state)
        git(mine / "app", "init", "-q")
        if os.geteuid() == 0:
            own(mine)
        await prepared.deliver(None)
    assert "made by run 'first'" in (why_untrusted(mine / "app", state) or "")


def test_more_within_than_are_remembered(mine: Path, state: Path, git):
    """Of more repositories than are remembered, the others are not used, either."""
    (mine / "z").mkdir()
    git(mine / "z", "init", "-q")
    flood = [f"a{number}/.git" for number in range(1000)]
    distrust_all(mine, [*flood, "z/.git"], run="flood", state=state)
    assert "'flood'" in (why_untrusted(mine / "z", state) or "")

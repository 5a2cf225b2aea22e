"""Workspaces to test on: real directories, real git, and a canary that must never sing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

OTHER_UID = 12_345
"""Somebody who is not root, as whom root's tests own a workspace."""


def run_git(workspace: Path, *arguments: str, stdin: str = "") -> str:
    """Run git as the test's own user, on repositories the test made."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    options = [
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=T",
        "-c",
        "user.email=t@t",
        "-c",
        "init.defaultBranch=main",
    ]
    done = subprocess.run(
        ["git", *options, *arguments],
        cwd=workspace,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit_everything(workspace: Path, message: str = "work") -> str:
    """Commit everything; return the commit's id."""
    run_git(workspace, "add", "-A")
    run_git(workspace, "commit", "-qm", message)
    return run_git(workspace, "rev-parse", "HEAD")


def give_away(path: Path, uid: int = OTHER_UID) -> None:
    """Give a tree away."""
    for folder, folders, names in os.walk(path):
        for name in (".", *folders, *names):
            os.chown(Path(folder, name), uid, uid, follow_symlinks=False)


@pytest.fixture(autouse=True)
def no_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the git configuration of whoever runs it."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


@pytest.fixture(scope="session")
def git() -> Callable[..., str]:
    """`run_git`."""
    return run_git


@pytest.fixture(scope="session")
def commit_all() -> Callable[..., str]:
    """`commit_everything`."""
    return commit_everything


@pytest.fixture(scope="session")
def own() -> Callable[..., None]:
    """`give_away`."""
    return give_away


@pytest.fixture
def ground() -> Iterator[Path]:
    """A directory that every user can reach, unlike `tmp_path`."""
    path = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    path.chmod(0o755)
    yield path
    remove_tree(path)


@pytest.fixture
def workspace(ground: Path) -> Path:
    """An empty workspace of the test's user."""
    path = ground / "project"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def made_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with one commit, to be copied: to make it takes git four starts."""
    made = tmp_path_factory.mktemp("repository") / "project"
    made.mkdir()
    run_git(made, "init", "-q")
    (made / "a.txt").write_text("one\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "sub").mkdir()
    (made / "sub" / "b.txt").write_text("two\n")
    shutil.rmtree(made / ".git" / "hooks")
    commit_everything(made)
    return made


@pytest.fixture
def repository(workspace: Path, made_repository: Path) -> Path:
    """A workspace that is a git repository with one commit."""
    shutil.copytree(made_repository, workspace, symlinks=True, dirs_exist_ok=True)
    return workspace


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory."""
    return tmp_path / "state"


@pytest.fixture
def store(workspace: Path, state: Path) -> SnapshotStore:
    """The checkpoints of `workspace`."""
    return SnapshotStore(workspace, state)


@pytest.fixture
def canary(ground: Path) -> Iterator[Callable[[], str]]:
    """Gives a shell command that leaves a trace; fails the test at its end if one was run."""
    cage = ground / "canary"
    cage.mkdir()
    cage.chmod(0o777)
    yield lambda: f"touch {cage}/sang-$$; cat"
    assert not list(cage.iterdir()), "a command that the workspace named was run on the host"

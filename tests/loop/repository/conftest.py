"""Real repositories of a user's, and a loop's own made of them."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.loop.repository import LoopRepository, Trailers, inspect_repository
from ringfence.removal import remove_tree

TRAILERS = Trailers(loop="l1", story="S1", attempt=1, role="implementor", model="m")


def run_git(where: Path, *arguments: str | bytes, stdin: str = "", user: str = "T") -> str:
    """Run git as the test's own user, on repositories the test made."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", user), ("EMAIL", "t@t"))
    }
    options = ["-c", "safe.directory=*", "-c", "init.defaultBranch=main", "-c", "core.quotePath=false"]
    done = subprocess.run(
        ["git", *options, *arguments],
        cwd=where,
        env=env,
        input=stdin.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return os.fsdecode(done.stdout).strip()


async def make(source: Path, place: Path, *, loop: str, base: str | None = None) -> LoopRepository:
    """Look at a repository, and make a loop's own of it."""
    return await LoopRepository.make(await inspect_repository(source, base=base), place, loop=loop)


def commit_everything(where: Path, message: str = "work") -> str:
    """Commit everything; return the commit's id."""
    run_git(where, "add", "-A")
    run_git(where, "commit", "-qm", message)
    return run_git(where, "rev-parse", "HEAD")


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and link below a directory, with its mode and contents; the directories with theirs."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            status = path.lstat()
            data = (
                os.fsencode(path.readlink())
                if path.is_symlink()
                else path.read_bytes()
                if path.is_file()
                else b""
            )
            found[str(path.relative_to(root))] = (status.st_mode, data)
    return found


def owners(root: Path) -> set[int]:
    """To whom the things below a directory belong."""
    return {path.lstat().st_uid for path in root.rglob("*")}


def trailers_in(message: str) -> list[str]:
    """What git takes for trailers of a message."""
    command = ["git", "interpret-trailers", "--parse"]
    return (
        subprocess.run(command, input=message.encode(), capture_output=True, check=True)
        .stdout.decode()
        .splitlines()
    )


@pytest.fixture(autouse=True)
def no_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the git configuration of whoever runs it."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


@pytest.fixture(scope="session")
def git() -> Callable[..., str]:
    """`run_git`."""
    return run_git


@pytest.fixture
def ground() -> Iterator[Path]:
    """A directory that every user can reach, unlike `tmp_path`."""
    path = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
    path.chmod(0o755)
    yield path
    remove_tree(path)


@pytest.fixture
def users(ground: Path) -> Path:
    """The user's repository: three files in two commits, a tag, on branch `main`."""
    root = ground / "project"
    root.mkdir()
    run_git(root, "init", "-q")
    (root / "a.txt").write_text("one\n")
    commit_everything(root, "first")
    run_git(root, "tag", "-a", "v1", "-m", "first")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "sub").mkdir()
    (root / "sub" / "b.txt").write_text("two\n")
    commit_everything(root, "second")
    return root


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a loop keeps its repository."""
    return tmp_path / "loop"


@pytest.fixture
async def loop(users: Path, place: Path) -> LoopRepository:
    """A loop's repository, of the user's."""
    return await make(users, place, loop="l1")

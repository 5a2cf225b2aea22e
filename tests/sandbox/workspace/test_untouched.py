"""A sandbox to bring commits out is opened only where there may be some; refs are only looked at."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.sandbox.workspace.finish import are_refs_untouched
from ringfence.sandbox.workspace.git.private import PrivateGit, make_private_git
from ringfence.sandbox.workspace.run_as import Actor

pytestmark = pytest.mark.anyio


@pytest.fixture
async def made(repository: Path, ground: Path, git) -> tuple[Path, PrivateGit]:
    """A private git directory of a repository with a symbolic ref, and where it is."""
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    actor = Actor.current()
    private = await make_private_git(repository, ground / "private", reader=actor, owner=actor)
    assert private is not None
    return ground / "private", private


async def test_what_was_only_read_has_no_commits(made: tuple[Path, PrivateGit], git):
    """Reading, staging and changing settings leaves the refs as they were."""
    directory, private = made
    (directory / "index").write_bytes(b"anything")
    git(directory, "config", "user.name", "somebody")
    assert are_refs_untouched(directory, private.refs)


def _detach(directory: Path) -> None:
    (directory / "HEAD").write_text("0" * 40 + "\n")


def _branch(directory: Path) -> None:
    (directory / "refs/heads/new").write_text("0" * 40 + "\n")


def _pack(directory: Path) -> None:
    (directory / "packed-refs").write_bytes(b"0" * 40 + b" refs/heads/new\n")


def _move(directory: Path) -> None:
    (directory / "refs/remotes/origin/HEAD").write_text("ref: refs/heads/main\n")


def _reftable(directory: Path) -> None:
    (directory / "reftable").mkdir()


def _link_head(directory: Path) -> None:
    (directory / "HEAD").rename(directory / "other")
    (directory / "HEAD").symlink_to("other")


def _link_refs(directory: Path) -> None:
    (directory / "refs").rename(directory / "other")
    (directory / "refs").symlink_to("other")


def _fifo(directory: Path) -> None:
    (directory / "packed-refs").unlink()
    os.mkfifo(directory / "packed-refs")


def _long(directory: Path) -> None:
    with (directory / "HEAD").open("r+b") as file:
        file.truncate(1 << 40)


def _crowded(directory: Path) -> None:
    for number in range(10_001):
        (directory / "refs" / str(number)).mkdir()


def _gone(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


@pytest.mark.parametrize(
    "change",
    [
        *(_detach, _branch, _pack, _move, _reftable, _link_head, _link_refs, _fifo, _long, _gone),
        pytest.param(_crowded, marks=pytest.mark.slow),
    ],
)
async def test_whatever_else_is_there_is_looked_at_in_a_sandbox(
    made: tuple[Path, PrivateGit], change: Callable[[Path], None]
):
    """Refs that moved, came, lie elsewhere or cannot be read count as changed, and none takes long to look at."""
    directory, private = made
    change(directory)
    assert not are_refs_untouched(directory, private.refs)

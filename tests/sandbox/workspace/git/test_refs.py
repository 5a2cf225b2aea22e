"""Refs of repositories: their names, where they are read, and which of an agent's are imported."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.sandbox.workspace.git import refs
from ringfence.sandbox.workspace.git.commits import has_new_commits
from ringfence.sandbox.workspace.git.layout import find_git
from ringfence.sandbox.workspace.git.private import Identity, PrivateGit, make_private_git
from ringfence.sandbox.workspace.git.refs import MAX_TIPS, Refs, is_ref_name, read_new_tips
from ringfence.sandbox.workspace.run_as import Actor

pytestmark = pytest.mark.anyio


@settings(max_examples=examples(150), deadline=None)
@example("refs/heads/a/@")
@example("refs/heads/@")
@example("refs/heads/a.")
@example("refs/heads/a./b")
@given(
    st.text(alphabet="abc/.@{}~^:?*[\\ -lock\x01é", min_size=1, max_size=10).map(
        lambda text: f"refs/heads/{text}"
    )
)
def test_ref_names_are_valid_for_git(name: str):
    """No name that git refuses counts as the name of a ref."""
    if is_ref_name(name):
        assert subprocess.run(["git", "check-ref-format", name], check=False).returncode == 0


def test_head_commit():
    """HEAD leads to a commit by a branch, by its id, or not at all."""
    direct = {"refs/heads/main": "a" * 40}
    assert Refs(b"ref: refs/heads/main\n", direct, {}).head_commit() == "a" * 40
    assert Refs(b"b" * 40 + b"\n", direct, {}).head_commit() == "b" * 40
    assert Refs(b"ref: refs/heads/none\n", direct, {}).head_commit() is None


@pytest.fixture
async def made(repository: Path, ground: Path, git) -> tuple[Path, PrivateGit]:
    """The private git directory of a repository with a symbolic ref: its path, and its description."""
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    actor = Actor.current()
    layout = find_git(repository)
    assert layout is not None
    directory = ground / "private"
    private = await make_private_git(layout, directory, reader=actor, owner=actor, identity=Identity())
    return ground / "private", private


async def test_no_commits_without_a_changed_ref(made: tuple[Path, PrivateGit], git):
    """Reading, staging and changing settings makes no new commits."""
    directory, private = made
    (directory / "index").write_bytes(b"anything")
    git(directory, "config", "user.name", "somebody")
    assert read_new_tips(directory, private.refs) == ({}, [])


def _detach(directory: Path) -> None:
    (directory / "HEAD").write_text("0" * 40 + "\n")


def _branch(directory: Path) -> None:
    (directory / "refs/heads/new").write_text("0" * 40 + "\n")


def _pack(directory: Path) -> None:
    (directory / "packed-refs").write_bytes(b"0" * 40 + b" refs/heads/new\n")


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
    for number in range(101):
        (directory / "refs" / str(number)).mkdir()


def _gone(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


@pytest.mark.parametrize(
    "change",
    [
        *(_detach, _branch, _pack, _reftable, _link_head, _link_refs, _fifo, _long, _gone, _crowded),
    ],
)
async def test_any_change_of_refs_is_examined_in_a_sandbox(
    made: tuple[Path, PrivateGit], change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    """Any other state of the refs is examined in a sandbox; refs that cannot be read are noted, within bounded time."""
    monkeypatch.setattr(refs, "_MAX_AGENT_REFS", 100)
    directory, private = made
    change(directory)
    assert read_new_tips(directory, private.refs) != ({}, [])
    assert await has_new_commits(private)


async def test_number_of_branches_is_bounded(made: tuple[Path, PrivateGit]):
    """Of too many branches only the first are imported, with a note."""
    directory, private = made
    (directory / "packed-refs").write_text("".join(f"{'7' * 40} refs/heads/b{i}\n" for i in range(1000)))
    tips, notes = read_new_tips(directory, private.refs)
    assert (len(tips), "1000 branches" in notes[0]) == (MAX_TIPS, True)


async def test_refs_that_are_no_branches_are_not_imported(made: tuple[Path, PrivateGit]):
    """Changes to tags, remote branches and the stash, and branches at known commits, import nothing."""
    directory, private = made
    (directory / "refs/remotes/origin/HEAD").write_text("ref: refs/heads/main\n")
    for name in ("refs/tags/t", "refs/stash", "refs/heads/back"):
        (directory / name).write_text(f"{private.refs.head_commit()}\n")
    (directory / "refs/tags/new").write_text("7" * 40 + "\n")
    assert read_new_tips(directory, private.refs) == ({}, [])


@pytest.mark.parametrize(
    "name",
    ["refs/tags/v", "refs/heads/../../x", "refs/heads/a..b", "refs/heads/x.lock", "refs/heads/a b", "refs/heads/HEAD",
     "refs/ringfence/other/main", "refs/heads/-x/.y", "refs/heads/\x1b[31m", "--upload-pack=x",
     "refs/heads/a:refs/heads/main"],
)  # fmt: skip
async def test_hostile_names_are_left_out(name: str, made: tuple[Path, PrivateGit]):
    """Names that are no branch, or that git would take for an option or a refspec, are never passed to git."""
    directory, private = made
    lines = f"{'7' * 40} {name}\n{'8' * 40} refs/heads/good\n"
    (directory / "packed-refs").write_text(lines)
    assert set(read_new_tips(directory, private.refs)[0]) == {"refs/heads/good"}

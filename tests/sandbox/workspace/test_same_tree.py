"""A checkpoint of what the store has already is made without git, and is all that git would have made."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import slow_after

from ringfence.sandbox.workspace import fast_import
from ringfence.sandbox.workspace.same_tree import commit_again
from ringfence.sandbox.workspace.store import CheckpointStore
from ringfence.sandbox.workspace.taking import cache_key

pytestmark = pytest.mark.anyio


def git(store: CheckpointStore, *words: str) -> str:
    """What git says of the store."""
    done = subprocess.run(["git", "-C", store.directory, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
async def last(repository: Path, store: CheckpointStore) -> tuple[str, str]:
    """The ref of the last checkpoint, which lies in a file of its own, and its tree."""
    await store.take("r/one")
    taken = await store.take("r/two")
    return f"refs/ringfence-last/{cache_key(repository)}", taken.tree


async def test_git_reads_it_as_its_own(store: CheckpointStore, last: tuple[str, str]):
    """The commit is whole to git: its tree, its message, both refs, and nothing that fsck minds."""
    commit = commit_again(store.directory, ("refs/ringfence/r/three", last[0]), last[1])
    assert commit is not None
    assert git(store, "rev-parse", "refs/ringfence/r/three", last[0]) == f"{commit}\n{commit}"
    assert git(store, "show", "-s", "--format=%T %s", commit) == f"{last[1]} refs/ringfence/r/three"
    assert git(store, "fsck", "--full", "--strict", "--no-dangling") == ""


async def test_unchanged_state_starts_no_git(
    repository: Path, store: CheckpointStore, last: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    """A checkpoint of an unchanged workspace is taken where fast-import cannot run."""
    monkeypatch.setattr(fast_import, "_unpack_limit", None)
    monkeypatch.setattr(fast_import, "_FEW", "no number of objects")
    assert (await store.take("r/three")).tree == last[1]
    assert await store.has("r/three")


@pytest.mark.parametrize(
    "harm",
    slow_after(
        2,
        [
            lambda store, ref, tree: (store / ref).unlink(),
            lambda store, ref, tree: (store / ref).write_text("ref: refs/heads/elsewhere\n"),
            lambda store, ref, tree: (store / ref).write_text("0" * 40 + "\n"),
            lambda store, ref, tree: subprocess.run(["git", "-C", store, "repack", "-adq"], check=True),
            lambda store, ref, tree: (store / f"{ref}.lock").touch(),
            lambda store, ref, tree: _empty(store / "objects" / tree[:2] / tree[2:]),
        ],
    ),
    ids=["no-ref", "a-link", "no-commit", "packed", "locked", "torn-tree"],
)
async def test_what_is_not_as_expected_is_left_to_git(
    store: CheckpointStore, last: tuple[str, str], harm: Callable[[Path, str, str], object]
):
    """Where the last commit cannot be seen to pin the tree, or another holds its ref, git is asked."""
    harm(store.directory, *last)
    assert commit_again(store.directory, ("refs/ringfence/r/three", last[0]), last[1]) is None


async def test_another_tree_is_left_to_git(store: CheckpointStore, last: tuple[str, str]):
    """A tree that the last commit does not have is not taken for one that the store has."""
    assert commit_again(store.directory, ("refs/ringfence/r/three", last[0]), "1" * 40) is None


async def test_a_store_that_lost_its_objects_is_filled_again(
    repository: Path, store: CheckpointStore, last: tuple[str, str]
):
    """Where the store's objects are gone, the files are read again: no checkpoint names what is not there."""
    shutil.rmtree(store.directory / "objects")
    for name in ("info", "pack"):
        (store.directory / "objects" / name).mkdir(parents=True)
    taken = await store.take("r/three")
    assert git(store, "ls-tree", "-r", "--name-only", taken.id) != ""


def _empty(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch()

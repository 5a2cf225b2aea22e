"""What a store knows of a workspace never makes a snapshot another one than a first look at it would."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import slow_after

from ringfence.sandbox.workspace.snapshot import capture, stat_cache
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

from .conftest import run_git
from .trees import wait_for_tick

pytestmark = pytest.mark.anyio
# ruff: noqa: ASYNC240, PTH - tests prepare their files with plain blocking calls

_FOLDERS = ("", "d", "d/e", "d/e/f", ".git", ".git/objects", "d/.git", ".vscode", "node_modules")
_NAMES = ("a", "b", ".gitignore", ".env", "HEAD", "refs", "objects", "settings.json", "e", "f", "\xe9\n")
_SETTINGS = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    elif place.is_symlink() or place.exists():
        place.unlink()


def _file(place: Path) -> None:
    _clear(place)
    place.touch()


def _folder(place: Path) -> None:
    _clear(place)
    place.mkdir()


def _fifo(place: Path) -> None:
    _clear(place)
    os.mkfifo(place)


def _link(place: Path) -> None:
    _clear(place)
    place.symlink_to("d")


def _turn_mode(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        place.chmod(place.stat().st_mode ^ 0o100)
        place.chmod(place.stat().st_mode ^ 0o100)


def _exchange(place: Path) -> None:
    """Another directory with the same name and other contents."""
    if place.is_dir() and not place.is_symlink():
        other = place.with_name("other")
        _folder(other)
        (other / "inner").touch()
        aside = place.with_name("aside")
        place.rename(aside)
        other.rename(place)
        shutil.rmtree(aside)


def _link_to_moved(place: Path) -> None:
    """The directory is elsewhere, and a link to it in its place: what it holds is not below it any more."""
    if place.is_dir() and not place.is_symlink():
        moved = place.with_name("moved")
        _clear(moved)
        place.rename(moved)
        place.symlink_to("moved")


_ACTS: tuple[Callable[[Path], None], ...] = (
    _file,
    _folder,
    _fifo,
    _link,
    _clear,
    _turn_mode,
    _exchange,
    _link_to_moved,
)
CHANGES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(_FOLDERS), st.sampled_from(_NAMES), st.sampled_from(_ACTS)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves see to it that the clock moves on between two acts."""
    monkeypatch.setattr(stat_cache, "_TICK_NS", 0)


async def test_what_is_ignored_by_now_does_not_come_back(repository: Path, store: SnapshotStore, no_wait):
    """A file that is covered no more stays so, also where the store knows the workspace."""
    await store.take("r/a")
    run_git(repository, "rm", "-q", "--cached", "a.txt")
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("a.txt\n")
    trees = set()
    for number in range(3):
        wait_for_tick(repository.parent)
        taken = await store.take(f"r{number}/b")
        trees.add((taken.tree, taken.files))
    assert trees == {(taken.tree, 2)}


async def test_what_was_too_large_is_covered_when_it_is_not(
    repository: Path, store: SnapshotStore, no_wait, monkeypatch
):
    """A file that could not be kept is looked at each time, also where the store knows the workspace."""
    monkeypatch.setattr(capture, "FILE_LIMIT_BYTES", 10)
    (repository / "a.txt").write_text("x" * 20)
    for number in range(3):
        wait_for_tick(repository.parent)
        assert (await store.take(f"r{number}/a")).files == 2
    with (repository / "a.txt").open("r+") as file:
        file.truncate(5)
    wait_for_tick(repository.parent)
    assert (await store.take("r/b")).files == 3


@pytest.mark.slow
@settings(_SETTINGS)
@given(changes=CHANGES)
async def test_whatever_came_or_went_is_seen(changes: list[list[tuple[str, str, Callable[[Path], None]]]]):
    """Whatever came, went or was exchanged, a store that knows the workspace finds what a new store finds."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stat_cache, "_TICK_NS", 0)
        root = Path(top, "project")
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        old = SnapshotStore(root, Path(top, "old"))
        for number, step in enumerate(changes):
            for folder, name, act in step:
                if (root / folder).is_dir():
                    act(root / folder / name)
            wait_for_tick(Path(top))
            found = await old.take("r/a")
            fresh = await SnapshotStore(root, Path(top, f"new{number}")).take("r/a")
            assert (found.tree, found.files, found.skipped) == (fresh.tree, fresh.files, fresh.skipped)
            assert (found.git_entries, set(found.specials)) == (fresh.git_entries, set(fresh.specials))


def _rewrite_rules(root: Path) -> None:
    (root / ".gitignore").write_bytes(b"*.txt\n")


def _exclude(root: Path) -> None:
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("new.txt\n")


def _track_ignored(root: Path) -> None:
    run_git(root, "add", "-f", "x.log")


def _add_name(root: Path) -> None:
    (root / "sub" / "c").touch()


def _nest(root: Path) -> None:
    run_git(root / "sub", "init", "-q")


@pytest.mark.parametrize(
    "change", slow_after(2, [_rewrite_rules, _exclude, _track_ignored, _add_name, _nest])
)
async def test_changed_rules_count(change, repository: Path, store: SnapshotStore, tmp_path: Path, no_wait):
    """After a change of rules, of the index or of names, what is covered is what a new store covers."""
    (repository / ".gitignore").write_bytes(b"*.log\n")
    for name in ("x.log", "new.txt"):
        (repository / name).touch()
    await store.take("r/a")
    change(repository)
    fresh = SnapshotStore(repository, tmp_path / "fresh")
    found, wanted = await store.take("r/b"), await fresh.take("r/b")
    assert found.tree == wanted.tree
    one, other = await store.memo(found.id), await fresh.memo(wanted.id)
    assert (one.ignored, one.rules) == (other.ignored, other.rules)


async def test_a_cache_of_version_0_1_is_not_believed(repository: Path, store: SnapshotStore):
    """What another version kept in its place is as if it were absent: all files are read."""
    first = await store.take("r/a")
    (cache,) = (store.directory / "cache").iterdir()
    # Two of a map: tree, and no files.
    cache.write_bytes(b"\x82\xa4tree\xa8" + first.tree[:8].encode() + b"\xa7private\x90")
    assert (await store.take("r/b")).tree == first.tree


@pytest.mark.slow
@settings(_SETTINGS, max_examples=15)
@given(steps=st.lists(st.lists(st.sampled_from(range(11)), min_size=1, max_size=3), min_size=1, max_size=4))
async def test_a_store_that_knows_the_workspace_keeps_the_same(steps: list[list[int]]):
    """A store that has seen a workspace before keeps what one that sees it for the first time keeps."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stat_cache, "_TICK_NS", 0)
        root = Path(top, "project")
        root.mkdir()
        run_git(root, "init", "-q")
        old = SnapshotStore(root, Path(top, "old"))
        before = None
        for number, step in enumerate(steps):
            for act in step:
                _work(root, act, number)
            wait_for_tick(Path(top))
            fresh = SnapshotStore(root, Path(top, f"new{number}"))
            wanted = (await fresh.take("r/a")).tree
            for again in ("a", "c", "d"):
                assert (await old.take(f"r{number}/{again}")).tree == wanted
            kept = await old.take(f"r{number}/b", base=before)
            if before is not None:
                # By the rules of the one before, which the new store does not know.
                assert (await old.memo(kept.id)).rules == (await old.memo(before)).rules
            before = kept.id


def _work(root: Path, act: int, number: int) -> None:
    """One of the things that happen in a workspace."""
    if act < 3:
        if (root / f"f{act}").is_fifo():
            (root / f"f{act}").unlink()
        (root / f"f{act}").write_text(str(number % 10))  # of one size
    elif act == 3:
        (root / "f0").unlink(missing_ok=True)
    elif act == 4:
        (root / "d" / "e").mkdir(parents=True, exist_ok=True)
        (root / "d" / "e" / f"g{number}").touch()
    elif act == 5:
        (root / ".gitignore").write_text(f"f{number % 3}\n")
    elif act == 6:
        run_git(root, "add", "-A")
    elif act == 7:
        shutil.rmtree(root / "d", ignore_errors=True)
    elif act == 8:
        (root / "f1").unlink(missing_ok=True)
        os.mkfifo(root / "f1")
    elif act == 9:
        run_git(root, "rm", "-q", "-f", "-r", "--cached", "--ignore-unmatch", ".")
    else:
        os.utime(root, (0, 0))

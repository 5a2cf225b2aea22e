"""What a store knows of a workspace never makes a snapshot another one than a first look at it would."""

import contextlib
import os
import shutil
import subprocess
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


def _write(place: Path) -> None:
    """Other contents of the same length."""
    if place.is_file() and not place.is_symlink():
        place.write_text("2" if place.read_text() == "1" else "1")


def _ignore(place: Path) -> None:
    _clear(place.with_name(".gitignore"))
    place.with_name(".gitignore").write_text(f"{place.name}\n")


def _track_all(place: Path) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        if not (place.parent / ".git").exists():
            run_git(place.parent, "init", "-q")
        run_git(place.parent, "add", "-A")


def _track_nothing(place: Path) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        run_git(place.parent, "rm", "-q", "-f", "-r", "--cached", "--ignore-unmatch", ".")


def _turn_time_back(place: Path) -> None:
    os.utime(place.parent, (0, 0))


_ACTS: tuple[Callable[[Path], None], ...] = (
    _file,
    _folder,
    _fifo,
    _link,
    _clear,
    _turn_mode,
    _exchange,
    _link_to_moved,
    _write,
    _ignore,
    _track_all,
    _track_nothing,
    _turn_time_back,
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
            fresh = await SnapshotStore(root, Path(top, f"new{number}")).take("r/a")
            found = await old.take("r/a")
            assert (await old.take("r/b")).tree == found.tree
            assert (found.tree, found.files) == (fresh.tree, fresh.files)
            one, other = found.found, fresh.found
            assert (one.skipped, one.git_entries, one.specials) == (
                other.skipped,
                other.git_entries,
                other.specials,
            )


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

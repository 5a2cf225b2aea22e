"""What is remembered of a tree never tells anything else than a look at it would."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import slow_after

from ringfence.sandbox.workspace.git import command as git
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot import scan, taking
from ringfence.sandbox.workspace.snapshot.known import Names
from ringfence.sandbox.workspace.snapshot.listing import Listing, list_before
from ringfence.sandbox.workspace.snapshot.remembered import Remembered, load_remembered, save_remembered
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore
from ringfence.sandbox.workspace.snapshot.survey import survey

from .conftest import run_git
from .trees import wait_for_tick

pytestmark = pytest.mark.anyio
# ruff: noqa: ASYNC240, PTH - tests prepare their files with plain blocking calls

_FOLDERS = ("", "d", "d/e", "d/e/f", ".git", ".git/objects", "d/.git", ".vscode", "node_modules")
_NAMES = ("a", "b", ".gitignore", ".env", "HEAD", "refs", "objects", "settings.json", "e", "f", "\xe9\n")
_SETTINGS = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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


async def test_what_is_ignored_by_now_does_not_come_back(repository: Path, store: SnapshotStore, no_wait):
    """A file that is covered no more stays so, also where the list of files is remembered."""
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
    """A file that could not be kept is looked at each time, also where the list of files is remembered."""
    monkeypatch.setattr(taking, "FILE_LIMIT_BYTES", 10)
    (repository / "a.txt").write_text("x" * 20)
    for number in range(3):
        wait_for_tick(repository.parent)
        assert (await store.take(f"r{number}/a")).files == 2
    with (repository / "a.txt").open("r+") as file:
        file.truncate(5)
    wait_for_tick(repository.parent)
    assert (await store.take("r/b")).files == 3


@pytest.mark.slow
@_SETTINGS
@given(CHANGES)
def test_a_look_with_a_memory_is_one_without(changes: list[list[tuple[str, str, Callable[[Path], None]]]]):
    """Whatever came, went or was exchanged, a look that remembers the last one finds what one that does not finds."""
    with tempfile.TemporaryDirectory() as top:
        root = Path(top, "tree")
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        remembered = Remembered()
        for step in [[], *changes]:
            for folder, name, act in step:
                place = root / folder
                if place.is_dir() and not place.is_symlink():
                    act(place / name)
            wait_for_tick(Path(top))
            for left_out in ((), {b"node_modules/"}):
                told = survey(
                    root, leave_out=left_out, remembered=remembered, began_ns=2 * root.stat().st_ctime_ns
                )
                assert told == replace(survey(root, leave_out=left_out), is_news=told.is_news)
            assert remembered.folders


@_SETTINGS
@given(CHANGES, st.sets(st.tuples(st.sampled_from(_FOLDERS), st.sampled_from(_NAMES))))
def test_a_look_for_what_is_new_tells_the_rest(
    changes: list[list[tuple[str, str, Callable[[Path], None]]]], known: set[tuple[str, str]]
):
    """A look for files besides those that are known finds all but those, and of what is watched all."""
    paths = {os.fsencode(f"{folder}/{name}".lstrip("/")) for folder, name in known}
    with tempfile.TemporaryDirectory() as top:
        root = Path(top, "tree")
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for folder, name, act in (change for step in changes for change in step):
            place = root / folder
            if place.is_dir() and not place.is_symlink():
                act(place / name)
        whole, rest = survey(root), survey(root, known=Names.of(paths))
        assert rest == replace(whole, files=whole.files - paths, is_news=rest.is_news)


def test_what_was_just_changed_is_not_believed(workspace: Path):
    """Of a directory that changed within a tick of the clock before it was read, nothing is remembered."""
    (workspace / "d").mkdir()
    remembered = Remembered()
    survey(workspace, remembered=remembered, began_ns=workspace.stat().st_ctime_ns)
    assert remembered.folders == {}


def test_a_second_look_reads_no_directory(workspace: Path):
    """Where nothing changed, nothing is read and nothing new is there to be remembered."""
    (workspace / "d").mkdir()
    later = 2 * workspace.stat().st_ctime_ns
    remembered = Remembered()
    first = survey(workspace, remembered=remembered, began_ns=later)
    second = survey(workspace, remembered=remembered, began_ns=0)
    assert (first.is_news, second.is_news) == (True, False)
    assert set(remembered.folders) == {b"", b"d"}


def test_another_users_memory_is_not_used(tmp_path: Path):
    """What one user was shown says nothing of what another one may see; a damaged file says nothing at all."""
    file = tmp_path / "cache" / "key"
    save_remembered(file, Remembered(uid=7, device=1))
    assert load_remembered(file, 7).device == 1
    assert load_remembered(file, 8) == Remembered(uid=8)
    file.write_bytes(b"\xc1")
    assert load_remembered(file, 7) == Remembered(uid=7)


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests themselves see to it that the clock moves on between two acts."""
    monkeypatch.setattr(scan, "_TICK_NS", 0)


async def listed(root: Path, remembered: Remembered | None = None, excludes: bytes = b"") -> Listing:
    """What is found before a run, the clock having moved on."""
    wait_for_tick(root.parent)
    return await list_before(root, Actor.current(), excludes=excludes, remembered=remembered)


@pytest.fixture
def no_git(monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[object]]:
    """Without any git that could be asked."""

    @contextmanager
    def without() -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(git, "git_program", None)
            yield

    return without


async def test_git_is_not_asked_twice(repository: Path, no_wait, no_git):
    """Of a workspace whose directories, rules and index are as they were, git's last answer is taken."""
    remembered = Remembered()
    first = await listed(repository, remembered)
    with no_git():
        second = await listed(repository, remembered)
    assert (second.paths, second.ignored, second.rules) == (first.paths, first.ignored, first.rules)


async def test_git_is_not_asked_again_after_git_status(repository: Path, no_wait):
    """That git renewed the status of files in its index is no reason to ask it again."""
    remembered = Remembered()
    await listed(repository, remembered)
    told = remembered.told
    (repository / "a.txt").touch()
    before = (repository / ".git" / "index").stat().st_ino
    run_git(repository, "status")
    assert (repository / ".git" / "index").stat().st_ino != before
    await listed(repository, remembered)
    assert remembered.told is told


async def test_an_index_that_was_asked_about_is_remembered(repository: Path, no_wait):
    """That git was asked about an index is news once; another index is asked about, whatever its size and times."""
    remembered = Remembered()
    await listed(repository, remembered)
    (repository / "a.txt").touch()
    run_git(repository, "status")
    assert [(await listed(repository, remembered)).is_news for _ in range(2)] == [True, False]
    index = repository / ".git" / "index"
    run_git(repository, "mv", "a.txt", "b.log")
    (repository / "b.log").rename(repository / "a.txt")
    status = index.stat()
    os.utime(index, ns=(status.st_atime_ns, status.st_mtime_ns))
    (repository / ".gitignore").write_bytes(b"*.txt\n")
    found, fresh = await listed(repository, remembered), await listed(repository)
    assert b"a.txt" not in found.paths
    assert (found.paths, found.ignored) == (fresh.paths, fresh.ignored)


async def test_that_there_is_no_index_is_remembered(workspace: Path, no_wait, no_git):
    """Of a directory that is no repository git is asked once; once it is one, its index counts."""
    (workspace / "a.log").touch()
    remembered = Remembered()
    first = await listed(workspace, remembered)
    with no_git():
        assert (await listed(workspace, remembered)).paths == first.paths == {b"a.log"}
    run_git(workspace, "init", "-q")
    run_git(workspace, "add", "a.log")
    (workspace / ".gitignore").write_bytes(b"*.log\n")
    found, fresh = await listed(workspace, remembered), await listed(workspace)
    assert found.paths == fresh.paths == {b"a.log", b".gitignore"}


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
async def test_an_answer_that_may_be_another_is_not_taken(change, repository: Path, no_wait):
    """After a change of rules, of the index or of names git is asked again, and its answer counts."""
    (repository / ".gitignore").write_bytes(b"*.log\n")
    for name in ("x.log", "new.txt"):
        (repository / name).touch()
    remembered = Remembered()
    await listed(repository, remembered)
    assert remembered.told is not None
    change(repository)
    found, fresh = await listed(repository, remembered), await listed(repository)
    assert (found.paths, found.ignored, found.rules) == (fresh.paths, fresh.ignored, fresh.rules)


async def test_your_own_rules_are_part_of_the_question(repository: Path, no_wait):
    """Rules of the user's that hold everywhere are not taken for those of another time."""
    remembered = Remembered()
    await listed(repository, remembered)
    assert b"a.txt" in (await listed(repository, remembered, b"run.sh\n")).paths
    (repository / "new.sh").touch()
    await listed(repository, remembered)
    assert b"new.sh" not in (await listed(repository, remembered, b"*.sh\n")).paths


async def test_repositories_within_are_asked_each_time(repository: Path, no_wait):
    """Git opens a repository within, so no answer about it is kept."""
    run_git(repository, "init", "-q", "lib")
    (repository / "lib" / "x").touch()
    remembered = Remembered()
    await listed(repository, remembered)
    shutil.rmtree(repository / "lib" / ".git" / "refs")
    found, fresh = await listed(repository, remembered), await listed(repository)
    assert remembered.told is None
    assert found.paths == fresh.paths


@pytest.mark.slow
@settings(_SETTINGS, max_examples=15)
@given(steps=st.lists(st.lists(st.sampled_from(range(11)), min_size=1, max_size=3), min_size=1, max_size=4))
async def test_checkpoints_with_a_memory_are_those_without(steps: list[list[int]]):
    """A store that has seen a workspace before keeps what one that sees it for the first time keeps."""
    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_TICK_NS", 0)
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

"""What was in a workspace before a run and was not touched by it is never touched by taking the run back."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import slow_after

from ringfence.sandbox.workspace.git.config import read_settings
from ringfence.sandbox.workspace.git.layout import find_git
from ringfence.sandbox.workspace.restore import Restored, WorkspaceConflict, restore
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

# ruff: noqa: ASYNC221 - tests prepare their files with plain blocking calls
pytestmark = pytest.mark.anyio

FOLDERS = ["", "sub/", "sub/deep/", "other/"]
NAMES = ["a", "b.txt", "c.log", "d.key"]
PATHS = [folder + name for folder in FOLDERS for name in NAMES]
RULES = ["*.txt", "*.log", "/sub", "deep/", "sub/*", "!c.log", "!sub/a", "*.key ", "/other/b.txt", "*"]
SOURCES = [".gitignore", "sub/.gitignore", ".git/info/exclude", "sub/.git/info/exclude", None]


async def take_back(store: SnapshotStore, before: str) -> Restored:
    """End the run and undo it."""
    after = await store.take("r/after", base=before)
    return await restore(store, wanted=before, expected=after.id, label="r/beforeundo")


@pytest.fixture
def exclude(repository: Path, ground: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Ignore `notes.txt` and `sub/notes.txt` in one of the ways that git knows."""

    def by(source: str) -> None:
        home = ground / "config"
        (home / "git").mkdir(parents=True)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        files = {
            "info/exclude": repository / ".git" / "info" / "exclude",
            "core.excludesFile": ground / "named",
            "the default file": home / "git" / "ignore",
        }
        files[source].write_text("notes.txt\n")
        (ground / "gitconfig").write_text(f"[core]\n\texcludesFile = {ground / 'named'}\n")
        if source == "core.excludesFile":
            monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(ground / "gitconfig"))

    return by


@pytest.mark.parametrize("source", slow_after(1, ["info/exclude", "core.excludesFile", "the default file"]))
@pytest.mark.parametrize("act", ["touch made", "echo x > .gitignore", "git init -q sub", "rm -rf sub/b.txt"])
async def test_ignored_files_stay(
    source: str, act: str, repository: Path, state: Path, exclude: Callable[[str], None]
):
    """However they are ignored and whatever the run did to the rules, they are neither told nor deleted."""
    exclude(source)
    settings_ = await read_settings(Actor.current(), repository, find_git(repository))
    later = SnapshotStore(repository, state)
    (repository / "notes.txt").write_text("MINE")
    (repository / "sub" / "notes.txt").write_text("MINE")
    before = await SnapshotStore(repository, state, excludes=settings_.excludes).take("r/before")
    subprocess.run(["/bin/sh", "-c", act], cwd=repository, check=True)
    done = await take_back(later, before.id)
    assert [name for name in done.diff.files if "notes" in name.path] == []
    assert (repository / "notes.txt").read_text() == "MINE"
    assert (repository / "sub" / "notes.txt").read_text() == "MINE"


async def test_a_repository_within_that_is_gone(repository: Path, store: SnapshotStore, git):
    """What its own rules ignored is not the run's, though the rules went with it."""
    (repository / "inner").mkdir()
    git(repository / "inner", "init", "-q")
    (repository / "inner" / ".git" / "info" / "exclude").write_text("mine\n")
    (repository / "inner" / "mine").write_text("MINE")
    before = await store.take("r/before")
    shutil.rmtree(repository / "inner" / ".git")
    await take_back(store, before.id)
    assert (repository / "inner" / "mine").read_text() == "MINE"


async def test_a_file_that_nothing_holds_is_not_replaced(repository: Path, store: SnapshotStore):
    """An ignored file made after the run, where the run had deleted one, is in the way unless forced."""
    (repository / ".gitignore").write_text("a.txt\n")
    before = await store.take("r/before")
    (repository / "a.txt").unlink()
    after = await store.take("r/after", base=before.id)
    (repository / "a.txt").write_text("MINE")
    with pytest.raises(WorkspaceConflict, match="ignored"):
        await restore(store, wanted=before.id, expected=after.id, label="r/u")
    assert (repository / "a.txt").read_text() == "MINE"
    await restore(store, wanted=before.id, expected=after.id, label="r/u", force=True, way_back="r/back")
    assert (repository / "a.txt").read_text() == "one\n"
    back = await store.find("r/back")
    assert back is not None
    await restore(store, wanted=back, expected=before.id, label="r/u")
    assert (repository / "a.txt").read_text() == "MINE"


async def test_a_file_that_cannot_be_kept_is_not_overwritten(repository: Path, store: SnapshotStore):
    """One too large for a checkpoint, in the place of a file that the run deleted, is in the way even when forced."""
    before = await store.take("r/before")
    (repository / "a.txt").unlink()
    after = await store.take("r/after", base=before.id)
    with (repository / "a.txt").open("wb") as file:
        file.truncate(101 * 1024**2)
    for force in (False, True):
        with pytest.raises(WorkspaceConflict, match=r"a\.txt"):
            await restore(store, wanted=before.id, expected=after.id, label="r/u", force=force)
    assert (repository / "a.txt").stat().st_size == 101 * 1024**2


async def test_what_the_run_made_unreadable_is_no_obstacle(repository: Path, store: SnapshotStore):
    """A file that the run replaced by one too large to keep is taken back without force."""
    before = await store.take("r/before")
    with (repository / "a.txt").open("wb") as file:
        file.truncate(101 * 1024**2)
    await take_back(store, before.id)
    assert (repository / "a.txt").read_text() == "one\n"


def write(root: Path, path: str, text: str) -> None:
    """Write a file, unless something is in its way."""
    file = root / path
    if not any(parent.is_file() for parent in file.parents):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def files_of(root: Path) -> dict[Path, tuple[bytes, int, int]]:
    """Each file outside git directories: contents, inode, time."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file() and ".git" not in path.relative_to(root).parts:
            found[path] = (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
    return found


ACTS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from([*PATHS, ".gitignore", "sub/.gitignore"])),
    st.tuples(st.just("remove"), st.sampled_from([*PATHS, ".gitignore", "sub/.gitignore"])),
    st.tuples(st.sampled_from(["init", "uninit"]), st.sampled_from(["sub", "sub/deep", "other"])),
)


def act_on(root: Path, act: str, path: str) -> None:
    """One thing that a run does."""
    if act == "write":
        write(root, path, "!*\n*.key\n")
    elif act == "remove":
        (root / path).unlink(missing_ok=True)
    elif act == "init" and (root / path).is_dir():
        subprocess.run(["git", "init", "-q", str(root / path)], check=True, capture_output=True)
    elif act == "uninit":
        shutil.rmtree(root / path / ".git", ignore_errors=True)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    mine=st.sets(st.sampled_from(PATHS), min_size=1),
    rules=st.lists(st.tuples(st.sampled_from(SOURCES), st.sampled_from(RULES)), max_size=4),
    nested=st.booleans(),
    acts=st.lists(ACTS, max_size=6),
)
async def test_untouched_files_are_never_touched(
    mine: set[str], rules: list[tuple[str | None, str]], nested: bool, acts: list[tuple[str, str]]
):
    """Any file there before and not changed by the run has the contents, inode and time that it had."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "project"
        for path in mine:
            write(root, path, "MINE")
        for repository in (root, root / "sub") if nested else (root,):
            subprocess.run(["git", "init", "-q", str(repository)], check=True, capture_output=True)
        own = "\n".join(rule for source, rule in rules if source is None)
        for source, rule in rules:
            if source is not None and (nested or not source.startswith("sub/.git/")):
                write(root, source, rule + "\n")
        before = await SnapshotStore(root, Path(place) / "state", excludes=own.encode()).take("r/before")
        had = files_of(root)
        for act, path in acts:
            act_on(root, act, path)
        left = files_of(root)
        await take_back(SnapshotStore(root, Path(place) / "state"), before.id)
        now = files_of(root)
    untouched = {path for path in had if left.get(path) == had[path]}
    assert {path: now.get(path) for path in untouched} == {path: had[path] for path in untouched}

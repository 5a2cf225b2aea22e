"""A snapshot covers what git would track or offer to add, though git never enters the workspace."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.sandbox.workspace.protect.repositories import distrust
from ringfence.sandbox.workspace.snapshot import index
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

from .conftest import run_git

pytestmark = pytest.mark.anyio


_FOLDERS = ("", "a", "a/b", "b", "b/c", "logs", "in", "[x]")
_NAMES = ("a", "x.o", "c", "keep.o", "y.log", " z", "#x", "!x", "a ")
_LINES = st.sampled_from(
    [
        "*.o",
        "!keep.o",
        "b/",
        "/a",
        "!/a/",
        "a/b",
        "**/c",
        "a/**",
        "logs/*",
        "!logs/c",
        "c/ ",
        "\\ z",
        "*",
        "!*/",
        "!x.o",
        "# x",
        "\\#x",
        "\\!x",
        "a ",
        "a\\ ",
        "[ab]",
        "?",
    ]
)


def sparse(path: Path, size: int, start: bytes = b"") -> None:
    """A file that takes no room on disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(
    rules=st.dictionaries(st.sampled_from(_FOLDERS), st.lists(_LINES, max_size=4), max_size=4),
    tracked=st.sets(st.tuples(st.sampled_from(_FOLDERS), st.sampled_from(_NAMES)), max_size=4),
    nested=st.booleans(),
)
async def test_covered_is_what_git_lists(
    rules: dict[str, list[str]], tracked: set[tuple[str, str]], nested: bool
):
    """Whatever the rules, wherever they are: the files of a snapshot are those that `git ls-files` names.

    And those of the next one, by the rules of the first.
    """
    with tempfile.TemporaryDirectory() as top:
        root = Path(top, "project")
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name in _NAMES:
                if f"{folder}/{name}".lstrip("/") not in _FOLDERS:
                    (root / folder / name).touch()
        run_git(root, "init", "-q")
        added = [f"{folder}/{name}".lstrip("/") for folder, name in tracked]
        added = [path for path in added if (root / path).is_file()]
        if added:
            run_git(root, "add", "-f", "--", *added)
        if nested and not any(path.startswith("in/") for path in added):
            run_git(root / "in", "init", "-q")
        for folder, lines in rules.items():
            (root / folder / ".gitignore").write_text("\n".join(lines))
        wanted = _listed(root)
        store = SnapshotStore(root, Path(top, "state"))
        taken = await store.take("r/a")
        assert {os.fsdecode(blob.path) for blob in await store.blobs(taken.id)} == wanted
        again = await store.take("r/b", base=taken.id)
        assert again.tree == taken.tree


def _listed(root: Path, place: str = "") -> set[str]:
    command = ["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    lines = (
        subprocess.run(command, cwd=root / place, check=True, capture_output=True).stdout.decode().split("\0")
    )
    found: set[str] = set()
    for line in filter(None, lines):
        found |= _listed(root, place + line) if line.endswith("/") else {place + line}
    return found


async def test_what_a_run_adds_by_the_rules_from_before(repository: Path, store: SnapshotStore):
    """A name that a rule excepts is reported though all beside it is ignored; what the rules ignore is not.

    Directories that hold nothing, or nothing but ignored files, are not ignored themselves.
    """
    for path in ("logs/old", "objects/x.o"):
        (repository / path).parent.mkdir()
        (repository / path).touch()
    (repository / "empty").mkdir()
    (repository / ".gitignore").write_text("logs/*\n!logs/keep\nbuild/\n*.o\n")
    before = await store.take("r/before")
    (repository / "build" / "deep").mkdir(parents=True)
    for path in ("logs/keep", "logs/new", "build/deep/x", "objects/new", "empty/new"):
        (repository / path).touch()
    after = await store.take("r/after", base=before.id)
    changes = (await store.diff(before.id, after.id)).files
    assert [change.path for change in changes] == ["empty/new", "logs/keep", "objects/new"]


async def test_tracked_files_in_an_ignored_directory_are_covered(repository: Path, store: SnapshotStore, git):
    """Of an ignored directory the files that git tracks are covered, before a run and after one."""
    (repository / "build").mkdir()
    (repository / "build" / "kept").write_text("1")
    (repository / "build" / "left").write_text("1")
    git(repository, "add", "-f", "build/kept")
    (repository / ".gitignore").write_text("build/\n")
    before = await store.take("r/before")
    assert b"build/kept" in {blob.path for blob in await store.blobs(before.id)}
    assert before.files == 5
    for name in ("kept", "left"):
        (repository / "build" / name).write_text("22")
    after = await store.take("r/after", base=before.id)
    assert [change.path for change in (await store.diff(before.id, after.id)).files] == ["build/kept"]


async def test_an_ignored_repository_is_not_covered(repository: Path, store: SnapshotStore, git):
    """A repository in an ignored directory is left out as a whole, as git leaves it out."""
    (repository / ".gitignore").write_text("vendor/\n")
    (repository / "vendor" / "lib").mkdir(parents=True)
    git(repository / "vendor" / "lib", "init", "-q")
    (repository / "vendor" / "lib" / "x").touch()
    taken = await store.take("r/x")
    assert taken.files == 4
    assert (await store.memo(taken.id)).ignored == {b"vendor/"}


async def test_indexes_are_bounded_together(
    repository: Path, store: SnapshotStore, git, monkeypatch: pytest.MonkeyPatch
):
    """Indexes of repositories within that come to more than there is room for are not copied, and that is told."""
    monkeypatch.setattr(index, "_ROOM_WITHIN_BYTES", 1024**2)
    for number in range(4):
        git(repository, "init", "-q", f"n{number}")
        sparse(repository / f"n{number}" / ".git" / "index", 600 * 1024, b"DIRC")
    taken = await store.take("r/x")
    assert sum("too large to be used" in note for note in taken.notes) == 3


async def test_a_split_index_is_used(repository: Path, store: SnapshotStore, git):
    """A file that only the shared part of a split index tracks is covered, though it is ignored."""
    (repository / "x.log").touch()
    git(repository, "add", "x.log")
    git(repository, "update-index", "--split-index")
    (repository / ".gitignore").write_text("*.log\n")
    taken = await store.take("r/x")
    assert b"x.log" in {blob.path for blob in await store.blobs(taken.id)}


async def test_what_is_tracked_is_as_the_index_says_now(repository: Path, store: SnapshotStore, git):
    """An ignored file is covered for as long as the user tracks it, though only the index changes."""
    (repository / ".gitignore").write_text("*.log\n")
    (repository / "x.log").touch()
    covered = []
    for command in ([], ["add", "-f", "x.log"], [], ["rm", "-q", "--cached", "x.log"]):
        if command:
            git(repository, *command)
        taken = await store.take("r/x")
        covered.append(b"x.log" in {blob.path for blob in await store.blobs(taken.id)})
    assert covered == [False, True, True, False]


async def test_objects_that_an_agent_could_write_are_not_read(
    repository: Path, store: SnapshotStore, git, tmp_path: Path
):
    """What a sparse index leaves out git reads from the objects, but not of a repository that a run made."""
    git(repository, "reset", "-q", "--hard")  # the status of a copied file is not that in the index
    git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "nothing")
    (repository / ".gitignore").write_text("sub/\n")
    (repository / "sub").mkdir()
    (repository / "sub" / "b.txt").write_text("tracked, and ignored")

    async def covered(store: SnapshotStore) -> set[bytes]:
        return {blob.path for blob in await store.blobs((await store.take("r/x")).id)}

    distrust(repository, "a-run", store.state)
    assert b"sub/b.txt" not in await covered(store)
    assert b"sub/b.txt" in await covered(SnapshotStore(repository, tmp_path / "another-state"))


@pytest.mark.parametrize("place", [".", "inner"])
async def test_a_repository_that_a_run_made_has_no_say(
    repository: Path, store: SnapshotStore, git, place: str
):
    """Neither its own ignore rules nor its index decide what a later run is seen to change."""
    (repository / place).mkdir(exist_ok=True)
    git(repository / place, "init", "-q")
    (repository / place / ".git" / "info" / "exclude").write_text("*.txt\n")
    (repository / place / "new.txt").write_text("made by the next run")
    distrust(repository / place, "a-run", store.state)
    taken = await store.take("r/x")
    path = b"new.txt" if place == "." else f"{place}/new.txt".encode()
    assert path in {blob.path for blob in await store.blobs(taken.id)}


async def test_a_repository_around_tracked_files_has_no_say(repository: Path, store: SnapshotStore, git):
    """Where the index holds files below a directory, git takes it for one, whatever repository is in it; so do we."""
    (repository / "sub" / ".git" / "info").mkdir(parents=True)
    (repository / "sub" / ".git" / "objects").mkdir()
    (repository / "sub" / ".git" / "refs").mkdir()
    (repository / "sub" / ".git" / "HEAD").write_text("ref: refs/heads/x\n")
    (repository / "sub" / ".git" / "info" / "exclude").write_text("*\n")
    (repository / "sub" / "new.txt").write_text("new")
    assert "sub/new.txt" in git(repository, "ls-files", "-o", "--exclude-standard")
    taken = await store.take("r/x")
    assert b"sub/new.txt" in {blob.path for blob in await store.blobs(taken.id)}


async def test_rules_are_bounded_together(repository: Path, store: SnapshotStore):
    """Rules in hundreds of sparse files cost next to nothing, those at the top hold, and the rest is told."""
    (repository / ".gitignore").write_text("*.log\n")
    for number in range(20):
        (repository / f"d{number}").mkdir()
        sparse(repository / f"d{number}" / ".gitignore", 1024**2)
    taken = await store.take("r/x")
    rules = (await store.memo(taken.id)).rules
    assert sum(map(len, rules.files.values())) <= 8 * 1024**2
    assert rules.files[b".gitignore"] == b"*.log\n"
    assert any("bytes of ignore rules" in note for note in taken.notes)


async def test_rules_are_counted_as_they_are_written_out(repository: Path, store: SnapshotStore):
    """Rules that are short, but many and deep, count with the path that each will begin with."""
    folder = repository / ("d" * 200) / ("e" * 200)
    folder.mkdir(parents=True)
    (folder / ".gitignore").write_bytes(b"a\n" * 100_000)
    assert (await store.memo((await store.take("r/x")).id)).rules.files == {}

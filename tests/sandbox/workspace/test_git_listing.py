"""What is taken from the repositories in a workspace is bounded as a whole."""

from pathlib import Path

import pytest

from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.git_listing import GitLister
from ringfence.sandbox.workspace.snapshot.listing import Listing, list_before

pytestmark = pytest.mark.anyio


def sparse(path: Path, size: int, start: bytes = b"") -> None:
    """A file that takes no room on disk."""
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)


def disk_used(folder: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


async def listed(workspace: Path) -> Listing:
    """What is found before a run."""
    return await list_before(workspace, Actor.current())


async def test_shared_indexes_that_nothing_names_stay_where_they_are(repository: Path, tmp_path: Path, git):
    """Of the shared indexes in repositories within none is copied that the index does not name."""
    for name in ("n1", "n2"):
        git(repository, "init", "-q", name)
        (repository / name / ".git" / "index").write_bytes(b"x")
        for number in range(4):
            sparse(repository / name / ".git" / f"sharedindex.{number}", 60 * 1024**2)
    await GitLister(repository, Actor.current(), b"", tmp_path).list_all()
    assert disk_used(tmp_path) < 1024**2


async def test_indexes_are_bounded_together(repository: Path, tmp_path: Path, git):
    """Indexes of repositories within that come to more than there is room for are not copied, and that is told."""
    for number in range(4):
        git(repository, "init", "-q", f"n{number}")
        sparse(repository / f"n{number}" / ".git" / "index", 600 * 1024, b"DIRC")
    lister = GitLister(repository, Actor.current(), b"", tmp_path, _room_within=1024**2)
    await lister.list_all()
    assert disk_used(tmp_path) < 2 * 1024**2
    assert sum("too large to be used" in note for note in lister.notes) == 3


async def test_a_split_index_is_used(repository: Path, git):
    """A file that only the shared part of a split index tracks is covered, though it is ignored."""
    (repository / "x.log").touch()
    git(repository, "add", "x.log")
    git(repository, "update-index", "--split-index")
    (repository / ".gitignore").write_text("*.log\n")
    assert b"x.log" in (await listed(repository)).paths


async def test_rules_are_bounded_together(repository: Path):
    """Rules in hundreds of sparse files cost next to nothing, and those that do not hold are told."""
    for number in range(20):
        (repository / f"d{number}").mkdir()
        sparse(repository / f"d{number}" / ".gitignore", 1024**2)
    found = await listed(repository)
    assert sum(map(len, found.rules.files.values())) <= 8 * 1024**2
    assert any("bytes of ignore rules" in note for note in found.notes)


async def test_rules_are_counted_as_they_are_written_out(repository: Path):
    """Rules that are short, but many and deep, count with the path that each will begin with."""
    folder = repository / ("d" * 200) / ("e" * 200)
    folder.mkdir(parents=True)
    (folder / ".gitignore").write_bytes(b"a\n" * 100_000)
    assert (await listed(repository)).rules.files == {}


async def test_the_first_rules_hold(repository: Path):
    """A flood further down does not take away the rules at the top."""
    (repository / ".gitignore").write_text("*.log\n")
    for number in range(20):
        (repository / f"d{number}").mkdir()
        sparse(repository / f"d{number}" / ".gitignore", 1024**2)
    (repository / "x.log").touch()
    found = await listed(repository)
    assert found.rules.files[b".gitignore"] == b"*.log\n"

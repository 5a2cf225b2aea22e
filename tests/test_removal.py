"""Removing what an agent may have written."""

import os
from pathlib import Path

import pytest

from ringfence.removal import put_in_place, remove_tree


def _nest(top: Path, depth: int) -> None:
    """Directories in directories, deeper than a path may be long."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here), here
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
        os.close(above)
    os.close(here)


@pytest.mark.slow
def test_depth_does_not_matter(tmp_path: Path):
    """Neither recursion nor one descriptor for each level gets through 1,100 of them."""
    tree = tmp_path / "tree"
    tree.mkdir()
    _nest(tree, 1100)
    remove_tree(tree)
    assert not tree.exists()


def test_directories_closed_to_their_owner_are_opened(tmp_path: Path):
    """The top one, too."""
    inner = tmp_path / "tree" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    for place in (inner, inner.parent, inner.parent.parent):
        place.chmod(0)
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path):
    """What they lead to stays as it is, with its permissions."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (tmp_path / "tree" / "a").mkdir(parents=True)
    for place in (tmp_path / "tree", tmp_path / "tree" / "a"):
        (place / "link").symlink_to(outside)
    remove_tree(tmp_path / "tree")
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_link_in_place_of_the_tree_is_refused(tmp_path: Path):
    """Nothing is removed behind it."""
    (tmp_path / "kept").touch()
    (tmp_path / "tree").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept").exists()


def test_odd_names_and_kinds_are_removed(tmp_path: Path):
    """Names that are no UTF-8, pipes, and more of them beside each other than are read at once."""
    tree = tmp_path / "tree"
    (tree / os.fsdecode(b"\xff\n") / "inner").mkdir(parents=True)
    for number in range(1100):
        os.mkfifo(tree / str(number))
    remove_tree(tree)
    assert not tree.exists()


def test_it_ends_where_somebody_goes_on_writing(tmp_path: Path):
    """A directory that is not empty when the time is up stays; one that is goes."""
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    with pytest.raises(TimeoutError, match="not get empty"):
        remove_tree(tree, limit_s=0)
    (tree / "inner").rmdir()
    remove_tree(tree, limit_s=0)
    assert not tree.exists()


def test_in_place_of(tmp_path: Path) -> None:
    """A directory takes another's place, of which nothing is left."""
    for name in ("old", "fresh"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    put_in_place(tmp_path / "fresh", tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["fresh"]

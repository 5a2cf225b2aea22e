"""A tree is the attested one byte for byte, or the first path at which it is not is named."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ringfence.errors import RingfenceError, UsageError
from ringfence.integrations.attestation.comparison import Comparison, compare_commit, compare_tree
from ringfence.integrations.attestation.manifest import FileEntry

from .statements import list_files

GIT = ["git", "-c", "user.name=T", "-c", "user.email=t@t", "-c", "core.hooksPath=/dev/null"]
ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def git(place: Path, *words: str) -> str:
    """Run git in a directory."""
    done = subprocess.run(
        [*GIT, *words], cwd=place, env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with each kind of file that can be attested."""
    root = tmp_path / "tree"
    (root / "lib" / "deep").mkdir(parents=True)
    (root / "README").write_text("read me\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "lib" / "deep" / "a.py").write_text("A = 1\n")
    (root / "link").symlink_to("lib/deep")
    (root / "empty").touch()
    (root / os.fsdecode(b"not\xffutf-8 %41")).write_text("x")
    return root


@pytest.fixture
def repository(root: Path) -> Path:
    """The same tree as the one commit of a repository."""
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def compare(root: Path, files: tuple[FileEntry, ...], **options: bool) -> Comparison:
    """Compare a tree of which the manifest covers everything."""
    return compare_tree(root, files, (), **options)


def test_the_tree_itself_is_the_attested_one(repository: Path) -> None:
    """Nothing differs, and git's id is the one that git gives the tree."""
    files, _ = list_files(repository)
    found = compare(repository, files)
    assert (found.difference, found.tree) == (None, git(repository, "rev-parse", "HEAD^{tree}"))
    assert found.untracked_count == 0


def test_a_copy_without_git_is_the_attested_one(root: Path) -> None:
    """A tree from an archive needs no repository."""
    assert compare(root, list_files(root)[0]).difference is None


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "content": (lambda root: (root / "README").write_text("read Me\n"), "README", "has other content"),
    "longer": (lambda root: (root / "README").write_text("read me\n\n"), "README", "has other content"),
    "huge": (lambda root: os.truncate(root / "README", 1 << 40), "README", "has other content"),
    "mode": (lambda root: (root / "README").chmod(0o755), "README", "is executable"),
    "no mode": (lambda root: (root / "run.sh").chmod(0o644), "run.sh", "is not executable"),
    "removed": (lambda root: (root / "run.sh").unlink(), "run.sh", "is missing"),
    "directory removed": (lambda root: shutil.rmtree(root / "lib"), "lib/deep/a.py", "is missing"),
    "case": (lambda root: (root / "README").rename(root / "readme"), "README", "is missing"),
    "link": (
        lambda root: _replace(root / "link", lambda path: path.symlink_to("lib")),
        "link",
        "leads elsewhere",
    ),
    "link to file": (
        lambda root: _replace(root / "link", lambda path: path.write_text("lib/deep")),
        "link",
        "is a file and not a link",
    ),
    "file to link": (
        lambda root: _replace(root / "README", lambda path: path.symlink_to("run.sh")),
        "README",
        "is a link",
    ),
    "fifo": (lambda root: _replace(root / "README", os.mkfifo), "README", "is a pipe"),
    "directory": (lambda root: _replace(root / "README", os.mkdir), "README", "is a directory"),
    "linked directory": (
        lambda root: (
            (root / "lib").rename(root.parent / "away").parent.joinpath("tree/lib").symlink_to("../away")
        ),
        "lib/deep/a.py",
        "is missing",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_first_difference_is_named(repository: Path, change: str) -> None:
    """Whatever differs is found, also what git would not report; nothing is followed, and nothing blocks."""
    files, _ = list_files(repository)
    make, path, what = CHANGES[change]
    make(repository)
    difference = compare(repository, files).difference
    assert difference is not None
    assert (os.fsdecode(difference.path), difference.what) == (path, what)


def test_a_change_that_the_index_hides_is_found(repository: Path) -> None:
    """Bytes in the work tree are compared, and not what git's index says about them."""
    files, _ = list_files(repository)
    git(repository, "update-index", "--assume-unchanged", "README")
    (repository / "README").write_text("evil")
    assert git(repository, "status", "--porcelain") == ""
    difference = compare(repository, files).difference
    assert difference is not None
    assert difference.path == b"README"


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_a_file_that_git_tracks_must_be_attested(repository: Path, version: str) -> None:
    """In an index of each version."""
    files, _ = list_files(repository)
    (repository / "lib" / "added\n\x1b[2J").write_text("")
    (repository / "lib" / "later").write_text("")
    git(repository, "add", "-A")
    git(repository, "add", "--intent-to-add", "-A")  # an extended entry, as version 3 has
    git(repository, "update-index", "--index-version", version)
    difference = compare(repository, files).difference
    assert difference is not None
    assert (difference.path, difference.what) == (b"lib/added\n\x1b[2J", "is not in the attested tree")


def test_untracked_files_are_counted_and_named(repository: Path) -> None:
    """They do not make the tree another one, unless all files are compared; without git each file counts."""
    files, _ = list_files(repository)
    (repository / ".git" / "info" / "exclude").write_text("build\n")
    (repository / "build").mkdir()
    for name in "abcdefg":
        (repository / "build" / name).touch()
    found = compare(repository, files)
    assert (found.difference, found.untracked_count, found.untracked[0]) == (None, 7, b"build/a")
    for changed in (compare(repository, files, all_files=True), _without_git(repository, files)):
        assert changed.difference is not None
        assert changed.difference.path == b"build/a"


def _without_git(root: Path, files: tuple[FileEntry, ...]) -> Comparison:
    shutil.rmtree(root / ".git")
    return compare(root, files)


def test_a_directory_of_a_repository_is_compared_as_git_tracks_it(repository: Path) -> None:
    """A workspace may be a part of a repository."""
    part = repository / "lib"
    files, _ = list_files(part)
    (part / "left.o").touch()
    found = compare(part, files)
    assert (found.difference, found.untracked) == (None, (b"left.o",))
    git(repository, "add", "-A")
    assert compare(part, files).difference is not None


def test_each_file_of_a_submodule_counts(repository: Path, tmp_path: Path) -> None:
    """The index of a repository lists a commit for it, and not its files."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "x").write_text("x")
    git(inner, "init", "-q")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "x")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    files, _ = list_files(repository)
    assert compare(repository, files).difference is None
    (repository / "sub" / "evil.py").touch()
    difference = compare(repository, files).difference
    assert difference is not None
    assert difference.path == b"sub/evil.py"


def test_a_file_that_no_snapshot_held_is_a_difference(root: Path) -> None:
    """An agent that keeps files from a snapshot must not have them accepted; the message says why."""
    files, _ = list_files(root)
    (root / "large.bin").touch()
    (root / "data").mkdir()
    (root / "data" / "x").touch()
    for gaps in (("data/", "large.bin"), ("./",)):
        difference = compare_tree(root, files, gaps).difference
        assert difference is not None
        assert (difference.path, difference.what[:35]) == (b"data/x", "is not covered by the statement, as")


def test_a_submodule_that_is_not_checked_out_is_named(repository: Path) -> None:
    """No file says which commit of it the tree has."""
    files, _ = list_files(repository)
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},vendor")
    (repository / "vendor").mkdir()
    found = compare(repository, files)
    assert (found.difference, found.absent) == (None, (b"vendor/",))


def test_a_repository_in_the_tree_is_named(root: Path) -> None:
    """No snapshot holds what is in a `.git`, and no comparison reads it."""
    files, _ = list_files(root)
    (root / "lib" / ".git" / "hooks").mkdir(parents=True)
    (root / "lib" / ".git" / "hooks" / "pre-commit").touch()
    found = compare(root, files)
    assert (found.difference, found.nested) == (None, (b"lib/.git",))


def test_a_directory_that_cannot_be_read_is_named(repository: Path) -> None:
    """Where git decides which files count, it is named if git tracks nothing in it; otherwise it is a difference."""
    files, _ = list_files(repository)
    here = repository
    for _ in range(300):
        here = here / "d"
        here.mkdir()
    found = compare(repository, files)
    assert (found.difference, len(found.unread)) == (None, 1)
    strict = compare(repository, files, all_files=True).difference
    assert strict is not None
    assert (strict.path[:4], strict.what) == (b"d/d/", "cannot be read, or is nested too deep")


def test_a_broken_index_is_an_error(repository: Path) -> None:
    """It is never taken for one without files; a split index is refused with the way out."""
    files, _ = list_files(repository)
    git(repository, "update-index", "--split-index")
    with pytest.raises(RingfenceError, match="--no-split-index"):
        compare(repository, files)
    for data in (b"DIRC", b"", b"DIRC\0\0\0\4\xff\xff\xff\xff" + bytes(40)):
        (repository / ".git" / "index").write_bytes(data or b"\0" * 100)
        with pytest.raises(RingfenceError, match="--all-files"):
            compare(repository, files)
    assert compare(repository, files, all_files=True).difference is None


def test_a_hostile_git_link_is_not_followed(repository: Path, tmp_path: Path) -> None:
    """A `.git` that leads elsewhere decides nothing."""
    files, _ = list_files(repository)
    (repository / ".git").rename(tmp_path / "elsewhere")
    (repository / ".git").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RingfenceError, match="is neither a directory nor a file"):
        compare(repository, files)


def test_a_commit_is_compared_by_its_objects(repository: Path) -> None:
    """Whatever is on disk; a branch, a tag of a tag and an id name it."""
    files, _ = list_files(repository)
    git(repository, "tag", "-am", "x", "v1")
    (repository / "README").write_text("changed")

    def check(rev: str) -> Comparison:
        return anyio.run(compare_commit, repository, rev, files, ())

    tree = git(repository, "rev-parse", "HEAD^{tree}")
    for rev in ("HEAD", "v1", git(repository, "rev-parse", "HEAD")):
        assert (check(rev).difference, check(rev).tree) == (None, tree)
    git(repository, "commit", "-qam", "second")
    difference = check("HEAD").difference
    assert difference is not None
    assert (difference.path, difference.what) == (b"README", "has other content")
    with pytest.raises(UsageError, match="no branch, tag or whole commit id"):
        check("HEAD~1")


def test_a_replaced_object_is_noticed(repository: Path) -> None:
    """Git does not check a loose object's id when it reads it, so this does."""
    files, _ = list_files(repository)
    blob = git(repository, "rev-parse", "HEAD:README")
    (repository / "evil").write_text("read Me\n")
    evil = git(repository, "hash-object", "-w", "evil")
    objects = repository / ".git" / "objects"
    target = objects / blob[:2] / blob[2:]
    target.chmod(0o644)
    shutil.copy(objects / evil[:2] / evil[2:], target)
    with pytest.raises(RingfenceError, match=r"is not what its id|failed with"):
        anyio.run(compare_commit, repository, "HEAD", files, ())

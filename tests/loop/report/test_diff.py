"""Patches as a report shows them, whatever stands in the files and however long they are."""

import os
import subprocess
from pathlib import Path

import pytest

from ringfence.loop.report.diff import MAX_FILES, MAX_LINES, PatchReader
from ringfence.loop.report.model import DiffSummary, Hunk

_GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]


def _patch(place: Path, before: dict[bytes, bytes], after: dict[bytes, bytes]) -> bytes:
    """What git prints of the way from some files to others."""

    def git(*words: str) -> bytes:
        return subprocess.run([*_GIT, "-C", str(place), *words], check=True, stdout=subprocess.PIPE).stdout

    git("init", "-q")
    for files in (before, after):
        git("rm", "-rqf", "--ignore-unmatch", ".")
        for name, data in files.items():
            file = place / os.fsdecode(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "x")
    return git("diff-tree", "-r", "-p", "--no-renames", "HEAD~1", "HEAD")


def _read(patch: bytes) -> DiffSummary:
    return PatchReader().read(patch)


def test_a_change_is_read_with_the_numbers_of_its_lines(tmp_path: Path):
    """Each line has its number before and after."""
    stat = _read(_patch(tmp_path, {b"a": b"1\n2\n3\n"}, {b"a": b"1\n2b\n3\n4"}))
    (file,) = stat.files
    assert (file.path, file.insertions, file.deletions, stat.count) == ("a", 2, 1, 1)
    assert [*file.hunks[0].numbered()] == [
        (1, 1, " 1"), (2, None, "-2"), (None, 2, "+2b"), (3, 3, " 3"), (None, 4, "+4"),
        (None, None, "\\ No newline at end of file"),
    ]  # fmt: skip
    assert stat.find_line("a", 2) == (1, "2b")
    assert stat.find_line("a", 5) is None
    assert stat.find_line("b", 2) is None


def test_contents_that_look_like_a_patch_are_contents(tmp_path: Path):
    """No file and no hunk comes of them."""
    evil = b"diff --git a/etc b/etc\n--- a/etc\n+++ b/etc\n@@ -1 +1 @@\n-x\n+y\n"
    stat = _read(_patch(tmp_path, {b"a": evil, b"b": b"1\n"}, {b"a": b"-" + evil + b"+", b"b": b"2\n"}))
    assert [file.path for file in stat.files] == ["a", "b"]
    assert (stat.insertions, stat.deletions) == (3, 2)


@pytest.mark.parametrize(
    "name", [b"a b", b"tab\tnew\nline", b'"quoted"', b"\xc3\xa9\xff", b"x b/x", b"x b/b/x b/x"]
)
def test_a_name_of_any_bytes_is_read(tmp_path: Path, name: bytes):
    """Git quotes some of them."""
    (file,) = _read(_patch(tmp_path, {}, {name: b"1\n"})).files
    assert (os.fsencode(file.path), file.note) == (name, "added")


def test_what_is_no_text_is_named(tmp_path: Path):
    """Binary files and empty ones have no lines; a file that is gone is said to be."""
    stat = _read(_patch(tmp_path, {b"gone": b"1\n"}, {b"bin": b"\0\1\2", b"empty": b""}))
    assert [(file.path, file.is_binary, file.note, len(file.hunks)) for file in stat.files] == [
        ("bin", True, "added", 0), ("empty", False, "added", 0), ("gone", False, "deleted", 1),
    ]  # fmt: skip


def test_a_huge_diff_is_cut_and_counted_whole(tmp_path: Path):
    """Its numbers are those of git, and the file that is cut says so."""
    after = {b"a": b"x\n" * 5000, b"b": b"y" * 10_000 + b"\n"}
    stat = _read(_patch(tmp_path, {}, after))
    first, second = stat.files
    assert (stat.insertions, first.insertions, first.is_truncated, second.is_truncated) == (
        5001,
        5000,
        True,
        True,
    )
    assert len(first.hunks[0].lines) == MAX_LINES
    many = b"".join(b"diff --git a/%d b/%d\nnew file mode 100644\n" % (n, n) for n in range(MAX_FILES + 5))
    assert (len(_read(many).files), _read(many).count) == (MAX_FILES, MAX_FILES + 5)


def test_long_lines_are_cut(tmp_path: Path):
    """A line of a megabyte is no line that is looked at."""
    (file,) = _read(_patch(tmp_path, {}, {b"a": b"y" * 1_000_000 + b"\n"})).files
    assert len(file.hunks[0].lines[0]) < 1_000


def test_all_diffs_of_a_report_have_one_bound():
    """Many attempts together do not make a page that no browser opens."""
    patch = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,3 @@\n+1\n+2\n+3\n"
    reader = PatchReader(max_lines=4)
    first, second, third = (reader.read(patch).files[0] for _ in range(3))
    assert first.hunks == (Hunk(0, 1, ("+1", "+2", "+3")),)
    assert [len(hunk.lines) for hunk in second.hunks] == [1]
    assert (third.hunks, third.insertions, third.is_truncated) == ((), 3, True)


def test_the_beginning_of_a_patch_is_read_as_such():
    """It may end anywhere."""
    patch = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,3 @@\n+1\n+2\n+3\n"
    for length in range(len(patch)):
        assert PatchReader().read(patch[:length], is_truncated=True).is_truncated

"""The manifest of a tree has one spelling for each path, and digests that git and others can compute."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.integrations.attestation.manifest import (
    FileEntry,
    check_files,
    decode_path,
    digest_files,
    encode_path,
)

from .statements import list_files

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_names = st.binary(min_size=1, max_size=20).filter(
    lambda name: not {*name} & {0, 47} and name not in (b".", b"..")
)


def entry(path: str, **changes: object) -> FileEntry:
    """The entry of an empty file."""
    return FileEntry(**{"path": path, "mode": "100644", "size": 0, "sha256": EMPTY, **changes})  # type: ignore[arg-type]


@given(st.lists(_names, min_size=1, max_size=5))
def test_a_path_comes_back_as_it_was(parts: list[bytes]) -> None:
    """Whatever bytes it has; and the text is one that JSON can hold."""
    path = b"/".join(parts)
    text = encode_path(path)
    assert decode_path(text) == path
    text.encode()


@given(st.text(max_size=30))
def test_a_text_that_is_not_the_spelling_of_a_path_is_refused(text: str) -> None:
    """So two texts never mean one path."""
    try:
        path = decode_path(text)
    except (ValueError, UnicodeEncodeError):
        return
    assert encode_path(path) == text


@pytest.mark.parametrize(
    "paths",
    [
        ["b", "a"],
        ["a", "a"],
        ["a", "a/b"],
        ["../a"],
        ["a//b"],
        ["/a"],
        ["a/"],
        ["."],
        [""],
        ["a\0b"],
        ["%61"],
        ["%zz"],
        ["a" * 5000],
        ["/".join("a" * 300)],
    ],
    ids=repr,
)
def test_paths_that_no_tree_has_are_refused(paths: list[str]) -> None:
    """Out of order, twice, in a file, outside of the root, misspelled, too long or too deep."""
    with pytest.raises(ValueError, match=r"\S"):
        check_files([entry(path) for path in paths])


@pytest.mark.parametrize("change", [{"sha256": "0"}, {"size": -1}, {"size": 1 << 40}], ids=str)
def test_a_file_that_no_snapshot_holds_is_refused(change: dict[str, object]) -> None:
    """A reader never reads more of a file than a snapshot would hold."""
    with pytest.raises(ValueError, match="digest or size"):
        check_files([entry("a", **change)])


def test_a_million_files_are_refused_early() -> None:
    """At the limit, and not after all of them."""
    files = (entry(f"{number:07d}") for number in range(1_000_000))
    with pytest.raises(ValueError, match="more than 200000 files"):
        check_files(files)
    assert next(files).path == "0200001"


def test_the_digest_can_be_computed_by_hand(tmp_path: Path) -> None:
    """The canonical form is lines that a shell can print."""
    for name in ("b", "a", "c/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    script = r"""
    find . -type f -printf '%P\n' | LC_ALL=C sort | while read -r path; do
      printf '100644 %s %s\t%s\0' "$(stat -c %s "$path")" "$(sha256sum <"$path" | cut -d ' ' -f 1)" "$path"
    done | sha256sum | cut -d ' ' -f 1
    """
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert digest_files(list_files(tmp_path)[0]) == done.stdout.strip()


def test_the_tree_id_is_the_one_that_git_computes(tmp_path: Path) -> None:
    """With names around the slash in the order, which git sorts in its own way."""
    for name in ("a/x", "a-b", "a.b/y", "a0", "ab/c/d/e", "z"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    expected = list_files(tmp_path)[1]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        ["git", "write-tree"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert expected == done.stdout.strip()

"""What is packed of files is what was known of them."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.workspace.snapshot.known import (
    UNSETTLED,
    Entry,
    KnownFiles,
    Names,
    StatCache,
    load_cache,
    save_cache,
)

_NAME = st.binary(min_size=1, max_size=4).filter(lambda name: not set(name) & {0, 0x2F})
_PATH = st.lists(_NAME, min_size=1, max_size=3).map(b"/".join)
_ENTRY = st.builds(
    Entry,
    ctime_ns=st.one_of(st.just(UNSETTLED), st.integers(-(2**62), 2**63 - 1)),
    size=st.integers(0, 2**63 - 1),
    inode=st.integers(0, 2**64 - 1),
    mode=st.integers(0, 2**32 - 1),
    blob=st.binary(min_size=20, max_size=20),
)
_FILES = st.dictionaries(_PATH, _ENTRY, max_size=12)


@pytest.mark.slow
@given(_FILES, st.lists(st.tuples(st.sets(_PATH), _FILES), max_size=3))
def test_packed_files_are_those_that_were_put_in(
    first: dict[bytes, Entry], steps: list[tuple[set[bytes], dict[bytes, Entry]]]
):
    """Whatever files are called, those that are left and those that were read are told as they were read."""
    wanted, known = dict(first), KnownFiles({}).changed((), first)
    for lost, read in steps:
        lost = lost | set(list(wanted)[::2])
        wanted = {path: entry for path, entry in wanted.items() if path not in lost} | read
        known = known.changed(lost, read)
    assert {path: known.get(path) for path in known} == wanted
    assert len(known) == len(wanted)
    assert not any(path + b"x" in known for path in wanted if path + b"x" not in wanted)


@given(_FILES)
def test_a_change_leaves_what_it_was_made_from(files: dict[bytes, Entry]):
    """Known files never change: what is made of them is others."""
    known = KnownFiles({}).changed((), files)
    known.changed(set(files), {})
    assert {path: known.get(path) for path in known} == files


def test_a_cache_is_read_as_it_was_written(tmp_path: Path):
    """A cache that was kept says the same."""
    files = KnownFiles({}).changed(
        (), {b"d/a\n": Entry(1, 2, 3, 4, b"x" * 20), b"b": Entry(UNSETTLED, 0, 1, 2, b"y" * 20)}
    )
    cache = StatCache(files.folders, "tree", frozenset({b"b"}))
    save_cache(tmp_path / "deep" / "cache", cache)
    assert load_cache(tmp_path / "deep" / "cache") == cache


def test_a_cache_of_an_earlier_form_is_not_believed(tmp_path: Path):
    """One that another version wrote, of which no file would be known, is as if it were absent: its tree, too."""
    file = tmp_path / "cache"
    file.write_bytes(msgspec.msgpack.encode({"tree": "0" * 40, "entries": {b"a": [1, 2, 3, 4, b"x" * 20]}}))
    assert load_cache(file) == StatCache({})


@given(st.sets(_PATH), st.sets(_PATH))
def test_names_are_those_of_the_paths(paths: set[bytes], others: set[bytes]):
    """Paths told by directory are the same paths."""
    names = Names.of(paths)
    assert set(names) == paths
    assert {path for path in paths | others if path in names} == paths
    assert names.minus(Names.of(others)) == paths - others
    at_top = [path for path in others if b"/" not in path] or [b"x"]
    assert set(names.besides(b"", b"\0".join(at_top))) == set(at_top) - paths

"""Listings that a guest sends are taken for nothing but listings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.protocol.files import parse_listing


@given(data=st.binary(max_size=200) | st.lists(st.sampled_from([b"file", b"1", b"a", b".."])).map(b"\0".join))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a listing or none; names in one are names."""
    for entry in parse_listing(data) or []:
        assert "/" not in entry.name
        assert entry.name not in ("", ".", "..")
        assert entry.size >= 0
        assert entry.kind in ("file", "dir", "link", "other")


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"file\x001\0",
        b"file\0-1\0a\0",
        b"file\0" + b"9" * 5000 + b"\0a\0",
        b"file\x001\0../x\0",
        b"file\x001\0..\0",
        b"file\x001\0\0",
        b"file\0\xb2\0a\0",
        b"file\0nan\0a\0",
    ],
)
def test_no_listing(data: bytes) -> None:
    """Sizes and names that cannot be are no listing."""
    assert parse_listing(data) is None


def test_odd_kinds() -> None:
    """A kind nobody knows is `other`."""
    entries = parse_listing(b"\x1b[2J\x0012\0\xff\0") or []
    assert [(entry.kind, entry.size, entry.name) for entry in entries] == [("other", 12, "\udcff")]

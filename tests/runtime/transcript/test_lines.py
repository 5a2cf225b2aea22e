"""Bytes become lines."""

import itertools
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from ringfence.runtime.transcript.record import Line, LineSplitter

_BYTES = st.lists(st.sampled_from([b"\n", b"a", b"\r", b"\0", b"\xff", b"{}", b"0123456789"])).map(b"".join)


def _lines(pieces: list[bytes], limit: int) -> list[Line]:
    splitter = LineSplitter(limit_bytes=limit)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    rest = splitter.rest()
    return lines if rest is None else [*lines, rest]


@given(_BYTES, st.lists(st.integers(0, 100)), st.integers(1, 30))
def test_however_bytes_are_cut_the_lines_are_the_same(content: bytes, cuts: list[int], limit: int) -> None:
    """Any split of the same bytes into reads gives the same lines, long ones included."""
    places = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
    pieces = [content[start:end] for start, end in itertools.pairwise(places)]
    assert _lines(pieces, limit) == _lines([content], limit)


@given(_BYTES)
def test_no_byte_is_lost(content: bytes) -> None:
    """The lines, put together, are what was read; each says where it stands."""
    lines = _lines([content], 10_000)
    assert b"\n".join(line.data or b"" for line in lines) == content.removesuffix(b"\n")
    for line in lines:
        assert content[line.offset : line.offset + line.size] == line.data


def test_a_line_that_is_too_long_is_told_by_size_and_hash() -> None:
    """What it says is not kept; what follows is read."""
    long, short = LineSplitter(limit_bytes=10).feed(b"x" * 11 + b"\nshort\n")
    assert (long.data, long.size, short.data, short.number) == (None, 11, b"short", 2)
    assert long.digest == sha256(b"x" * 11).hexdigest()

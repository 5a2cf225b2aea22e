"""The wire format: what is encoded is decoded as it was, and nothing else is taken."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.guest import frames

TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.binary(max_size=20).map(
    lambda data: data.decode("utf-8", "surrogateescape")
)


@given(pairs=st.lists(st.tuples(TEXT, TEXT)))
def test_round_trip(pairs: list[tuple[str, str]]) -> None:
    """Any pairs of text come back, bytes that are no UTF-8 too."""
    assert frames.decode_record(frames.encode_record(pairs)) == pairs


@given(data=st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a record or a ValueError; a record is written as it was read."""
    try:
        pairs = frames.decode_record(data)
    except ValueError:
        return
    assert frames.encode_record(pairs) == data


@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1), cut=st.integers(1, 3))
def test_cut_short(pairs: list[tuple[str, str]], cut: int) -> None:
    """A record that lacks its last bytes is refused or is another record, never the same."""
    data = frames.encode_record(pairs)[:-cut]
    with suppress(ValueError):
        assert frames.decode_record(data) != pairs


def test_too_many_fields() -> None:
    """A record of more fields than there is a use for is refused before it is held."""
    with pytest.raises(ValueError, match="too many"):
        frames.decode_record(b"\0" * 4 * 200_002)


@given(length=st.integers(0, 2**32 - 1), channel=st.integers(0, 2**32 - 1), kind=st.integers(0, 255))
def test_header(length: int, channel: int, kind: int) -> None:
    """A header is nine bytes, big-endian, in this order."""
    assert frames.HEADER.pack(length, channel, kind) == struct.pack(">I", length) + struct.pack(
        ">I", channel
    ) + bytes([kind])


@given(data=st.data(), payloads=st.lists(st.binary(max_size=50)))
def test_any_pieces(data: st.DataObject, payloads: list[bytes]) -> None:
    """However a stream is cut, its frames come whole and in order, and the beginning of the next is kept."""
    stream = b"".join(frames.encode_frame(7, number, payload) for number, payload in enumerate(payloads))
    found: list[tuple[int, int, bytes]] = []
    reader = frames.FrameReader(50, lambda *frame: found.append(frame))
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        reader.feed(stream[:size])
        stream = stream[size:]
    assert found == [(7, number, payload) for number, payload in enumerate(payloads)]


def test_too_long() -> None:
    """A frame that announces more than may be is refused before its payload has come."""
    with pytest.raises(frames.FrameError, match="51 bytes"):
        frames.FrameReader(50, print).feed(frames.HEADER.pack(51, 1, 7))

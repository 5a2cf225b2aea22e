"""The engine's headers on a container's output."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.docker.attach import Demultiplexer
from ringfence.sandbox.protocol.records import ProtocolError

PIECES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=20)


def framed(kind: int, data: bytes) -> bytes:
    """As an engine sends it."""
    return struct.pack(">BxxxL", kind, len(data)) + data


@given(PIECES, st.lists(st.integers(1, 40), max_size=40))
def test_any_cut(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """However the stream is cut, stdout comes out whole and in order, and stderr is kept."""
    stream = b"".join(framed(kind, data) for kind, data in pieces)
    demultiplexer, out = Demultiplexer(), b""
    for cut in cuts:
        out += demultiplexer.feed(stream[:cut])
        stream = stream[cut:]
    out += demultiplexer.feed(stream)
    assert out == b"".join(data for kind, data in pieces if kind == 1)
    assert demultiplexer.stderr == b"".join(data for kind, data in pieces if kind == 2)


def test_words_are_bounded() -> None:
    """Of much stderr the end is kept."""
    demultiplexer = Demultiplexer()
    for _ in range(100):
        demultiplexer.feed(framed(2, b"x" * 1000))
    demultiplexer.feed(framed(2, b"the end"))
    assert demultiplexer.stderr.endswith(b"the end")
    assert len(demultiplexer.stderr) <= 4096


@pytest.mark.parametrize(
    "header", [b"\x00" + b"\0" * 7, b"\x03\0\0\0\0\0\0\1", b"HTTP/1.1", struct.pack(">BxxxL", 1, 2**31)]
)
def test_no_header(header: bytes) -> None:
    """What is no header is told, not guessed at."""
    with pytest.raises(ProtocolError):
        Demultiplexer().feed(header)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_any_bytes(chunks: list[bytes]) -> None:
    """Any bytes are a stream or an error, and cost no more than they are long."""
    demultiplexer = Demultiplexer()
    try:
        total = sum(len(demultiplexer.feed(chunk)) for chunk in chunks)
    except ProtocolError:
        return
    assert total <= sum(map(len, chunks))

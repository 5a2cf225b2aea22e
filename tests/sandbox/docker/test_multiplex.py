"""The headers that an engine puts before each piece of a container's output."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.docker.attach import Demultiplexer
from ringfence.sandbox.protocol.records import ProtocolError

PIECES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=20)


def framed(kind: int, data: bytes) -> bytes:
    """Output with the headers that the engine adds."""
    return struct.pack(">BxxxL", kind, len(data)) + data


@given(PIECES, st.lists(st.integers(1, 40), max_size=40))
def test_stdout_is_complete_however_it_is_split(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    """However the stream is split, stdout is complete and in order, and stderr is kept."""
    stream = b"".join(framed(kind, data) for kind, data in pieces)
    demultiplexer, out = Demultiplexer(), b""
    for cut in cuts:
        out += demultiplexer.feed(stream[:cut])
        stream = stream[cut:]
    out += demultiplexer.feed(stream)
    assert out == b"".join(data for kind, data in pieces if kind == 1)
    assert demultiplexer.stderr == b"".join(data for kind, data in pieces if kind == 2)


def test_stderr_is_bounded() -> None:
    """Only the end of a long stderr is kept."""
    demultiplexer = Demultiplexer()
    for _ in range(100):
        demultiplexer.feed(framed(2, b"x" * 1000))
    demultiplexer.feed(framed(2, b"the end"))
    assert demultiplexer.stderr.endswith(b"the end")
    assert len(demultiplexer.stderr) <= 4096


@pytest.mark.parametrize(
    "header", [b"\x00" + b"\0" * 7, b"\x03\0\0\0\0\0\0\1", b"HTTP/1.1", struct.pack(">BxxxL", 1, 2**31)]
)
def test_invalid_header_is_an_error(header: bytes) -> None:
    """Bytes that are no header raise an error."""
    with pytest.raises(ProtocolError):
        Demultiplexer().feed(header)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_any_bytes(chunks: list[bytes]) -> None:
    """Any bytes either are a stream or raise an error, in time proportional to their length."""
    demultiplexer = Demultiplexer()
    try:
        total = sum(len(demultiplexer.feed(chunk)) for chunk in chunks)
    except ProtocolError:
        return
    assert total <= sum(map(len, chunks))

"""Requests out of bytes, held against what another reader makes of the same."""

import tracemalloc

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.reading import Asked, RequestReader, Unreadable


def read(*pieces: bytes) -> tuple[Asked, bytes] | None:
    """The request that these pieces are and what is behind it; None while it is not whole."""
    reader = RequestReader(lambda _: None)
    for number, piece in enumerate(pieces):
        reader.feed(piece)
        if reader.is_whole:
            return reader.asked, reader.rest + b"".join(pieces[number + 1 :])
    return None


def read_by_h11(data: bytes) -> tuple[Asked, bytes] | None:
    """The same, by a parser for all of HTTP."""
    http = h11.Connection(h11.SERVER)
    http.receive_data(data)
    head, body = http.next_event(), b""
    while isinstance(event := http.next_event(), h11.Data):
        body += bytes(event.data)
    if not isinstance(head, h11.Request) or not isinstance(event, h11.EndOfMessage):
        return None
    headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
    wants_upgrade = any(name == "upgrade" for name, _ in headers)
    asked = Asked(head.method.decode(), head.target.decode(), body, wants_upgrade, headers)
    return asked, bytes(http.trailing_data[0])


LINES = [
    b"GET /x HTTP/1.1", b"POST /x?y=z HTTP/1.1", b"POST /x HTTP/1.0", b"FOO * HTTP/1.1", b"GET  /x HTTP/1.1",
    b"GET /x", b"Host: a", b"host:b", b"Content-Length: 4", b"content-length:\t4 ", b"Content-Length: 0",
    b"Content-Length: +4", b"Content-Length: 4, 4", b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked ",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding : chunked", b"X: y", b" folded", b"X:", b": y", b"X y",
    b"X: \xe4\xff", b"X: \0", b"X: a\rb", b"X: \x7f", b"Upgrade: tcp", b"Connection: close", b"Expect: 100-continue",
    b"", b"", b"4\r\nbody\r\n0", b"2;x=y\r\nbo\r\n0\r\nX: y", b"0", b"body", b"zz", b"GET /y HTTP/1.1",
]  # fmt: skip
"""Pieces of requests, of which most things that come of them are none."""

END = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
anything = st.lists(st.tuples(st.sampled_from(LINES), END), min_size=1, max_size=8).map(
    lambda lines: b"".join(line + end for line, end in lines)
)
BODIES = [
    b"\r\n",
    b"Content-Length: 4\r\n\r\nbody",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
    b"Content-Length: 4\r\n\r\nbodyGET /y HTTP/1.1\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\nGET /y HTTP/1.1\r\n\r\n",
]
HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\nX: y\r\n"


@given(data=anything | st.sampled_from(BODIES).map(lambda body: HEAD + body))
def test_what_is_read_is_what_other_readers_read(data: bytes):
    """Or it is refused, or not whole yet: nothing can be smuggled past one of two readers."""
    try:
        got = read(data)
    except Unreadable:
        return
    if got is not None:
        assert got == read_by_h11(data)


@pytest.mark.parametrize("body", BODIES)
def test_what_is_well_formed_is_read(body: bytes):
    """With each of the ways to say how long a body is, and with more behind it."""
    got = read(HEAD + body)
    assert got is not None
    assert got == read_by_h11(HEAD + body)


@given(data=anything | st.sampled_from(BODIES).map(lambda body: HEAD + body), size=st.integers(1, 5))
def test_where_bytes_are_cut_says_nothing(data: bytes, size: int):
    """A request that comes drop by drop is the same request, or refused for the same."""

    def outcome(*pieces: bytes) -> object:
        try:
            return read(*pieces)
        except Unreadable as exc:
            return exc.status

    drops = [data[at : at + size] for at in range(0, len(data), size)]
    assert outcome(data) == outcome(*drops)


def test_a_body_is_held_once():
    """While a large request is answered, there are not two copies of what it brought."""
    size = 8 * 1024 * 1024
    reader = RequestReader(lambda _: None)
    reader.feed(HEAD + b"Content-Length: %d\r\n\r\n" % size)
    tracemalloc.start()
    try:
        for _ in range(size // 65536):
            reader.feed(b"x" * 65536)
        asked = reader.asked
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(asked.body) == size
    assert held < 1.5 * size

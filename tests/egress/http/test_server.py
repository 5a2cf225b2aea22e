"""Requests from inside: whole, ambiguous, endless or nonsense, over a real socket."""

import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import h11
import pytest
from anyio.abc import SocketStream
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress.http import server
from ringfence.egress.http.rules import HEAD_LIMIT_BYTES, BadRequest, Request
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.limiter import ByteQuota

PATIENCE_S = 10.0


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[SocketStream, SocketStream]]:
    """Both ends of a connection."""
    one, other = socket.socketpair()
    async with await SocketStream.from_socket(one) as inside, await SocketStream.from_socket(other) as near:
        with anyio.fail_after(PATIENCE_S):
            yield inside, near


async def received(*pieces: bytes, ends: bool = True, **options: Any) -> Request | None:
    """The request that is read from these bytes."""
    came: Request | BadRequest | None
    async with connected() as (inside, near), anyio.create_task_group() as tasks:
        tasks.start_soon(_send, inside, pieces, ends)
        try:
            came = await HttpConnection(near, **options).read_request()
        except BadRequest as exc:
            came = exc
        tasks.cancel_scope.cancel()
    if isinstance(came, BadRequest):
        raise came
    return came


async def _send(inside: SocketStream, pieces: tuple[bytes, ...], ends: bool) -> None:
    try:
        for piece in pieces:
            await inside.send(piece)
        if ends:
            await inside.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\nX: y\r\n"
WELL_FORMED = {
    "without-a-body": (HEAD + b"\r\n", b""),
    "with-a-length": (HEAD + b"Content-Length: 4\r\n\r\nbody", b"body"),
    "in-chunks": (
        HEAD + b"Transfer-Encoding: Chunked\r\n\r\n2;x=y\r\nbo\r\n2\r\ndy\r\n0\r\nT: t\r\n\r\n",
        b"body",
    ),
    "of-http-1.0": (b"POST /x HTTP/1.0\r\nX: y\r\nContent-Length:\t4 \r\n\r\nbody", b"body"),
}


@pytest.mark.parametrize("name", WELL_FORMED)
async def test_a_request_is_read_with_its_body(name: str) -> None:
    """However its length is declared."""
    data, body = WELL_FORMED[name]
    request = await received(data, ends=False)
    assert request is not None
    assert (request.method, request.target, request.body) == ("POST", "/x", body)
    assert (request.header("x"), request.header("y")) == ("y", "")


@given(cuts=st.lists(st.integers(1, 90), max_size=6).map(sorted), name=st.sampled_from(sorted(WELL_FORMED)))
@settings(deadline=None, max_examples=40)
def test_a_request_may_come_in_any_pieces(cuts: list[int], name: str) -> None:
    """It is the same request."""
    data, body = WELL_FORMED[name]
    edges = [0, *cuts, len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    request = anyio.run(lambda: received(*pieces, ends=False))
    assert request is not None
    assert request.body == body


async def test_a_connection_without_a_request_is_none() -> None:
    """It ends before the first byte."""
    assert await received(b"") is None


AMBIGUOUS = {
    "two lengths of two kinds": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 4\r\n",
    "list of lengths": b"Content-Length: 4, 4\r\n",
    "length with a sign": b"Content-Length: +4\r\n",
    "unknown encoding": b"Transfer-Encoding: gzip, chunked\r\n",
    "encoding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "encoding without a name": b"Transfer-Encoding:\r\n",
    "space before colon": b"Content-Length : 4\r\n",
    "two hosts": b"Host: other\r\n",
    "NUL": b"X: a\0b\r\n",
    "no colon": b"X y\r\n",
    "no name": b": y\r\n",
    "bare line feed": b"X: a\nY: b\r\n",
    "bare carriage return": b"X: a\rb\r\n",
    "two carriage returns": b"X: a\r\r\n",
    "folded header": b"X: a\r\n b\r\n",
    "folded by a tab": b"X: a\r\n\tb\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_what_two_readers_could_read_differently_is_refused(name: str) -> None:
    """Nothing can be smuggled past one of them."""
    head = b"POST /x HTTP/1.1\r\nHost: docker\r\n" + AMBIGUOUS[name] + b"\r\n0\r\n\r\nGET /y HTTP/1.1\r\n\r\n"
    with pytest.raises(BadRequest):
        await received(head)


@pytest.mark.parametrize("line", [b"X: a\n", b"X: a\rY: b\r\n", b"X: a\r\n b\r\n"], ids=repr)
async def test_a_line_end_that_readers_take_differently_is_refused_at_once(line: bytes) -> None:
    """The head need not have come to its end, which it never may."""
    with pytest.raises(BadRequest) as refused:
        await received(b"GET /x HTTP/1.1\r\nHost: a\r\n" + line + b"X", ends=False, timeout_s=5)
    assert refused.value.status == 400


FIRST_LINES = [
    b"GET /x", b"GET  /x HTTP/1.1", b"get /x HTTP/1.1", b"GET /x HTTP/2.0", b"GET /\xff HTTP/1.1", b"\x05\x01\x00",
    b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-x", b" GET /x HTTP/1.1", b"\r\nGET /x HTTP/1.1",
]  # fmt: skip


@pytest.mark.parametrize("line", FIRST_LINES)
async def test_what_is_not_http_is_refused(line: bytes) -> None:
    """From its first line on."""
    with pytest.raises(BadRequest):
        await received(line + b"\r\nHost: a\r\n\r\n")


async def test_a_request_of_http_1_1_names_its_host() -> None:
    """Without one it is refused."""
    with pytest.raises(BadRequest, match="Host"):
        await received(b"GET /x HTTP/1.1\r\n\r\n")


ENDLESS = {
    "header": b"GET /x HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000,
    "headers": b"GET /x HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20_000,
    "target": b"GET /" + b"x" * 100_000,
    "body": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
    "chunks": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"5\r\nxxxxx\r\n" * 100_000,
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_request_without_an_end_is_refused(name: str) -> None:
    """Long before it is one."""
    with pytest.raises(BadRequest):
        await received(ENDLESS[name], ends=False)


async def test_a_head_may_be_as_large_as_the_bound() -> None:
    """And not one byte larger."""
    start = b"GET /x HTTP/1.1\r\nHost: x\r\nX: "
    fits = start + b"a" * (HEAD_LIMIT_BYTES - len(start) - 4) + b"\r\n\r\n"
    assert await received(fits, ends=False) is not None
    with pytest.raises(BadRequest) as refused:
        await received(start + b"a" + fits[len(start) :], ends=False)
    assert refused.value.status == 431


async def test_a_slow_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not complete in time."""
    monkeypatch.setattr(server, "REQUEST_TIMEOUT_S", 0.05)
    with pytest.raises(BadRequest, match="not complete within"):
        await received(b"GET /x HTTP/1.1\r\nHost", ends=False)


async def test_bodies_share_their_room() -> None:
    """What one connection has of it, another has not."""
    quota = ByteQuota(6)
    request = HEAD + b"Content-Length: 4\r\n\r\nbody"
    async with connected() as (inside, near):
        connection = HttpConnection(near, quota=quota)
        await inside.send(request)
        await connection.read_request()
        with pytest.raises(BadRequest) as refused:
            await received(request, quota=quota)
        assert refused.value.status == 503
        connection.release_body()
        assert quota.left == 6


@given(data=st.binary(max_size=80))
@settings(deadline=None, max_examples=50)
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a request, none, or refused; nothing else happens."""

    async def read() -> None:
        try:
            await received(data)
        except BadRequest:
            return

    anyio.run(read)


LINES = [
    b"GET /x HTTP/1.1", b"POST /x?y=z HTTP/1.1", b"POST /x HTTP/1.0", b"FOO * HTTP/1.1", b"GET  /x HTTP/1.1",
    b"GET /x", b"Host: a", b"host:b", b"Content-Length: 4", b"content-length:\t4 ", b"Content-Length: 0",
    b"Content-Length: +4", b"Content-Length: 4, 4", b"Transfer-Encoding: chunked", b"transfer-encoding: Chunked ",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding : chunked", b"X: y", b" folded", b"X:", b": y", b"X y",
    b"X: \xe4\xff", b"X: \0", b"X: a\rb", b"X: \x7f", b"Upgrade: tcp", b"Connection: close",
    b"", b"", b"4\r\nbody\r\n0", b"2;x=y\r\nbo\r\n0\r\nX: y", b"0", b"body", b"zz", b"GET /y HTTP/1.1",
]  # fmt: skip
"""Pieces of requests, of which most things that come of them are none."""

END = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
anything = st.lists(st.tuples(st.sampled_from(LINES), END), min_size=1, max_size=8).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(data=anything, size=st.integers(1, 5))
@settings(deadline=None)
def test_where_bytes_are_cut_makes_no_difference(data: bytes, size: int) -> None:
    """A request that comes drop by drop is the same request, or refused with the same status."""

    async def outcome(*pieces: bytes) -> object:
        try:
            return await received(*pieces)
        except BadRequest as exc:
            return exc.status

    drops = [data[at : at + size] for at in range(0, len(data), size)]
    assert anyio.run(outcome, data) == anyio.run(outcome, *drops)


async def test_two_requests_follow_each_other() -> None:
    """A kept connection takes the next request after the response to the one before."""
    async with connected() as (inside, near):
        connection = HttpConnection(near)
        for path in ("/one", "/two"):
            await inside.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            request = await connection.read_request()
            await connection.start_response(200, [("Content-Length", "0")], keep_alive=True)
            await connection.end()
            assert request is not None
            assert request.target == path
            assert connection.start_next()


async def test_what_comes_before_its_turn_is_never_a_request() -> None:
    """A second request that was sent before the response to the first ends the connection."""
    async with connected() as (inside, near):
        connection = HttpConnection(near)
        await inside.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n")
        await connection.read_request()
        await connection.start_response(200, [("Content-Length", "0")], keep_alive=True)
        await connection.end()
        assert not connection.start_next()


async def test_what_comes_while_it_is_answered_is_never_a_request() -> None:
    """Nor is what is read to see whether the client still waits."""
    async with connected() as (inside, near):
        connection = HttpConnection(near)
        await inside.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n")
        await connection.read_request()
        await inside.send(b"GET /two HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await connection.wait_for_data()
        await connection.start_response(200, [("Content-Length", "0")], keep_alive=True)
        await connection.end()
        assert not connection.start_next()


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"], ids=repr)
async def test_a_header_of_a_response_is_one_line(end: str) -> None:
    """A value with a line end in it, which would forge further headers, is not sent."""
    async with connected() as (inside, near):
        connection = HttpConnection(near)
        await inside.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n")
        await connection.read_request()
        with pytest.raises(h11.LocalProtocolError):
            await connection.start_response(200, [("X", f"a{end}Set-Cookie: b")])


async def test_a_client_that_waits_may_send_its_body() -> None:
    """`Expect: 100-continue` is answered before the body is read."""
    async with connected() as (inside, near), anyio.create_task_group() as tasks:
        connection = HttpConnection(near)
        tasks.start_soon(connection.read_request)
        await inside.send(HEAD + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert (await inside.receive()).startswith(b"HTTP/1.1 100 ")
        await inside.send(b"body")


async def test_what_comes_behind_a_connect_belongs_to_the_tunnel() -> None:
    """It is kept, and no part of a request."""
    async with connected() as (inside, near):
        connection = HttpConnection(near)
        await inside.send(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\nearly")
        request = await connection.read_head()
        assert request is not None
        assert request.target == "a.example:443"
        assert await connection.accept_connect() == b"early"
        assert (await inside.receive()).startswith(b"HTTP/1.1 200 ")


async def test_a_connect_has_no_body() -> None:
    """One that declares a body is refused."""
    async with connected() as (inside, near):
        await inside.send(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n")
        with pytest.raises(BadRequest):
            await HttpConnection(near).read_head()


async def test_another_protocol_starts_with_what_came_of_it() -> None:
    """Bytes that the client sent ahead of the answer are returned."""
    async with connected() as (inside, near):
        connection = HttpConnection(near)
        await inside.send(HEAD + b"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\nearly")
        request = await connection.read_request()
        assert request is not None
        assert request.wants_upgrade
        assert await connection.switch_protocol("tcp", []) == b"early"
        assert (await inside.receive()).startswith(b"HTTP/1.1 101 ")


async def test_a_body_is_held_once() -> None:
    """While a large request is answered, there are not two copies of what it brought."""
    size = 8 * 1024 * 1024
    async with connected() as (inside, near), anyio.create_task_group() as tasks:
        data = HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size)
        tasks.start_soon(inside.send, data)
        connection = HttpConnection(near, body_limit_bytes=size)
        tracemalloc.start()
        try:
            request = await connection.read_request()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert request is not None
    assert len(request.body) == size
    assert held < 1.5 * size

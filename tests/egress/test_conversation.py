"""Requests from inside, whole, ambiguous, endless or nonsense, over a real socket."""

import socket
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress import conversation
from ringfence.egress.conversation import Conversation
from ringfence.egress.reading import Asked, Unreadable

PATIENCE_S = 10.0


async def asked(data: bytes, *, ends: bool = True) -> Asked | None:
    """What a conversation reads of these bytes."""
    one, other = socket.socketpair()
    inside, near = await SocketStream.from_socket(one), await SocketStream.from_socket(other)
    with anyio.fail_after(PATIENCE_S):
        async with inside, near, anyio.create_task_group() as tasks:
            tasks.start_soon(_say, inside, data, ends)
            came: Asked | Unreadable | None
            try:
                came = await Conversation(near).request()
            except Unreadable as exc:
                came = exc
            tasks.cancel_scope.cancel()
    if isinstance(came, Unreadable):
        raise came
    return came


async def _say(inside: SocketStream, data: bytes, ends: bool) -> None:
    try:
        await inside.send(data)
        if ends:
            await inside.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass


async def test_request() -> None:
    """A request is read with its body."""
    head = b"POST /x HTTP/1.1\r\nHost: docker\r\nContent-Length: 2\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n"
    request = await asked(head + b"{}", ends=False)
    assert request is not None
    assert (request.method, request.target, request.body) == ("POST", "/x", b"{}")
    assert request.wants_upgrade
    assert (request.header("host"), request.header("x")) == ("docker", "")


async def test_nothing() -> None:
    """A connection that ends without a request is none."""
    assert await asked(b"") is None


SMUGGLED = {
    "two lengths of two kinds": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 5\r\n",
    "list of lengths": b"Content-Length: 4, 5\r\n",
    "length with a sign": b"Content-Length: +4\r\n",
    "unknown encoding": b"Transfer-Encoding: gzip, chunked\r\n",
    "encoding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "space before colon": b"Content-Length : 4\r\n",
    "folded header": b"X: a\r\n Transfer-Encoding: chunked\r\n\tb\r\nTransfer-Encoding: x\r\n",
    "two hosts": b"Host: other\r\n",
    "NUL": b"X: a\0b\r\n",
    "bare line feed": b"X: a\nY: b\r\n",
    "folded harmless header": b"X: a\r\n b\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
async def test_ambiguous(name: str) -> None:
    """What two readers could read differently is refused."""
    head = b"POST /x HTTP/1.1\r\nHost: docker\r\n" + SMUGGLED[name] + b"\r\n0\r\n\r\nGET /y HTTP/1.1\r\n\r\n"
    with pytest.raises(Unreadable):
        await asked(head)


ENDLESS = {
    "header": b"GET /x HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000,
    "headers": b"GET /x HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20_000,
    "target": b"GET /" + b"x" * 100_000,
    "body": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
    "chunks": b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"5\r\nxxxxx\r\n" * 100_000,
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_endless(name: str) -> None:
    """A request without an end is refused long before it is one."""
    with pytest.raises(Unreadable):
        await asked(ENDLESS[name], ends=False)


async def test_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that does not come to its end in time is refused."""
    monkeypatch.setattr(conversation, "_REQUEST_S", 0.05)
    with pytest.raises(Unreadable, match="not whole within"):
        await asked(b"GET /x HTTP/1.1\r\nHost", ends=False)


@given(data=st.binary(max_size=80))
@settings(deadline=None, max_examples=50)
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a request, none, or unreadable; nothing else happens."""

    async def read() -> None:
        with suppress(Unreadable):
            await asked(data)

    anyio.run(read)


@asynccontextmanager
async def connected():
    """Both ends of a connection."""
    one, other = socket.socketpair()
    async with await SocketStream.from_socket(one) as inside, await SocketStream.from_socket(other) as near:
        with anyio.fail_after(PATIENCE_S):
            yield inside, near


async def test_two_requests_follow_each_other() -> None:
    """A kept connection takes the next request after the answer to the one before."""
    async with connected() as (inside, near):
        talk = Conversation(near)
        for path in ("/one", "/two"):
            await inside.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            request = await talk.request()
            await talk.begin(200, {"Content-Length": "0"}, keeps=True)
            await talk.end()
            assert request is not None
            assert request.target == path
            assert talk.goes_on()


async def test_what_comes_before_its_turn_is_never_a_request() -> None:
    """A second request that was sent before the answer to the first ends the connection."""
    async with connected() as (inside, near):
        talk = Conversation(near)
        await inside.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET /two HTTP/1.1\r\nHost: a\r\n\r\n")
        await talk.request()
        await talk.begin(200, {"Content-Length": "0"}, keeps=True)
        await talk.end()
        assert not talk.goes_on()


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\0"], ids=repr)
async def test_a_header_of_an_answer_is_one_line(end: str) -> None:
    """A value with a line end in it, which would forge further headers, is not sent."""
    async with connected() as (inside, near):
        talk = Conversation(near)
        await inside.send(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n")
        await talk.request()
        with pytest.raises(ValueError, match="line end"):
            await talk.begin(200, {"X": f"a{end}Set-Cookie: b"})

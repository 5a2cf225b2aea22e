"""Connections to the real API: kept, bounded, and never believed further than HTTP goes."""

import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.cases import slow_after
from tests.egress.gateway.conftest import PATIENCE_S

from ringfence.egress.http.client import HttpClient, HttpResponse, UpstreamError

OK = b"HTTP/1.1 200 OK\r\n"
SHORT = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"


class Api:
    """Answers each request by the next of the given bytes; `END` closes the connection after them."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.url = ""
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, stream: SocketStream) -> None:
        """One connection."""
        self.connections += 1
        came = b""
        async with stream:
            try:
                while self.answers:
                    while b"\r\n\r\n" not in came:
                        came += await stream.receive()
                    head, _, came = came.partition(b"\r\n\r\n")
                    self.heads.append(head)
                    answer = self.answers.pop(0)
                    await stream.send(answer.removesuffix(END))
                    if answer.endswith(END):
                        return
                await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return


END = b"\0END"


@asynccontextmanager
async def asked(*answers: bytes) -> AsyncIterator[tuple[Api, HttpClient]]:
    """An API on loopback, and what asks it."""
    api, upstream = Api(*answers), HttpClient()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    api.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    with anyio.fail_after(PATIENCE_S):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, api.serve)
            yield api, upstream
            await upstream.aclose()
            tasks.cancel_scope.cancel()


async def ask(api: Api, upstream: HttpClient, *, url: str = "", accept: str = "a/b") -> HttpResponse:
    """One request, to the API's own address unless another is said."""
    return await upstream.send("GET", (url or api.url).rstrip("/") + "/v1/models", headers={"accept": accept})


async def body(answer: HttpResponse) -> bytes:
    """All of an answer's body."""
    try:
        return b"".join([piece async for piece in answer.body()])
    finally:
        await answer.aclose()


async def test_a_connection_is_kept_for_the_next_request():
    """After an answer that came to its end, whatever said how long it is."""
    async with asked(SHORT, CHUNKED, SHORT) as (api, upstream):
        bodies = [await body(await ask(api, upstream)) for _ in range(3)]
    assert bodies == [b"hello"] * 3
    assert api.connections == 1


LAST: dict[str, bytes] = {
    "that says so": OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello",
    "that ends with it": OK + b"\r\nhello" + END,
    "of the older protocol": b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("name", LAST)
async def test_an_answer_may_be_a_connections_last(name: str):
    """The next request has one of its own."""
    async with asked(LAST[name], SHORT) as (api, upstream):
        bodies = [await body(await ask(api, upstream)) for _ in range(2)]
        assert api.connections == 2
    assert bodies == [b"hello"] * 2


async def test_what_is_not_read_to_its_end_is_read_by_nobody():
    """Its rest is no answer to the next request."""
    async with asked(OK + b"Content-Length: 9\r\n\r\nhello", SHORT) as (api, upstream):
        await (await ask(api, upstream)).aclose()
        assert await body(await ask(api, upstream)) == b"hello"
        assert api.connections == 2


async def test_what_nobody_asked_for_answers_nothing():
    """A second answer to one request ends the connection."""
    async with asked(SHORT + SHORT, SHORT) as (api, upstream):
        assert await body(await ask(api, upstream)) == b"hello"
        assert await body(await ask(api, upstream)) == b"hello"
        assert api.connections == 2


async def test_heads_that_announce_an_answer_are_none():
    """There may be several."""
    announced = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with asked(announced + SHORT) as (api, upstream):
        answer = await ask(api, upstream)
        assert (answer.status, answer.headers) == (200, (("Content-Length", "5"),))
        assert await body(answer) == b"hello"


BROKEN: dict[str, bytes] = {
    "nothing": END,
    "half a head": b"HTTP/1.1 200 OK\r\nContent-" + END,
    "no HTTP": b"220 mail.example ESMTP\r\n" + END,
    "two lengths": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "another protocol": b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + END,
    "a head without end": OK + b"X: " + b"x" * 200_000,
    "headers without end": OK + b"X: x\r\n" * 40_000,
    "a body cut short": OK + b"Content-Length: 9\r\n\r\nhello" + END,
    "chunks cut short": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + END,
    "a chunk of no size": OK + b"Transfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n" + END,
    "trailers without end": CHUNKED[:-2] + b"T: t\r\n" * 40_000,
    "not compressed": OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    "compressed and cut short": OK
    + b"Content-Encoding: gzip\r\n\r\n"
    + gzip.compress(b"hello" * 99)[:-9]
    + END,
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_is_no_answer_is_told(name: str):
    """As a fault of the API's, and within bounds."""
    async with asked(BROKEN[name]) as (api, upstream):
        with pytest.raises(UpstreamError, match=r"127\.0\.0\.1"):
            await body(await ask(api, upstream))


async def test_interim_responses_without_end(monkeypatch: pytest.MonkeyPatch):
    """However many come, the wait for the response itself is bounded."""
    monkeypatch.setattr("ringfence.egress.http.client.READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr("ringfence.egress.http.client.CONNECT_TIMEOUT_S", 0.5)
    async with asked(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000) as (api, upstream):
        with pytest.raises(UpstreamError, match="did not answer in time"):
            await ask(api, upstream)


async def test_silence_ends_no_answer(monkeypatch: pytest.MonkeyPatch):
    """One whose length nobody said is over when its sender closes the connection, not when we give it up."""
    monkeypatch.setattr("ringfence.egress.http.client.READ_TIMEOUT_S", 0.05)
    async with asked(OK + b'\r\n{"half":', SHORT) as (api, upstream):
        with pytest.raises(UpstreamError, match="did not answer in time"):
            await body(await ask(api, upstream))


@pytest.mark.parametrize("cut", slow_after(3, range(1, len(CHUNKED), 7)))
async def test_an_answer_may_come_in_any_pieces(cut: int):
    """It is the same answer."""

    class Slow(Api):
        async def serve(self, stream: SocketStream) -> None:
            async with stream:
                await stream.receive()
                for piece in (CHUNKED[:cut], CHUNKED[cut:]):
                    await stream.send(piece)
                    await anyio.wait_all_tasks_blocked()
                with anyio.CancelScope(), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    api, upstream = Slow(), HttpClient()
    api.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    with anyio.fail_after(PATIENCE_S):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, api.serve)
            assert await body(await ask(api, upstream)) == b"hello"
            await upstream.aclose()
            tasks.cancel_scope.cancel()


async def test_a_compressed_body_is_read_all_the_same():
    """Though none is asked for; what it stands for comes in pieces, however much that is."""
    packed = gzip.compress(b"x" * 3_000_000)
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    async with asked(head + packed) as (api, upstream):
        answer = await ask(api, upstream)
        sizes = [len(piece) async for piece in answer.body()]
        await answer.aclose()
    assert sum(sizes) == 3_000_000
    assert max(sizes) <= 256 * 1024


@pytest.mark.slow
async def test_an_answer_that_is_not_read_holds_up_its_sender():
    """What comes is held within bounds, and all of it is there once it is read."""
    size = 64 * 1024 * 1024
    async with asked(OK + b"Content-Length: %d\r\n\r\n" % size + bytes(size)) as (api, upstream):
        answer = await ask(api, upstream)
        await anyio.wait_all_tasks_blocked()
        pieces = [len(piece) async for piece in answer.body()]
        await answer.aclose()
    assert sum(pieces) == size
    assert max(pieces) <= 2 * 1024 * 1024


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b"])
async def test_a_header_is_one_line(value: str):
    """What would be two is not sent."""
    async with asked(SHORT) as (api, upstream):
        with pytest.raises(UpstreamError, match="line end"):
            await ask(api, upstream, accept=value)
    assert api.connections == 0


PLACES: Sequence[tuple[str, bytes]] = [
    ("", b"GET /v1/models HTTP/1.1"),
    ("/", b"GET /v1/models HTTP/1.1"),
    ("/a b/ö", b"GET /a%20b/%C3%B6/v1/models HTTP/1.1"),
    ("/a%20b", b"GET /a%20b/v1/models HTTP/1.1"),
]


@pytest.mark.parametrize(("below", "line"), PLACES)
async def test_a_base_url_may_have_a_path(below: str, line: bytes):
    """The call stands below it."""
    async with asked(SHORT) as (api, upstream):
        answer = await ask(api, upstream, url=api.url + below)
        await answer.aclose()
    assert api.heads[0].split(b"\r\n")[0] == line


async def test_a_password_in_a_base_url_is_sent_as_one():
    """By the client that is for proxies."""
    async with asked(SHORT) as (api, upstream):
        url = api.url.replace("http://", "http://user:word@")
        assert await body(await ask(api, upstream, url=url)) == b"hello"
    assert b"Authorization: Basic dXNlcjp3b3Jk" in api.heads[0]

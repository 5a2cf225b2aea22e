"""Limits of connections at public addresses: neither silent nor excessive clients keep others out."""

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import anyio
import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tests.ports import kept_port

from ringfence.fleet.daemon import connection_limits
from ringfence.fleet.daemon.http_server import _MAX_CONNECTIONS, serving_at, serving_on

_HALF = b"POST /x HTTP/1.1\r\nHost: x\r\n"
_TRICKLE = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx"
_WHOLE = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


async def _length(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


async def _client(request: Request) -> PlainTextResponse:
    return PlainTextResponse("" if request.client is None else request.client.host)


def _while_served(act: "partial[None]", *, is_listening: bool = False) -> None:
    """Serve an application on a port, or on a socket that is listening; call a function with the port."""

    async def served() -> None:
        app = Starlette(routes=[Route("/x", _length, methods=["POST"]), Route("/client", _client)])
        if is_listening:
            listener = socket.create_server(("127.0.0.1", 0))
            async with serving_on(app, listener):
                await anyio.to_thread.run_sync(act, listener.getsockname()[1])
            return
        with kept_port() as port:
            async with serving_at(app, f"127.0.0.1:{port}"):
                await anyio.to_thread.run_sync(act, port)

    anyio.run(served)


@contextmanager
def _connected(port: int, said: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(said)
        yield stranger


def _post(port: int, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/x", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _is_ended(stranger: socket.socket) -> bool:
    try:
        while stranger.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("is_listening", [False, True], ids=["an address", "a socket"])
def test_the_client_is_the_peer(is_listening: bool):
    """Headers of proxies do not change the address of a client, which failures are counted by."""

    def act(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/client", headers={"X-Forwarded-For": "192.0.2.7"})
        assert connection.getresponse().read() == b"127.0.0.1"
        connection.close()

    _while_served(partial(act), is_listening=is_listening)


@pytest.mark.parametrize("is_listening", [False, True], ids=["an address", "a socket"])
def test_connections_are_limited(is_listening: bool, monkeypatch: pytest.MonkeyPatch):
    """When connections are many, the one that has waited longest without a request is closed."""
    monkeypatch.setattr(connection_limits, "HEAD_S", 600.0)

    def act(port: int) -> None:
        with ExitStack() as stack:
            first, *_ = [stack.enter_context(_connected(port, b"")) for _ in range(_MAX_CONNECTIONS + 50)]
            assert _is_ended(first)

    _while_served(partial(act), is_listening=is_listening)


@pytest.mark.parametrize("said", [b"", _HALF, _TRICKLE], ids=["nothing", "half a head", "half a body"])
def test_who_says_nothing_keeps_nobody_out(said: bytes):
    """However many connections wait without a complete request, others are answered within a few attempts."""

    def act(port: int) -> None:
        with ExitStack() as stack:
            for _ in range(_MAX_CONNECTIONS + 50):
                stack.enter_context(_connected(port, said))
            answers = [_post(port, b"abc") for _ in range(20)]
            assert answers[-10:] == [(200, b"3")] * 10, answers

    _while_served(partial(act))


@pytest.mark.parametrize("first", [b"", _WHOLE], ids=["first", "later"])
@pytest.mark.parametrize("said", [b"", b"\r\n", _HALF], ids=["nothing", "a blank", "half a head"])
def test_a_head_has_its_time(first: bytes, said: bytes, monkeypatch: pytest.MonkeyPatch):
    """Each request on a connection, the first as well as later ones, must send its head within a time limit."""
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.2)

    def act(port: int) -> None:
        with _connected(port, first) as stranger:
            if first:
                assert b"200" in stranger.recv(65536)
            stranger.sendall(said)
            assert _is_ended(stranger)

    _while_served(partial(act))


def test_what_comes_after_the_answer_has_its_time(monkeypatch: pytest.MonkeyPatch):
    """A client that was answered before its body arrived cannot keep the connection by sending it byte by byte."""
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.2)

    def act(port: int) -> None:
        with _connected(port, _TRICKLE.replace(b"/x", b"/none")) as stranger:
            assert b"404" in stranger.recv(65536)
            with pytest.raises(ConnectionError):
                _trickle(stranger)

    _while_served(partial(act))


def _trickle(stranger: socket.socket) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        stranger.sendall(b"x")
        time.sleep(0.01)


def test_a_head_has_an_end():
    """A connection whose request head exceeds the limit is closed."""

    def act(port: int) -> None:
        with _connected(port, _HALF + b"a: ") as stranger, pytest.raises(ConnectionError):
            stranger.sendall(b"x" * (256 * connection_limits.HEAD_BYTES))

    _while_served(partial(act))


def test_a_long_body_is_no_long_head():
    """The limit of the head does not apply to the body."""

    def act(port: int) -> None:
        body = b"x" * (4 * connection_limits.HEAD_BYTES)
        assert _post(port, body) == (200, str(len(body)).encode())

    _while_served(partial(act))

"""Connections from inside: kept, hostile, slow."""

import json
import socket

import anyio
import pytest
from anyio.abc import ByteStream, SocketStream
from tests.egress.gateway.conftest import (
    MESSAGE,
    STREAM,
    OpenGateway,
    Record,
    Seen,
    answer,
    begin,
    end,
    raw,
    request,
    serving,
    stream,
    text,
    wired,
)

from ringfence.egress.gateway import server as door


async def test_a_connection_serves_one_request_after_the_other(gateway_at: OpenGateway):
    """Clients keep theirs."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        for _ in range(3):
            status, _, body = await wire.ask(raw(request()))
            assert (status, json.loads(body)) == (200, MESSAGE)
    assert len(api.seen) == 3


async def test_a_stream_comes_in_chunks(gateway_at: OpenGateway):
    """And the connection goes on after it."""
    async with serving(stream(begin(), end())) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        for _ in range(2):
            _, headers, body = await wire.ask(raw(request({"stream": True})))
            assert headers["transfer-encoding"] == "chunked"
            assert body == begin() + end()


async def test_a_question_about_the_head_is_answered_by_a_head(gateway_at: OpenGateway):
    """Claude asks `HEAD /api/hello` at first; the refusal has no body, and the connection goes on."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        await wire.stream.send(b"HEAD /api/hello HTTP/1.1\r\nHost: x\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await wire.stream.receive()
        status, _, body = await wire.ask(raw(request()))
    assert head.startswith(b"HTTP/1.1 404 ")
    assert (status, json.loads(body)) == (200, MESSAGE)


HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"
SECOND = b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
HOSTILE = {
    "length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "two lengths": HEAD + b"Content-Length: 4\r\nContent-Length: 9\r\n\r\n{}{}" + SECOND,
    "bare line feeds": HEAD.replace(b"\r", b"") + b"Content-Length: 2\n\n{}",
    "a bare line feed": HEAD + b"X: y\nContent-Length: 2\r\n\r\n{}",
    "a folded line": HEAD + b"X: y\r\n Content-Length: 2\r\n\r\n{}",
    "a long header": HEAD + b"X: " + b"y" * 40_000 + b"\r\n\r\n",
    "many headers": HEAD + b"X: y\r\n" * 9000 + b"\r\n",
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "two hosts": HEAD + b"Host: y\r\nContent-Length: 2\r\n\r\n{}",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
    "a space before the colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_readers_could_read_differently_is_refused(
    gateway_at: OpenGateway, record: Record, name: str
):
    """With an answer and the end of the connection; nothing is asked."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        status, headers, body = await wire.ask(HOSTILE[name])
        assert await wire.is_closed()
    assert status in (400, 413, 431, 501)
    assert json.loads(body)["error"]["type"]
    assert headers["connection"] == "close"
    assert api.seen == []
    assert record.events == []


async def test_what_comes_before_its_turn_is_not_read(gateway_at: OpenGateway):
    """A second request behind the first is none."""
    twice = raw(request()) + raw(request({"model": "second"}))
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        assert (await wire.ask(twice))[0] == 200
        assert await wire.is_closed()
    assert [seen.body["model"] for seen in api.seen] == ["m"]


async def test_a_request_that_comes_drop_by_drop_is_cut(
    gateway_at: OpenGateway, monkeypatch: pytest.MonkeyPatch
):
    """However many drops there are."""
    monkeypatch.setattr("ringfence.egress.http.server.REQUEST_TIMEOUT_S", 0.05)
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        await wire.stream.send(HEAD)
        status, _, body = await wire.answer()
        assert await wire.is_closed()
    assert status == 408
    assert b"not complete within" in body
    assert api.seen == []


async def test_a_silent_connection_is_closed(gateway_at: OpenGateway, monkeypatch: pytest.MonkeyPatch):
    """After its first request, too."""
    monkeypatch.setattr(door, "_IDLE_S", 0.05)
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        await wire.ask(raw(request()))
        assert await wire.is_closed()
    assert len(api.seen) == 1


async def test_a_reader_that_stops_reading_is_cut(
    gateway_at: OpenGateway, record: Record, monkeypatch: pytest.MonkeyPatch
):
    """What he does not take is not asked for."""
    monkeypatch.setattr(door, "_STUCK_S", 0.1)

    async def endless(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM)
        while True:
            await wire.send(text("x" * 60_000))

    client, other = socket.socketpair()
    client.sendall(raw(request({"stream": True})))
    with client:
        near = await SocketStream.from_socket(other)
        async with serving(endless) as api, gateway_at(api.url) as gateway, near:
            with pytest.raises(anyio.BrokenResourceError):
                await door.GatewayServer(gateway, "s").serve(near)
        exchanged = await record.has_exchanged()
    assert exchanged[0].ended_by == "inside"


async def test_who_leaves_is_not_waited_for(gateway_at: OpenGateway, record: Record):
    """An answer that nobody wants any more is not paid for."""
    is_asked, is_left = anyio.Event(), anyio.Event()

    async def slow(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM + begin())
        is_asked.set()
        try:
            await wire.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            is_left.set()

    async with serving(slow) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        await wire.stream.send(raw(request({"stream": True})))
        await is_asked.wait()
        await wire.stream.aclose()
        await is_left.wait()
        exchanged = await record.has_exchanged()
    assert exchanged[0].ended_by == "inside"


async def test_a_websocket_is_refused_so_that_clients_do_without(gateway_at: OpenGateway):
    """Codex tries one first, and gives up at once on this status."""
    head = b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        assert (await wire.ask(head))[0] == 426


async def test_a_compressed_body_is_refused(gateway_at: OpenGateway):
    """It could not be looked at."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        status, _, body = await wire.ask(raw(request(content_encoding="zstd")))
    assert status == 415
    assert b"compression" in body


async def test_a_gateway_that_is_gone_opens_nothing(gateway_at: OpenGateway):
    """Connections fail; none gets anywhere else."""
    async with serving(answer(MESSAGE)) as api:
        async with gateway_at(api.url) as gateway:
            pass
        async with wired(gateway) as wire:
            await wire.stream.send(raw(request()))
            assert await wire.is_closed()
    assert api.seen == []


DEEP = b'{"usage":' * 100_000
ODD_ANSWERS = {
    "a switch of protocols": b"HTTP/1.1 101 Switch\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhello",
    "a status beyond all": b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n\r\n",
    "a header in a header": b"HTTP/1.1 200 OK\r\nrequest-id: a\rX-Evil: 1\r\nContent-Length: 2\r\n\r\n{}",
    "no HTTP": b"\x16\x03\x01junk\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", ODD_ANSWERS)
async def test_an_api_that_answers_oddly_is_told_as_such(gateway_at: OpenGateway, name: str):
    """It ends its own exchange, and neither the gateway nor the run."""

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(ODD_ANSWERS[name])

    async with serving(respond) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        status, headers, body = await wire.ask(raw(request()))
        assert gateway.stopped is None
    assert status == 502
    assert json.loads(body)["error"]["type"] == "api_error"
    assert "x-evil" not in headers


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\n" + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + DEEP,
        STREAM + b"data: " + DEEP + b"\n\n",
    ],
    ids=["whole", "stream"],
)
async def test_an_answer_that_is_too_deep_to_count_passes_as_it_is(
    gateway_at: OpenGateway, record: Record, said: bytes
):
    """And is estimated."""

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(said)

    async with serving(respond) as api, gateway_at(api.url) as gateway, wired(gateway) as wire:
        status, _, body = await wire.ask(raw(request({"stream": True})))
    assert (status, DEEP in body) == (200, True)
    assert record.exchanged[0].is_estimated
    assert record.exchanged[0].usage.output_tokens >= len(DEEP) // 4

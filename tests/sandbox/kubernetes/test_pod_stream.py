"""The stream to a container of a pod, against a real WebSocket server that behaves as clusters do, or breaks."""

import asyncio
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.sandbox.kubernetes.pod_stream import PROTOCOLS, PodStream

V5, V4 = PROTOCOLS
Handler = Callable[[web.WebSocketResponse], Awaitable[None]]
EXITED_7 = {
    "metadata": {},
    "status": "Failure",
    "message": "command terminated with non-zero exit code: error executing command [/nope], exit code 7",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
}
"""As Kubernetes 1.20.2 sends it on channel 3."""


@asynccontextmanager
async def served(
    handler: Handler, *, protocol: str = V5, keep_alive_s: float = 30.0, proxy: "Cutter | None" = None
) -> AsyncIterator[PodStream]:
    """A stream to a server whose side of the connection is `handler`, perhaps through something that cuts it."""

    async def respond(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=[protocol], max_msg_size=0)
        await websocket.prepare(request)
        await handler(websocket)
        return websocket

    app = web.Application()
    app.router.add_get("/", respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        if proxy is not None:
            port = await proxy.start(port)
        async with aiohttp.ClientSession() as session:
            websocket = await session.ws_connect(
                f"http://127.0.0.1:{port}/", protocols=PROTOCOLS, max_msg_size=4 * 1024**2
            )
            async with PodStream(websocket, keep_alive_s=keep_alive_s) as stream:
                yield stream
    finally:
        if proxy is not None:
            await proxy.stop()
        await runner.cleanup()


class Cutter:
    """A proxy that cuts a connection on which no payload came from the client for a while; a ping is none.

    So does a kubelet (`streamingConnectionIdleTimeout`), which looks at the messages of the streams.
    """

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self.payloads = 0
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> int:
        self._port = port
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self._port)
        down = asyncio.create_task(self._copy(back, writer))
        forth.write(await reader.readuntil(b"\r\n\r\n"))
        try:
            async with asyncio.timeout(self.idle_s) as idle:
                while frame := await _frame(reader):
                    if frame[0] & 0x0F < 8:  # not a control frame
                        self.payloads += 1
                        idle.reschedule(asyncio.get_running_loop().time() + self.idle_s)
                    forth.write(frame)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            down.cancel()
            for one in (writer, forth):
                one.close()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """One masked frame (RFC 6455, section 5.2)."""
    head = await reader.readexactly(2)
    length = head[1] & 0x7F
    more = {126: 2, 127: 8}.get(length, 0)
    extended = await reader.readexactly(more)
    size = int.from_bytes(extended) if more else length
    return head + extended + await reader.readexactly(4 + size)


async def read_all(stream: PodStream, max_bytes: int = 65536) -> bytes:
    """Everything until the end, however that is reported."""
    output = b""
    try:
        while True:
            output += await stream.receive(max_bytes)
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return output


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_bytes_return_as_they_were_sent(protocol: str) -> None:
    """Whatever is sent arrives on the channel of stdin, in order; what comes on stdout is received."""

    async def echo(websocket: web.WebSocketResponse) -> None:
        for channel in (1, 2, 3):
            await websocket.send_bytes(bytes([channel]))  # so servers open the channels
        async for message in websocket:
            assert message.data[0] == 0
            await websocket.send_bytes(b"\1" + message.data[1:])

    sent = os.urandom(1_000_003)
    received = b""
    async with served(echo, protocol=protocol) as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(stream.send, sent)
        while len(received) < len(sent):
            piece = await stream.receive(7777)
            assert 0 < len(piece) <= 7777
            received += piece
    assert received == sent


MESSAGES = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=60)), max_size=12)


@settings(max_examples=40, deadline=None)
@given(MESSAGES, st.integers(1, 50))
def test_stdout_and_stderr_are_told_apart(messages: list[tuple[int, bytes]], max_bytes: int) -> None:
    """However output is mixed and cut, stdout is complete and in order, and stderr is kept beside it."""

    async def talk(websocket: web.WebSocketResponse) -> None:
        for channel, data in messages:
            await websocket.send_bytes(bytes([channel]) + data)

    async def check() -> None:
        async with served(talk) as stream:
            output = await read_all(stream, max_bytes)
        assert output == b"".join(data for channel, data in messages if channel == 1)
        assert stream.stderr == b"".join(data for channel, data in messages if channel == 2)

    anyio.run(check)


async def test_stderr_is_bounded() -> None:
    """Only the end of a long stderr is kept."""

    async def talk(websocket: web.WebSocketResponse) -> None:
        for _ in range(100):
            await websocket.send_bytes(b"\2" + b"x" * 10_000)
        await websocket.send_bytes(b"\2the end")

    async with served(talk) as stream:
        await read_all(stream)
    assert stream.stderr.endswith(b"the end")
    assert len(stream.stderr) == 4096


@pytest.mark.parametrize(
    ("message", "status"),
    [
        pytest.param(json.dumps({"metadata": {}, "status": "Success"}).encode(), "Success", id="success"),
        pytest.param(json.dumps(EXITED_7).encode(), "Failure", id="exit code"),
        pytest.param(b"container not found\x1b[31m", "Failure", id="no JSON"),
        pytest.param(b"[" * 100_000, "Failure", id="deep JSON"),
        pytest.param(b"[1]", "Failure", id="JSON of another kind"),
    ],
)
async def test_status_ends_the_stream(message: bytes, status: str) -> None:
    """A reported result ends the stream, even if the server leaves it open; all of stdout before it is received."""

    async def talk(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\1out")
        await websocket.send_bytes(b"\3" + message)
        await websocket.receive()

    async with served(talk, protocol=V4) as stream:
        assert await stream.receive() == b"out"
        with anyio.fail_after(10), pytest.raises(anyio.EndOfStream):
            await stream.receive()
        assert stream.status is not None
        assert stream.status["status"] == status
        assert stream.end is not None
        assert not stream.end.is_broken
        assert stream.end.detail.isprintable()
        assert len(stream.end.detail) < 700


async def _say_text(websocket: web.WebSocketResponse) -> None:
    await websocket.send_str("hello")
    await websocket.receive()


async def _use_channel_9(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"\x09hello")
    await websocket.receive()


async def _send_too_much(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"\1" + bytes(5 * 1024**2))
    await websocket.receive()


async def _fail(websocket: web.WebSocketResponse) -> None:
    await websocket.close(code=1011, message=b"the node \x1b[2J is gone")


async def _cut(websocket: web.WebSocketResponse) -> None:
    connection = websocket.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RDWR)


async def _close(websocket: web.WebSocketResponse) -> None:
    await websocket.close()


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        pytest.param(_say_text, anyio.BrokenResourceError, id="text"),
        pytest.param(_use_channel_9, anyio.BrokenResourceError, id="unknown channel"),
        pytest.param(_send_too_much, anyio.BrokenResourceError, id="message too long"),
        pytest.param(_fail, anyio.BrokenResourceError, id="closed with an error"),
        pytest.param(_cut, anyio.BrokenResourceError, id="cut"),
        pytest.param(_close, anyio.EndOfStream, id="closed"),
    ],
)
async def test_a_broken_stream_is_no_end(handler: Handler, error: type[Exception]) -> None:
    """A server that breaks the protocol, fails, or is cut off is told apart from one that closes, again and again."""
    async with served(handler) as stream:
        for _ in range(2):
            with anyio.fail_after(10), pytest.raises(error):
                await stream.receive()
        assert stream.end is not None
        assert stream.end.is_broken is (error is anyio.BrokenResourceError)
        assert stream.end.detail.isprintable()


async def test_flood_waits_in_the_network() -> None:
    """A server that sends without end is slowed down by a reader that does not read: its bytes do not pile up here."""
    sent = 0

    async def flood(websocket: web.WebSocketResponse) -> None:
        nonlocal sent
        while True:
            await websocket.send_bytes(b"\1" + bytes(65536))
            sent += 65536

    async with served(flood) as stream:
        await stream.receive()
        before = -1
        with anyio.fail_after(20):
            while sent != before:  # until the server waits
                before = sent
                await anyio.sleep(0.3)
        assert sent < 32 * 1024**2


async def test_sender_waits_for_the_reader() -> None:
    """`send` waits while the server does not read."""

    async def idle(websocket: web.WebSocketResponse) -> None:
        await asyncio.Event().wait()

    async with served(idle) as stream:
        with anyio.move_on_after(1.0) as scope:
            for _ in range(64):
                await stream.send(bytes(1024**2))
        assert scope.cancelled_caught


async def test_silent_stream_is_kept_alive() -> None:
    """Where payload is expected now and then, a stream without traffic lives on, and nothing extra arrives on stdin."""
    cutter = Cutter(idle_s=0.5)
    arrived: list[bytes] = []

    async def listen(websocket: web.WebSocketResponse) -> None:
        async for message in websocket:
            arrived.append(message.data)
            if len(arrived) == 15:
                await websocket.send_bytes(b"\1still here")

    async with served(listen, keep_alive_s=0.1, proxy=cutter) as stream:
        with anyio.fail_after(20):
            assert await stream.receive() == b"still here"
    assert set(arrived) == {b"\0"}


async def test_silent_stream_would_be_cut() -> None:
    """The server of the test above does cut a stream that is not kept alive."""

    async def listen(websocket: web.WebSocketResponse) -> None:
        await websocket.receive()

    async with served(listen, keep_alive_s=60, proxy=Cutter(idle_s=0.5)) as stream:
        with anyio.fail_after(20), pytest.raises(anyio.BrokenResourceError):
            await stream.receive()


@pytest.mark.parametrize(("protocol", "ends"), [(V5, [b"\xff\0"]), (V4, [])])
async def test_stdin_ends_where_the_protocol_can(protocol: str, ends: list[bytes]) -> None:
    """Version 5 ends stdin, once; version 4 cannot and sends nothing that it does not know."""
    arrived = []

    async def listen(websocket: web.WebSocketResponse) -> None:
        async for message in websocket:
            if message.data == b"\0last":
                await websocket.close()
                return
            arrived.append(message.data)

    async with served(listen, protocol=protocol) as stream:
        await stream.send_eof()
        await stream.send_eof()
        await stream._socket.send_bytes(b"\0last")
        await read_all(stream)
    assert arrived == ends


async def test_closing_is_quick_where_nobody_reads() -> None:
    """A server that reads nothing, with a full connection, does not keep `aclose` or the connection."""
    over = asyncio.Event()

    async def idle(websocket: web.WebSocketResponse) -> None:
        await over.wait()

    async with served(idle) as stream:
        with anyio.move_on_after(0.5):
            while True:
                await stream.send(bytes(1024**2))
        began = time.monotonic()
        await stream.aclose()
        assert time.monotonic() - began < 5
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"x")
        over.set()


async def test_closing_ends_a_waiting_receiver() -> None:
    """A task that waits for bytes gets an error when another one closes the stream."""

    async def idle(websocket: web.WebSocketResponse) -> None:
        await websocket.receive()

    async with served(idle) as stream, anyio.create_task_group() as tasks:

        async def receive() -> None:
            with pytest.raises((anyio.ClosedResourceError, anyio.BrokenResourceError)):
                await stream.receive()

        tasks.start_soon(receive)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(10):
            await stream.aclose()

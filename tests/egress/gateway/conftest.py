"""An API that answers as each test says, and a gateway in front of it."""

import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import h11
import pytest
import trustme
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream

from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import ModelProvider
from ringfence.egress.gateway.server import GatewayServer
from ringfence.egress.http.rules import Request
from ringfence.events import Event, ModelAsked, ModelExchanged
from ringfence.secret import Credential, Provider

KEY = "sk-ant-the/real+key-of-the-tests"
PATIENCE_S = 20.0
HEAD = b"HTTP/1.1 %d OK\r\nContent-Type: %s\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass
class Seen:
    """A request as the API got it."""

    method: str
    target: str
    headers: dict[str, str]
    body: Any


Respond = Callable[[Seen, ByteStream], Awaitable[None]]


@dataclass
class Api:
    """A running API."""

    url: str
    seen: list[Seen] = field(default_factory=list)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Respond:
    """Answers everything with this JSON."""

    async def respond(seen: Seen, stream: ByteStream) -> None:
        body = json.dumps(value).encode()
        more = "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items()).encode()
        length = b"Content-Length: %d\r\nConnection: close\r\n" % len(body)
        await stream.send(HEAD % (status, b"application/json") + length + more + b"\r\n" + body)

    return respond


def event(kind: str, **fields: Any) -> bytes:
    """One event of a stream, as Anthropic's API has them."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def begin(input_tokens: int = 10) -> bytes:
    """The first event of a stream."""
    usage = {"input_tokens": input_tokens, "output_tokens": 1}
    return event("message_start", message={"model": "m", "usage": usage})


def text(words: str) -> bytes:
    """A piece of an answer."""
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": words})


def end(output_tokens: int = 5) -> bytes:
    """The last events of a stream."""
    usage = {"output_tokens": output_tokens}
    return event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage) + event("message_stop")


def stream(*pieces: bytes) -> Respond:
    """Answers everything with these pieces of a stream."""

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM)
        for piece in pieces:
            await wire.send(piece)

    return respond


MESSAGE = {"model": "m", "type": "message", "content": [], "usage": {"input_tokens": 10, "output_tokens": 5}}


@asynccontextmanager
async def serving(
    respond: Respond, authority: trustme.CA | None = None, *, host: str = "127.0.0.1"
) -> AsyncIterator[Api]:
    """An API on loopback, in TLS if somebody vouches for it; each connection is one request."""
    context = None
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    listener = await anyio.create_tcp_listener(local_host=host)
    port = listener.extra(SocketAttribute.local_port)
    api = Api(f"{'https' if context else 'http'}://{host}:{port}")

    async def attend(plain: SocketStream) -> None:
        async with plain:
            try:
                wire: ByteStream = plain
                if context is not None:
                    wire = await TLSStream.wrap(plain, server_side=True, ssl_context=context)
                seen = await _read(wire)
                if seen is not None:
                    api.seen.append(seen)
                    await respond(seen, wire)
            except (
                anyio.BrokenResourceError,
                anyio.EndOfStream,
                anyio.ClosedResourceError,
                ssl.SSLError,
                OSError,
            ):
                return

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, attend)
        yield api
        tasks.cancel_scope.cancel()


async def _read(wire: ByteStream) -> Seen | None:
    http = h11.Connection(h11.SERVER)
    head, body = None, b""
    while True:
        got = http.next_event()
        if got is h11.NEED_DATA:
            http.receive_data(await wire.receive())
        elif isinstance(got, h11.Request):
            head = got
        elif isinstance(got, h11.Data):
            body += bytes(got.data)
        elif isinstance(got, h11.EndOfMessage) and head is not None:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Seen(
                head.method.decode(), head.target.decode(), headers, json.loads(body) if body else None
            )
        else:
            return None


class Record:
    """Events, as a journal would be given them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = anyio.Event()

    async def emit(self, event: Event) -> None:
        """Keep one."""
        self.events.append(event)
        self._more.set()
        self._more = anyio.Event()

    @property
    def asked(self) -> list[ModelAsked]:
        """What was asked."""
        return [each for each in self.events if isinstance(each, ModelAsked)]

    @property
    def exchanged(self) -> list[ModelExchanged]:
        """What came of it."""
        return [each for each in self.events if isinstance(each, ModelExchanged)]

    async def has_exchanged(self, count: int = 1) -> list[ModelExchanged]:
        """Wait until so many exchanges are over."""
        with anyio.fail_after(PATIENCE_S):
            while len(self.exchanged) < count:
                await self._more.wait()
        return self.exchanged


@pytest.fixture
def record() -> Record:
    """What was told."""
    return Record()


def request(body: dict[str, Any] | None = None, *, path: str = "/v1/messages", **headers: str) -> Request:
    """A request of a client inside."""
    said = {"anthropic-version": "2023-06-01", "x-api-key": "dummy"} if "messages" in path else {}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    whole = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **(body or {})}
    return Request("POST", path, tuple(said.items()), json.dumps(whole).encode())


OpenGateway = Callable[..., AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def gateway_at(record: Record) -> OpenGateway:
    """Opens a gateway in front of an API."""

    @asynccontextmanager
    async def open_one(
        url: str,
        *,
        credential: Credential | None = None,
        providers: Sequence[Provider] = ("anthropic", "openai"),
        **arguments: Any,
    ) -> AsyncIterator[Gateway]:
        given = []
        for each in providers:
            one = credential or Credential("api_key", KEY, provider=each)
            given.append(ModelProvider(each, one, one.kind, url if each == "anthropic" else f"{url}/v1"))
        gateway = Gateway(given, **arguments)
        with anyio.fail_after(PATIENCE_S):
            async with gateway.opened(record.emit):
                yield gateway

    return open_one


async def whole(gateway: Gateway, asked: Request, *, sandbox_id: str = "s") -> tuple[int, bytes]:
    """The status and the body of an answer."""
    got = await gateway.handle(asked, sandbox_id=sandbox_id)
    try:
        return got.status, b"".join([piece async for piece in got.body()])
    finally:
        await got.aclose()


@dataclass
class Wire:
    """A client's end of a connection to the gateway."""

    stream: SocketStream

    async def ask(self, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send these bytes; the answer."""
        await self.stream.send(raw)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer. Raises `anyio.EndOfStream` if the connection ends without a whole one."""
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        http.send(h11.EndOfMessage())
        head, body = None, b""
        while True:
            got = http.next_event()
            if got is h11.NEED_DATA:
                http.receive_data(await self.stream.receive())
            elif isinstance(got, h11.Response):
                head = got
            elif isinstance(got, h11.Data):
                body += bytes(got.data)
            elif isinstance(got, h11.EndOfMessage) and head is not None:
                return head.status_code, {n.decode(): v.decode() for n, v in head.headers}, body

    async def is_closed(self) -> bool:
        """Wait for the end of the connection, whatever comes before it."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True


@asynccontextmanager
async def wired(gateway: Gateway, door: GatewayServer | None = None) -> AsyncIterator[Wire]:
    """A connection to the gateway, as from inside; through a door that others use, too, if one is given."""
    one, other = socket.socketpair()
    client, near = await SocketStream.from_socket(one), await SocketStream.from_socket(other)

    async def serve() -> None:
        async with near:
            try:
                await (door or GatewayServer(gateway, "s")).serve(near)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async with client, anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield Wire(client)
        tasks.cancel_scope.cancel()


def raw(asked: Request) -> bytes:
    """A request as bytes."""
    head = "".join(f"{name}: {value}\r\n" for name, value in asked.headers)
    first = f"{asked.method} {asked.target} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(asked.body)}\r\n\r\n"
    return first.encode() + asked.body

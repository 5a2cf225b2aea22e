"""Forwards from a real sandbox to real services of this machine."""

import socket
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.cases import slow_after
from tests.ports import kept_port

from ringfence.config.forward import Forward
from ringfence.egress.forward import Forwarder
from ringfence.egress.gate import opened_gate
from ringfence.errors import PolicyRefused
from ringfence.events import Event, ForwardClosed, ForwardOpened, ForwardRefused
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.testing.conformance.check import python

CALL = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"


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

    async def reaches(self, count: int) -> None:
        """Wait until so many were kept."""
        with anyio.fail_after(30):
            while len(self.events) < count:
                await self._more.wait()


@asynccontextmanager
async def service(serve: Callable[[SocketStream], Awaitable[None]]):
    """A TCP service of this machine, in another process's stead; yields its port."""

    async def attend(stream: SocketStream) -> None:
        async with stream:
            await serve(stream)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, attend)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


async def shout(stream: SocketStream) -> None:
    """Answer in capitals, and end."""
    await stream.send((await stream.receive()).upper())


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """The services of these tests live in this process, and are to count as others'."""
    monkeypatch.setattr("ringfence.egress.forward.own_ports", frozenset)


@asynccontextmanager
async def gated(record: Record, *forwards: str):
    """A sandbox with these forwards."""
    spec = SandboxSpec(backend="bubblewrap", forward=forwards)
    async with Sandbox.start(spec) as sandbox, opened_gate(sandbox, spec, record.emit):
        yield sandbox


async def call(sandbox: Sandbox, host: str, port: int, code: str) -> str:
    """What a script inside prints that has called a host as `s`."""
    result = await python(sandbox, CALL + code, host, str(port))
    return result.stdout.strip() or result.stderr.strip().splitlines()[-1]


async def test_by_name_and_journaled(foreign: None) -> None:
    """A service is reached inside by its name; the connection and its bytes are in the record."""
    record = Record()
    async with service(shout) as port, gated(record, f"cache:6379=127.0.0.1:{port}") as sandbox:
        said = await call(
            sandbox, "cache", 6379, "s.sendall(b'word'); print(s.recv(9), s.recv(9)); s.close()"
        )
        await record.reaches(2)
    assert said == "b'WORD' b''"
    opened, closed = record.events
    assert isinstance(opened, ForwardOpened)
    assert isinstance(closed, ForwardClosed)
    assert (opened.address, opened.connection) == (f"127.0.0.1:{port}", 1)
    assert (closed.sent_bytes, closed.received_bytes, closed.ended_by) == (4, 4, "closed")


async def test_recorded_before_the_service_is_called() -> None:
    """A connection that cannot be recorded is not made."""
    called = anyio.Event()

    async def note(_stream: SocketStream) -> None:
        called.set()

    async def refuse(_event: Event) -> None:
        raise anyio.BrokenResourceError

    async with service(note) as port, gated(Record()) as sandbox:
        forward = Forward.model_validate(f"127.0.0.1:{port}")
        forwarder = Forwarder(forward, sandbox_id="x", emit=refuse)
        async with sandbox.listen(forwarder.serve, port=forward.port):
            await call(sandbox, "127.0.0.1", port, "s.recv(1)")
    assert not called.is_set()


async def test_nobody_answers(foreign: None) -> None:
    """A service that is not there is a connection cut off, and the record says why."""
    record = Record()
    with kept_port() as port:
        async with gated(record, f"127.0.0.1:{port}") as sandbox:
            assert "reset" in await call(sandbox, "127.0.0.1", port, "s.recv(1)")
    assert isinstance(record.events[-1], ForwardClosed)
    assert "refused" in record.events[-1].ended_by


async def test_own_sockets() -> None:
    """A port that ringfence itself listens on is not led to, even where somebody named it."""
    record = Record()
    async with service(shout) as port, gated(record, f"127.0.0.1:{port}") as sandbox:
        assert "reset" in await call(sandbox, "127.0.0.1", port, "s.recv(1)")
    (refused,) = record.events
    assert isinstance(refused, ForwardRefused)
    assert "ringfence itself" in refused.reason


@pytest.mark.parametrize("answer", slow_after(1, ["169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0"]))
async def test_name_that_turned(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves to a metadata service when it is called is refused, though its first answer is good."""

    def resolve(*_arguments: object, **_options: object) -> list[object]:
        return [(2, 1, 6, "", ("127.0.0.1", 6379)), (2, 1, 6, "", (answer, 6379))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    record = Record()
    async with gated(record, "rebound:6379") as sandbox:
        assert "reset" in await call(sandbox, "rebound", 6379, "s.recv(1)")
    (refused,) = record.events
    assert isinstance(refused, ForwardRefused)
    assert refused.reason.startswith("'rebound' resolves to ")


@pytest.mark.parametrize(
    "text", ["169.254.169.254:8080", "metadata.google.internal:8080", "[fd00:ec2::254]:8080", "x:2375"]
)
async def test_refused_by_policy(text: str) -> None:
    """A sandbox that is to lead to credentials or to an engine is not opened."""
    with pytest.raises(PolicyRefused, match="not allowed"):
        await Sandbox.open(SandboxSpec(backend="bubblewrap", forward=(text,))).__aenter__()


async def test_host_backend() -> None:
    """Without a fence there is nothing to forward through."""
    with pytest.raises(PolicyRefused, match="bare host"):
        await Sandbox.open(SandboxSpec(backend="host", forward=("redis:6379",))).__aenter__()

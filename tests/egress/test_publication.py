"""A port inside, reached from the host because somebody asked for it."""

import anyio
import pytest

from ringfence.egress.publication import publish_port
from ringfence.errors import UsageError
from ringfence.events import Event, PortPublished, PortWithdrawn
from ringfence.sandbox import Sandbox, SandboxSpec

SERVER = [
    "python3",
    "-u",
    "-c",
    """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    sock, _ = server.accept()
    sock.sendall(sock.recv(100).upper())
    sock.close()
""",
]


async def test_reached() -> None:
    """A server inside is called on the host's loopback; that it could be, and what passed, is in the record."""
    events: list[Event] = []

    async def emit(event: Event) -> None:
        events.append(event)

    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox, sandbox.spawn(SERVER) as process:
        port = int(await anext(process.stdout))
        async with (
            publish_port(sandbox, port, emit) as host_port,
            await anyio.connect_tcp("127.0.0.1", host_port) as stream,
        ):
            await stream.send(b"word")
            assert await stream.receive() == b"WORD"
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        with pytest.raises(OSError, match=r"refused|failed"):
            await anyio.connect_tcp("127.0.0.1", host_port)
    first, last = events
    assert isinstance(first, PortPublished)
    assert isinstance(last, PortWithdrawn)
    assert (last.connections, last.failed, last.sent_bytes, last.received_bytes) == (1, 0, 4, 4)


async def test_nobody_inside() -> None:
    """Where nobody listens inside the connection is closed, and counted as failed."""
    events: list[Event] = []

    async def emit(event: Event) -> None:
        events.append(event)

    async with (
        Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
        publish_port(sandbox, 9, emit) as port,
        await anyio.connect_tcp("127.0.0.1", port) as stream,
    ):
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
    assert isinstance(events[-1], PortWithdrawn)
    assert events[-1].failed == 1


async def test_taken() -> None:
    """A port of the host that is taken is an error that says so."""

    async def emit(_event: Event) -> None:
        """No record is kept."""

    async with (
        Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
        publish_port(sandbox, 9, emit) as port,
    ):
        with pytest.raises(UsageError, match=str(port)):
            await publish_port(sandbox, 9, emit, host_port=port).__aenter__()

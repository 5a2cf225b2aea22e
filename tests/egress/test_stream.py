"""Connections to the outside: read in pieces, ended one direction at a time, told apart when cut off."""

import ipaddress
import socket
import struct
from collections.abc import Iterator

import anyio
import pytest
from tests.ports import kept_port

from ringfence.descriptor_stream import DescriptorStream
from ringfence.egress.resolver import own_ports
from ringfence.egress.stream import connect_tcp

LOOPBACK = ipaddress.ip_address("127.0.0.1")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listener."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


async def made(server: socket.socket) -> tuple[DescriptorStream, socket.socket]:
    """A connection, and its other end."""
    with anyio.fail_after(10):
        stream = await connect_tcp(LOOPBACK, server.getsockname()[1])
        other, _ = server.accept()
    return stream, other


async def test_pieces(server: socket.socket) -> None:
    """No more is read than is asked for, and all of it in order; then the end."""
    with server:
        stream, other = await made(server)
        with other:
            other.sendall(b"abcdef")
            other.shutdown(socket.SHUT_WR)
            assert [await stream.receive(4), await stream.receive(4)] == [b"abcd", b"ef"]
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            await stream.send(b"still")
            assert other.recv(5) == b"still"
            await stream.send_eof()
            assert other.recv(5) == b""
        await stream.aclose()


async def test_all_is_sent(server: socket.socket) -> None:
    """More than the kernel takes at once is sent to its last byte."""
    data = bytes(range(256)) * 20_000
    with server:
        stream, other = await made(server)
        received = bytearray()

        def read() -> None:
            while len(received) < len(data):
                received.extend(other.recv(1 << 20))

        with other:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, read)
                await stream.send(data)
        await stream.aclose()
    assert received == data


async def test_cut_off(server: socket.socket) -> None:
    """A connection that was reset is not taken for one that has ended."""
    with server:
        stream, other = await made(server)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        with pytest.raises(anyio.BrokenResourceError):
            await stream.receive()
        await stream.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()


async def test_closed_while_somebody_reads(server: socket.socket) -> None:
    """Who waits for bytes is told when the connection is closed under him."""
    with server:
        stream, other = await made(server)
        told = []

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()
            told.append("closed")

        with other, anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                await stream.aclose()
    assert told == ["closed"]


async def test_refused() -> None:
    """Where nobody listens, it is told why."""
    with kept_port() as port, pytest.raises(OSError, match="Connection refused"):
        await connect_tcp(LOOPBACK, port)


def test_own_ports(server: socket.socket) -> None:
    """Ports that this process listens on are known, in both families, and others are not."""
    with server, socket.create_server(("::1", 0), family=socket.AF_INET6) as sixth:
        found = own_ports()
        assert {server.getsockname()[1], sixth.getsockname()[1]} <= found
        with socket.create_connection(server.getsockname()) as client:
            assert client.getsockname()[1] not in own_ports()

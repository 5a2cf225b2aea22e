"""A descriptor that is listened to all the time."""

import os
import socket
import struct
from collections.abc import Iterator

import anyio.lowlevel
import pytest

from ringfence.sandbox.inflow import Inflow

PATIENCE_S = 20.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its two ends; the first one does not block."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            continue


async def test_what_comes_is_received_in_order(pipe: tuple[int, int]):
    """To its end, which is told as often as one asks."""
    read, write = pipe
    with anyio.fail_after(PATIENCE_S), Inflow(read, most_bytes=4) as inflow:
        os.write(write, b"hello")
        assert await inflow.receive() + await inflow.receive() == b"hello"
        os.write(write, b"!")
        os.close(write)
        assert await inflow.receive() == b"!"
        assert await inflow.receive() == b""
        assert await inflow.receive() == b""


async def test_no_more_than_one_piece_is_read_ahead(pipe: tuple[int, int]):
    """What nobody takes waits with its sender."""
    read, write = pipe
    with anyio.fail_after(PATIENCE_S), Inflow(read, most_bytes=4) as inflow:
        os.write(write, b"a")
        assert await inflow.receive() == b"a"
        os.write(write, b"0123456789")
        while inflow._piece is None:
            await anyio.lowlevel.checkpoint()
        assert os.read(read, 100) == b"456789"
        assert await inflow.receive() == b"0123"


async def test_a_connection_that_is_cut_off_is_at_its_end():
    """Like any other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    mine.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with mine, anyio.fail_after(PATIENCE_S), Inflow(mine.fileno(), most_bytes=4) as inflow:
        assert await inflow.receive() == b""


async def test_what_cannot_be_read_is_told(pipe: tuple[int, int]):
    """By the error of the system."""
    _, write = pipe
    os.close(pipe[0])  # the writing end has an event then, and cannot be read
    is_told = pytest.raises(OSError, match="Bad file descriptor")
    with anyio.fail_after(PATIENCE_S), Inflow(write, most_bytes=4) as inflow, is_told:
        await inflow.receive()


async def test_a_receiver_may_be_cancelled(pipe: tuple[int, int]):
    """And nothing is lost by it."""
    read, write = pipe
    with anyio.fail_after(PATIENCE_S), Inflow(read, most_bytes=4) as inflow:
        with anyio.move_on_after(0):
            await inflow.receive()
        os.write(write, b"a")
        assert await inflow.receive() == b"a"

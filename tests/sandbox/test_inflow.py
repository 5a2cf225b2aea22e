"""A descriptor that is listened to all the time."""

import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from ringfence.sandbox.protocol.inflow import Inflow

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


@asynccontextmanager
async def running(inflow: Inflow) -> AsyncIterator[None]:
    """It reads until the context is left."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inflow.run)
        await anyio.lowlevel.checkpoint()
        yield
        tasks.cancel_scope.cancel()


async def until_there_are(pieces: list[bytes], count: int) -> None:
    """Let the event loop turn until so many came."""
    while len(pieces) < count:
        await anyio.lowlevel.checkpoint()


async def test_what_comes_is_handed_on_in_order(pipe: tuple[int, int]):
    """Piece by piece, to its end."""
    read, write = pipe
    pieces: list[bytes] = []
    os.write(write, b"hello!")
    os.close(write)
    with anyio.fail_after(PATIENCE_S):
        await Inflow(read, pieces.append, most_bytes=4).run()
    assert pieces == [b"hell", b"o!"]


async def test_what_comes_in_a_pause_waits_with_its_sender(pipe: tuple[int, int]):
    """And is read when it is over."""
    read, write = pipe
    pieces: list[bytes] = []
    inflow = Inflow(read, pieces.append, most_bytes=4)
    with anyio.fail_after(PATIENCE_S):
        async with running(inflow):
            os.write(write, b"a")
            await until_there_are(pieces, 1)
            inflow.pause()
            os.write(write, b"0123456789")
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            assert os.read(read, 8) == b"01234567"
            inflow.go_on()
            await until_there_are(pieces, 2)
    assert pieces == [b"a", b"89"]


async def test_who_is_handed_a_piece_may_stop_it(pipe: tuple[int, int]):
    """Nothing more is read then, not even when somebody wants to go on."""
    read, write = pipe
    pieces: list[bytes] = []

    def take(piece: bytes) -> None:
        pieces.append(piece)
        inflow.stop()
        inflow.go_on()

    inflow = Inflow(read, take, most_bytes=4)
    os.write(write, b"01234567")
    with anyio.fail_after(PATIENCE_S):
        await inflow.run()
    assert (pieces, os.read(read, 8)) == ([b"0123"], b"4567")


async def test_a_connection_that_is_cut_off_is_at_its_end():
    """Like any other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    mine.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    pieces: list[bytes] = []
    with mine, anyio.fail_after(PATIENCE_S):
        await Inflow(mine.fileno(), pieces.append, most_bytes=4).run()
    assert pieces == []


async def test_what_cannot_be_read_is_told(pipe: tuple[int, int]):
    """By the error of the system."""
    _, write = pipe
    os.close(pipe[0])  # the writing end has an event then, and cannot be read
    with anyio.fail_after(PATIENCE_S), pytest.raises(OSError, match="Bad file descriptor"):
        await Inflow(write, lambda _piece: None, most_bytes=4).run()


async def test_an_error_of_who_is_handed_a_piece_ends_it(pipe: tuple[int, int]):
    """It is raised where the reading is waited for, and nothing more is handed on."""
    read, write = pipe
    pieces: list[bytes] = []

    def take(piece: bytes) -> None:
        pieces.append(piece)
        raise ValueError("no good")

    os.write(write, b"01234567")
    with anyio.fail_after(PATIENCE_S), pytest.raises(ValueError, match="no good"):
        await Inflow(read, take, most_bytes=4).run()
    assert pieces == [b"0123"]


async def test_nothing_is_read_after_it_was_cancelled(pipe: tuple[int, int]):
    """The descriptor may be closed then."""
    read, write = pipe
    pieces: list[bytes] = []
    async with running(Inflow(read, pieces.append, most_bytes=4)):
        pass
    os.write(write, b"a")
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    assert pieces == []

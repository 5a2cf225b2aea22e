"""A byte stream over pipes or a socket, and what waits to be sent to a guest."""

import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest

from ringfence.descriptor_stream import DescriptorStream
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol import link as link_module
from ringfence.sandbox.protocol import stream as stream_module
from ringfence.sandbox.protocol.link import GuestLink
from ringfence.sandbox.protocol.stream import pipe_stream

PATIENCE_S = 20.0
HEADER = frames.HEADER.size


class Ends:
    """A stream, and the other end of its pipes."""

    def __init__(self) -> None:
        self.stream, self.their_stdin, self.their_stdout = pipe_stream()

    def close_theirs(self) -> None:
        """The other end is gone."""
        for descriptor in (self.their_stdin, self.their_stdout):
            with suppress(OSError):
                os.close(descriptor)

    async def read_all(self, count: int) -> bytes:
        """So many bytes that were sent."""
        found = b""
        while len(found) < count:
            await anyio.wait_readable(self.their_stdin)
            found += os.read(self.their_stdin, count - len(found))
        return found


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    """Both ends of a stream."""
    made = Ends()
    with anyio.fail_after(PATIENCE_S):
        yield made
    made.close_theirs()
    await made.stream.aclose()


async def test_received_in_order_to_the_end(ends: Ends):
    """Bytes are received in order, and then the end of the stream."""
    os.write(ends.their_stdout, b"hello!")
    os.close(ends.their_stdout)
    assert await ends.stream.receive(4) == b"hell"
    assert await ends.stream.receive(4) == b"o!"
    with pytest.raises(anyio.EndOfStream):
        await ends.stream.receive()


async def test_what_nobody_receives_waits_with_its_sender(ends: Ends):
    """Bytes are read from the pipe only when somebody receives them."""
    os.write(ends.their_stdout, b"a")
    assert await ends.stream.receive() == b"a"
    os.set_blocking(ends.their_stdout, False)
    sent = 0
    with suppress(BlockingIOError):
        while sent < 64 * 1024**2:
            sent += os.write(ends.their_stdout, bytes(65_536))
            await anyio.lowlevel.checkpoint()
    assert sent <= 2 * 1024**2
    assert len(await ends.stream.receive(1000)) == 1000


async def test_a_receiver_that_is_cancelled_loses_nothing(ends: Ends):
    """Bytes that arrive while a receiver is cancelled go to the next receiver."""
    received = b""
    for number in range(50):
        async with anyio.create_task_group() as tasks:

            async def receive() -> None:
                nonlocal received
                received += await ends.stream.receive()

            tasks.start_soon(receive)
            await anyio.lowlevel.checkpoint()
            os.write(ends.their_stdout, bytes([number]))
            for _ in range(number % 3):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    os.close(ends.their_stdout)
    with suppress(anyio.EndOfStream):
        while True:
            received += await ends.stream.receive(3)
    assert received == bytes(range(50))


async def test_a_connection_that_is_cut_off_is_broken():
    """A connection that is reset raises `BrokenResourceError`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    descriptor = mine.detach()
    stream = DescriptorStream(descriptor, descriptor)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    with pytest.raises(anyio.BrokenResourceError):
        await stream.receive()
    await stream.aclose()


async def test_each_direction_ends_by_itself():
    """Ending the sending direction leaves the receiving one open, on a socket as well."""
    ours, theirs = socket.socketpair()
    descriptor = ours.detach()
    stream = DescriptorStream(descriptor, descriptor)
    await stream.send_eof()
    assert theirs.recv(10) == b""
    theirs.send(b"still here")
    assert await stream.receive() == b"still here"
    await stream.aclose()
    assert theirs.recv(10) == b""
    theirs.close()


async def test_closing_wakes_a_receiver(ends: Ends):
    """A receiver gets `ClosedResourceError` when its own side closes the stream."""
    async with anyio.create_task_group() as tasks:

        async def receive() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await ends.stream.receive()

        tasks.start_soon(receive)
        await anyio.lowlevel.checkpoint()
        await ends.stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await ends.stream.send(b"x")


async def test_all_is_sent_in_order(ends: Ends):
    """Megabytes are sent whole and in order."""
    data = bytes(range(256)) * 20_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.stream.send, data)
        assert await ends.read_all(len(data)) == data


async def test_a_reader_that_is_gone_breaks_sending(ends: Ends):
    """Sending to a reader that is gone raises `BrokenResourceError`, and no signal."""
    os.close(ends.their_stdin)
    with pytest.raises(anyio.BrokenResourceError):
        await ends.stream.send(b"x")


# --- what waits to be sent to a guest


def send(link: GuestLink, count: int) -> None:
    """Post a frame of so many bytes in all."""
    link.post(frames.STDIN, 1, bytes(count - HEADER))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, ends: Ends) -> GuestLink:
    """A link that holds all that may be held, to a guest that has read nothing so far."""
    monkeypatch.setattr(link_module, "_FULL", 1000)
    monkeypatch.setattr(stream_module, "_PIECE", 500)
    link = GuestLink(ends.stream)
    while not link.is_full:
        send(link, 1000)
    return link


@asynccontextmanager
async def writing(link: GuestLink) -> AsyncIterator[None]:
    """It sends until the context is left."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.outgoing.run)
        yield
        tasks.cancel_scope.cancel()


async def test_who_waits_has_a_turn_when_there_is_room(full: GuestLink):
    """Each sender that waits gets its turn, also when those before it send nothing or were cancelled."""
    sent: list[int] = []

    async def post(number: int) -> None:
        while full.is_full:
            await full.wait_for_turn()
        if number % 3:
            sent.append(number)
            send(full, 400)

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as doomed:
            tasks.start_soon(post, 1)
            async with anyio.create_task_group() as others:
                others.start_soon(full.wait_for_turn)
                await anyio.lowlevel.checkpoint()
                doomed.cancel()
        for number in range(2, 50):
            tasks.start_soon(post, number)
        tasks.start_soon(full.outgoing.run)
        with anyio.fail_after(PATIENCE_S):
            while len(sent) < 33:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert sorted(sent) == [number for number in range(1, 50) if number % 3]


async def test_no_more_have_a_turn_than_there_is_room_for(full: GuestLink):
    """The amount that is queued does not grow with the number of senders that wait."""
    held: list[int] = []

    async def post() -> None:
        while full.is_full:
            await full.wait_for_turn()
        send(full, 600)
        held.append(full.outgoing.size)

    async with writing(full), anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(post)
    assert max(held) < 1000 + 600


async def test_who_is_cancelled_is_forgotten_while_it_is_full(full: GuestLink):
    """Senders that are cancelled while the queue is full leave nothing behind in it."""
    for _ in range(100):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(full.wait_for_turn)
            tasks.start_soon(full.wait_for_turn)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert full._turns.statistics().tasks_waiting == 0


async def test_all_go_on_when_the_sandbox_is_gone(full: GuestLink):
    """All senders that wait continue when the sandbox is gone, and the queue is empty."""
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(full.wait_for_turn)
        await anyio.lowlevel.checkpoint()
        full.fail(RuntimeError("it is gone"))
    assert full.outgoing.size == 0


async def test_nothing_is_held_for_a_guest_that_is_gone(full: GuestLink, ends: Ends):
    """What is queued for a guest that is gone is dropped."""
    os.close(ends.their_stdin)
    async with writing(full):
        while full.outgoing.size:
            await anyio.lowlevel.checkpoint()

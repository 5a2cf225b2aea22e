"""A descriptor that is written to without waiting, over a real pipe."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from ringfence.sandbox.protocol import outflow as outflow_module
from ringfence.sandbox.protocol.outflow import Outflow
from ringfence.sandbox.protocol.records import ProtocolError

PATIENCE_S = 20.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its two ends, neither of which blocks."""
    ends = os.pipe2(os.O_NONBLOCK)
    yield ends
    for descriptor in ends:
        try:
            os.close(descriptor)
        except OSError:
            continue


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> Outflow:
    """One that holds all that may be held."""
    monkeypatch.setattr(outflow_module, "_FULL", 1000)
    outflow = Outflow(pipe[1], lambda: None)
    while not outflow.is_full:
        outflow.send(bytes(1000))
    return outflow


@asynccontextmanager
async def running(outflow: Outflow) -> AsyncIterator[None]:
    """It writes until the context is left."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outflow.run)
        yield
        tasks.cancel_scope.cancel()


async def read_all(descriptor: int, count: int) -> bytes:
    """So many bytes of a pipe."""
    found = b""
    while len(found) < count:
        await anyio.wait_readable(descriptor)
        found += os.read(descriptor, count - len(found))
    return found


def test_what_is_taken_is_written_at_once(pipe: tuple[int, int]):
    """Nothing of it is queued."""
    outflow = Outflow(pipe[1], lambda: None)
    outflow.send(b"a")
    assert (os.read(pipe[0], 10), len(outflow)) == (b"a", 0)


async def test_what_is_not_taken_comes_in_order(pipe: tuple[int, int]):
    """However large it is."""
    outflow = Outflow(pipe[1], lambda: None)
    sent = [bytes([number]) * 50_000 for number in range(10)]
    for piece in sent:
        outflow.send(piece)
    with anyio.fail_after(PATIENCE_S):
        async with running(outflow):
            assert await read_all(pipe[0], 500_000) == b"".join(sent)
    assert len(outflow) == 0


async def test_two_that_belong_together_are_written_together():
    """A packet pipe keeps writes apart."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_DIRECT)
    outflow = Outflow(write, lambda: None)
    outflow.send(b"a", more=True)
    outflow.send(b"b")
    outflow.send(b"c")
    assert [os.read(read, 10), os.read(read, 10)] == [b"ab", b"c"]
    os.close(read)
    os.close(write)


async def test_who_waits_has_a_turn_when_there_is_room(full: Outflow, pipe: tuple[int, int]):
    """Each of many; also when those before have nothing to send any more, or were cancelled."""
    sent: list[int] = []

    async def send(number: int) -> None:
        while full.is_full:
            await full.wait_for_turn()
        if number % 3:
            sent.append(number)
            full.send(bytes(400))

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as doomed:
            tasks.start_soon(send, 1)
            async with anyio.create_task_group() as others:
                others.start_soon(full.wait_for_turn)
                await anyio.lowlevel.checkpoint()
                doomed.cancel()
        for number in range(2, 50):
            tasks.start_soon(send, number)
        tasks.start_soon(full.run)
        with anyio.fail_after(PATIENCE_S):
            while len(sent) < 33:
                await anyio.wait_readable(pipe[0])
                os.read(pipe[0], 4096)
        tasks.cancel_scope.cancel()
    assert sorted(sent) == [number for number in range(1, 50) if number % 3]


def cancelled_futures() -> int:
    """How many anybody holds."""
    gc.collect()
    return sum(type(each) is asyncio.Future and each.cancelled() for each in gc.get_objects())


async def test_who_is_cancelled_is_forgotten_while_it_is_full(full: Outflow):
    """A guest that reads next to nothing, and cuts off connections ever anew, piles up nothing."""
    before = cancelled_futures()
    for _ in range(100):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(full.wait_for_turn)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert cancelled_futures() < before + 50


async def test_no_more_have_a_turn_than_there_is_room_for(full: Outflow, pipe: tuple[int, int]):
    """What is held does not grow with how many wait."""
    held: list[int] = []

    async def send() -> None:
        while full.is_full:
            await full.wait_for_turn()
        full.send(bytes(600))
        held.append(len(full))

    with anyio.fail_after(PATIENCE_S):
        async with running(full), anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(send)
            while len(held) < 100:
                await anyio.wait_readable(pipe[0])
                os.read(pipe[0], 4096)
    assert max(held) < 1000 + 600


async def test_all_go_on_when_what_is_queued_is_dropped(full: Outflow):
    """They are told by others why."""
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(full.wait_for_turn)
            await anyio.lowlevel.checkpoint()
            full.drop()


async def test_a_reader_that_is_gone_costs_what_was_queued(full: Outflow, pipe: tuple[int, int]):
    """Nothing is held for nobody."""
    os.close(pipe[0])
    with anyio.fail_after(PATIENCE_S):
        async with running(full):
            while len(full):
                await anyio.lowlevel.checkpoint()


async def test_a_reader_that_does_not_read_is_told_of(full: Outflow, monkeypatch: pytest.MonkeyPatch):
    """After a while."""
    monkeypatch.setattr(outflow_module, "_STALL_S", 0.05)
    with anyio.fail_after(PATIENCE_S), pytest.raises(ProtocolError, match="has not read"):
        await full.run()

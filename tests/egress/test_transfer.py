"""Bytes between two connections, over real sockets."""

import socket

import anyio
import pytest
from anyio.abc import SocketStream

from ringfence.egress.transfer import Transfer, transfer

PATIENCE_S = 10.0


async def pair() -> tuple[SocketStream, SocketStream]:
    """Two ends of one connection."""
    one, other = socket.socketpair()
    return await SocketStream.from_socket(one), await SocketStream.from_socket(other)


async def exchanged(passed: Transfer, talk, **options: bool) -> Transfer:
    """What passed while `talk` held the far ends of both connections."""
    inside, near = await pair()
    far, target = await pair()
    with anyio.fail_after(PATIENCE_S):
        async with inside, near, far, target, anyio.create_task_group() as tasks:
            tasks.start_soon(talk, inside, target)
            await transfer(near, far, passed, **options)
    return passed


async def test_both_directions() -> None:
    """Bytes pass both ways, each direction ends by itself, and all are counted."""

    async def talk(inside: SocketStream, target: SocketStream) -> None:
        await inside.send(b"question")
        await inside.send_eof()
        assert await target.receive() == b"question"
        with pytest.raises(anyio.EndOfStream):
            await target.receive()
        await target.send(b"the answer")
        await target.send_eof()
        assert await inside.receive() == b"the answer"

    passed = await exchanged(Transfer(), talk)
    assert (passed.sent_bytes, passed.received_bytes, passed.ended_by) == (8, 10, "closed")


async def test_limit() -> None:
    """What is more than may pass is cut off."""

    async def talk(inside: SocketStream, target: SocketStream) -> None:
        await inside.send(bytes(2000))

    assert (await exchanged(Transfer(limit_bytes=1000), talk)).ended_by == "limit"


async def test_target_decides() -> None:
    """Where the target's end is that of both, an inside that says nothing more does not keep it."""

    async def talk(inside: SocketStream, target: SocketStream) -> None:
        await target.send(b"done")
        await target.aclose()

    passed = await exchanged(Transfer(), talk, ends_with_target=True)
    assert (passed.received_bytes, passed.ended_by) == (4, "closed")

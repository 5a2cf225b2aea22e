"""Transfers bytes in both directions between two streams and counts them; each direction ends by itself."""

from dataclasses import dataclass

import anyio
from anyio.abc import ByteStream

from ringfence.errors import SandboxDied

_CUT_OFF = (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied)


@dataclass
class Allowance:
    """A number of bytes that several transfers share."""

    limit_bytes: int
    used_bytes: int = 0

    @property
    def is_used_up(self) -> bool:
        """Whether no further byte may be transferred."""
        return self.used_bytes >= self.limit_bytes


@dataclass
class Transfer:
    """The counts and the limits of one transfer."""

    sent_bytes: int = 0
    """Bytes from inside to the target."""
    received_bytes: int = 0
    """Bytes from the target to inside."""
    ended_by: str = "cancelled"
    """`closed` at its regular end; `inside` or `target` if that side aborted it; `limit` at a limit."""
    limit_bytes: int | None = None
    """The limit for both directions together; None if there is none."""
    allowance: Allowance | None = None
    """A limit shared with other transfers; None if there is none."""

    def sent(self, count: int) -> None:
        """Count bytes to the target. Raises `CutOff` beyond a limit."""
        self.sent_bytes += count
        self._check(count)

    def received(self, count: int) -> None:
        """Count bytes from the target. Raises `CutOff` beyond a limit."""
        self.received_bytes += count
        self._check(count)

    def _check(self, count: int) -> None:
        if self.allowance is not None:
            self.allowance.used_bytes += count
            if self.allowance.used_bytes > self.allowance.limit_bytes:
                raise CutOff("limit")
        if self.limit_bytes is not None and self.sent_bytes + self.received_bytes > self.limit_bytes:
            raise CutOff("limit")


class CutOff(Exception):
    """The transfer was aborted; the text is the value of `Transfer.ended_by`."""


async def transfer(
    inside: ByteStream, target: ByteStream, passed: Transfer, *, ends_with_target: bool = False
) -> None:
    """Transfer bytes until both directions have ended, or one side aborts.

    Args:
        inside: The connection of a process inside.
        target: The other connection.
        passed: Counts the bytes, and takes how the transfer ended.
        ends_with_target: Whether the end of the target's direction ends both.
    """

    async def outwards() -> None:
        while (data := await _receive(inside, "inside")) is not None:
            await _send(target, data, "target")
            passed.sent(len(data))
        await _end(target, "target")

    async def inwards() -> None:
        while (data := await _receive(target, "target")) is not None:
            await _send(inside, data, "inside")
            passed.received(len(data))
        await _end(inside, "inside")
        if ends_with_target:
            tasks.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outwards)
            tasks.start_soon(inwards)
        passed.ended_by = "closed"
    except* CutOff as group:
        passed.ended_by = str(group.exceptions[0])


async def _receive(source: ByteStream, name: str) -> bytes | None:
    try:
        return await source.receive()
    except anyio.EndOfStream:
        return None
    except _CUT_OFF as exc:
        raise CutOff(name) from exc


async def _send(sink: ByteStream, data: bytes, name: str) -> None:
    try:
        await sink.send(data)
    except _CUT_OFF as exc:
        raise CutOff(name) from exc


async def _end(sink: ByteStream, name: str) -> None:
    try:
        await sink.send_eof()
    except (*_CUT_OFF, OSError) as exc:  # OSError: a socket that its peer has reset
        raise CutOff(name) from exc

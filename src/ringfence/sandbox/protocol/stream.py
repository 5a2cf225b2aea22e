"""Implements the stream over the pipes of a process, with buffers and a condition on which tasks wait."""

import asyncio
import fcntl
import os
import time
from collections import deque
from contextlib import suppress

import anyio
from anyio.abc import ByteStream

from ringfence.descriptor_stream import DescriptorStream

_PIPE_BYTES = 1024 * 1024
_JOIN_BELOW = 4096
_PIECE = 128 * 1024
"""Bytes sent at a time. A reader that does not take a piece in time is taken for dead."""


def pipe_stream() -> tuple[DescriptorStream, int, int]:
    """A stream over two new pipes, and the stdin and stdout for a process at its other end, which the caller closes."""
    stdin, write_fd = _pipe()
    read_fd, stdout = _pipe()
    return DescriptorStream(read_fd, write_fd), stdin, stdout


def _pipe() -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    with suppress(OSError):  # the user's limit on pipe buffers is reached: slower, but correct
        fcntl.fcntl(read_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return read_fd, write_fd


class Wakeup:
    """A condition: tasks wait for the next change of a state.

    Uses futures of asyncio rather than an `anyio.Event` for each change, with which a command takes 15 µs more
    processor time, of 115.
    """

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until `notify_all` is called."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            raise

    def notify_all(self) -> None:
        """Wake all tasks that wait."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)


class ByteQueue:
    """A buffer of received bytes that wait for their reader. False while it is empty."""

    def __init__(self) -> None:
        self._chunks: deque[bytes | bytearray] = deque()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append(self, chunk: bytes) -> None:
        """Add bytes. Small pieces are joined, as a window full of single bytes would take fifty times its size."""
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) < _JOIN_BELOW:
            last += chunk
        else:
            self._chunks.append(bytearray(chunk) if len(chunk) < _JOIN_BELOW else chunk)

    def pop(self, max_bytes: int) -> bytes:
        """Remove and return up to this many bytes from the front."""
        chunk = self._chunks.popleft()
        if len(chunk) > max_bytes:
            self._chunks.appendleft(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        return bytes(chunk)

    def clear(self) -> None:
        """Drop all of it."""
        self._chunks.clear()


class SendQueue:
    """A queue of bytes to be sent on a stream; bytes queued in one turn of the event loop are sent together."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._parts: deque[bytes | memoryview] = deque()
        self._has_parts = Wakeup()
        self._has_sent = Wakeup()
        self.size = 0
        """How many bytes are queued."""
        self.sending_since: float | None = None
        """When sending the current piece began (`time.monotonic`); None while nothing is being sent."""

    def append(self, data: bytes | memoryview) -> None:
        """Queue bytes, which must not change any more."""
        self._parts.append(data)
        self.size += len(data)
        self._has_parts.notify_all()

    def clear(self) -> None:
        """Drop the queued bytes."""
        self._parts.clear()
        self.size = 0
        self._has_sent.notify_all()

    async def run(self) -> None:
        """Send queued bytes until cancelled. If the other end is gone, drop them: the reading task notices it."""
        while True:
            if not self._parts:
                await self._has_parts.wait()
            while piece := self._next_piece():
                self.sending_since = time.monotonic()
                try:
                    await self._stream.send(piece)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    self.clear()
                finally:
                    self.sending_since = None
                    self._has_sent.notify_all()

    def _next_piece(self) -> bytes:
        parts: list[bytes | memoryview] = []
        size = 0
        while self._parts and size < _PIECE:
            parts.append(self._parts.popleft())
            size += len(parts[-1])
        self.size -= size
        return b"".join(parts)

    async def wait_until_below(self, size: int) -> None:
        """Wait until fewer bytes than this are queued."""
        while self.size >= size:
            await self._has_sent.wait()

    async def wait_until_sent(self) -> None:
        """Wait until all is sent, or dropped."""
        while self.size or self.sending_since is not None:
            await self._has_sent.wait()

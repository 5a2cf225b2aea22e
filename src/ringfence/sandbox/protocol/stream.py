"""A byte stream over pipes or a socket, as backends hand it over; and what tasks wait with for its bytes."""

import asyncio
import fcntl
import os
import socket
import time
from collections import deque
from contextlib import suppress

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

_PIPE_BYTES = 1024 * 1024
_LARGE = 32 * 1024
_MOST_IN_A_ROW = 4
_JOIN_BELOW = 4096
_PIECE = 128 * 1024
"""Sent at a time. Whoever does not take a piece in time is taken for dead."""


class DescriptorStream(ByteStream):
    """Owns its descriptors: `aclose` closes them. One task may receive and one may send at a time.

    `anyio.wait_readable` registers the descriptor with the kernel anew for each piece: 27 µs of processor time for a
    small piece, against 5 µs where it stays registered, and a command in a sandbox takes 150 µs. So this class uses the
    event loop of asyncio itself.

    Args:
        read_fd: Of a pipe or a socket.
        write_fd: The same socket, or another pipe.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        for descriptor in (read_fd, write_fd):
            os.set_blocking(descriptor, False)
        self._read_fd, self._write_fd = read_fd, write_fd
        self._loop: asyncio.AbstractEventLoop | None = None
        """Set while the descriptor is registered."""
        self._receiver: asyncio.Future[bytes] | None = None
        self._max_bytes = 0
        self._unread = b""
        self._in_a_row = 0
        """How many pieces may be read at once before the event loop has its turn."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Receive at least one byte.

        Raises:
            anyio.EndOfStream: The other side has closed it.
            anyio.BrokenResourceError: It cannot be read any more.
            anyio.ClosedResourceError: It was closed here.
        """
        if self._read_fd < 0:
            raise anyio.ClosedResourceError
        if self._unread:
            unread, self._unread = self._unread, self._unread[max_bytes:]
            return unread[:max_bytes]
        if self._in_a_row and (piece := self._read_more(max_bytes)):
            return piece
        loop = asyncio.get_running_loop()
        receiver: asyncio.Future[bytes] = loop.create_future()
        self._receiver = receiver
        self._max_bytes = max_bytes
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._read_fd, self._on_readable)
        try:
            piece = await receiver
        except asyncio.CancelledError:
            if receiver.done() and not receiver.cancelled() and receiver.exception() is None:
                self._unread = receiver.result()  # it had come when the task was cancelled
            raise
        finally:
            self._receiver = None
        if not piece:
            raise anyio.EndOfStream
        self._in_a_row = _MOST_IN_A_ROW if len(piece) >= _LARGE else 0
        return piece

    def _read_more(self, max_bytes: int) -> bytes:
        """What there is of a large transfer, without a turn of the event loop for each piece; other tasks get theirs."""
        self._in_a_row -= 1
        with suppress(OSError):  # nothing now; or what is wrong is found by waiting
            return os.read(self._read_fd, max_bytes)
        return b""

    def _on_readable(self) -> None:
        receiver = self._receiver
        if receiver is None or receiver.done():
            self._unregister()  # nobody receives: what has come waits in the kernel, with its sender
            return
        try:
            receiver.set_result(os.read(self._read_fd, self._max_bytes))
        except BlockingIOError:
            return
        except OSError as exc:
            error = anyio.BrokenResourceError()
            error.__cause__ = exc
            receiver.set_exception(error)

    def _unregister(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._read_fd)
            self._loop = None

    async def send(self, item: bytes) -> None:
        """Send all of it, waiting while the other side does not read.

        Raises:
            anyio.BrokenResourceError: Nobody reads there any more.
            anyio.ClosedResourceError: It was closed here.
        """
        view = memoryview(item)
        while view:
            if self._write_fd < 0:
                raise anyio.ClosedResourceError
            try:
                view = view[os.write(self._write_fd, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._write_fd)
            except OSError as exc:
                raise anyio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        """End the direction to the other side; the other one goes on."""
        descriptor, self._write_fd = self._write_fd, -1
        if descriptor < 0:
            return
        anyio.notify_closing(descriptor)
        if descriptor != self._read_fd:
            os.close(descriptor)
            return
        with (
            socket.socket(fileno=os.dup(descriptor)) as connection,
            suppress(OSError),
        ):  # it may be gone already
            connection.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the descriptors; whoever receives or sends gets an error."""
        await self.send_eof()
        if self._read_fd < 0:
            return
        self._unregister()
        os.close(self._read_fd)
        self._read_fd = -1
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_exception(anyio.ClosedResourceError())


def descriptor_stream(connection: SocketStream) -> DescriptorStream:
    """The same connection as a stream on which small pieces cost a fifth; the one of anyio's is of no use any more."""
    descriptor = connection.extra(SocketAttribute.raw_socket).detach()  # noqa: S610 -- anyio's, not Django's
    return DescriptorStream(descriptor, descriptor)


def pipe_stream() -> tuple[DescriptorStream, int, int]:
    """A stream over two new pipes, and a process's stdin and stdout at its other end, which the caller closes."""
    stdin, write_fd = _pipe()
    read_fd, stdout = _pipe()
    return DescriptorStream(read_fd, write_fd), stdin, stdout


def _pipe() -> tuple[int, int]:
    read_fd, write_fd = os.pipe()
    with suppress(OSError):  # the user's pipe allowance is used up: slower, not wrong
        fcntl.fcntl(read_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return read_fd, write_fd


class Wakeup:
    """Lets tasks wait for the next change of something.

    Futures of asyncio, and not an `anyio.Event` for each change: with those a command takes 15 µs more processor time,
    of 115.
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
    """Bytes that have come and wait for their reader. False while it is empty."""

    def __init__(self) -> None:
        self._chunks: deque[bytes | bytearray] = deque()

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def append(self, chunk: bytes) -> None:
        """Add bytes. Small pieces are joined: a window full of single bytes would weigh fifty times its size."""
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) < _JOIN_BELOW:
            last += chunk
        else:
            self._chunks.append(bytearray(chunk) if len(chunk) < _JOIN_BELOW else chunk)

    def pop(self, max_bytes: int) -> bytes:
        """Take up to so many bytes from the front."""
        chunk = self._chunks.popleft()
        if len(chunk) > max_bytes:
            self._chunks.appendleft(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        return bytes(chunk)

    def clear(self) -> None:
        """Drop all of it."""
        self._chunks.clear()


class SendQueue:
    """Bytes that wait to be sent on a stream; what is queued in one turn of the event loop goes out together."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._parts: deque[bytes | memoryview] = deque()
        self._has_parts = Wakeup()
        self._has_sent = Wakeup()
        self.size = 0
        """How many bytes wait."""
        self.sending_since: float | None = None
        """When the piece that is being sent was begun (`time.monotonic`); None: nothing is."""

    def append(self, data: bytes | memoryview) -> None:
        """Queue bytes, which must not change any more."""
        self._parts.append(data)
        self.size += len(data)
        self._has_parts.notify_all()

    def clear(self) -> None:
        """Drop what waits."""
        self._parts.clear()
        self.size = 0
        self._has_sent.notify_all()

    async def run(self) -> None:
        """Send what is queued, until cancelled. What nobody reads any more is dropped: the reader sees that."""
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
        """Wait until fewer bytes than this wait to be sent."""
        while self.size >= size:
            await self._has_sent.wait()

    async def wait_until_sent(self) -> None:
        """Wait until all is sent, or dropped."""
        while self.size or self.sending_since is not None:
            await self._has_sent.wait()

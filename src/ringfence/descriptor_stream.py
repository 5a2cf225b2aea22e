"""A byte stream over pipes or a socket, by descriptors that stay registered with the event loop.

The streams of anyio and asyncio read ahead by up to 256 KiB for each connection, and cut pieces off by copying the rest.
"""

import asyncio
import os
import socket
from contextlib import suppress

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

_LARGE = 32 * 1024
_MOST_IN_A_ROW = 4


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

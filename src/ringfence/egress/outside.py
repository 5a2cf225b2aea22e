"""A TCP connection to the outside, read in pieces no larger than asked for.

The event loop's own streams read ahead by 256 KiB for each connection and cut pieces off by copying the rest; with 200
connections at once that is most of the memory and much of the time that the gate takes.
"""

import errno
import os
import socket
from contextlib import suppress

import anyio
from anyio.abc import ByteStream

from ringfence.egress.address import Address

_READ = 65_536


class OutsideStream(ByteStream):
    """A connected socket as a byte stream."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def receive(self, max_bytes: int = _READ) -> bytes:
        """Bytes, at least one.

        Raises:
            anyio.EndOfStream: The other side has ended its direction.
            anyio.BrokenResourceError: The connection was cut off.
        """
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError as exc:
                raise self._lost(exc) from exc
            else:
                if data:
                    return data
                raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        """Send all of it.

        Raises:
            anyio.BrokenResourceError: The connection was cut off.
        """
        await anyio.lowlevel.checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except OSError as exc:
                raise self._lost(exc) from exc

    async def send_eof(self) -> None:
        """End our direction; the other goes on."""
        with suppress(OSError):  # it has gone already, which reading tells
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Let go of it."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    def _lost(self, error: OSError) -> Exception:
        is_closed = error.errno == errno.EBADF
        return anyio.ClosedResourceError() if is_closed else anyio.BrokenResourceError(str(error))


async def connect(address: Address, port: int) -> OutsideStream:
    """Connect to an address.

    Raises:
        OSError: It cannot be.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = connection.connect_ex((str(address), port))
        if code == errno.EINPROGRESS:
            await anyio.wait_writable(connection)
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        connection.close()
        raise
    return OutsideStream(connection)

"""Byte streams of the gate: TCP connections to the outside, TLS, and streams with bytes that were already read.

The event loop's own streams read ahead by 256 KiB for each connection and cut pieces off by copying the rest; with 200
connections at once that is most of the memory and much of the time that the gate takes.
"""

import errno
import os
import socket
from contextlib import suppress

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ringfence.egress.address import Address
from ringfence.egress.transfer import CutOff

_READ_BYTES = 65_536
_LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class TcpStream(ByteStream):
    """A connected socket that is read in pieces no larger than requested."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def receive(self, max_bytes: int = _READ_BYTES) -> bytes:
        """Receive bytes, at least one.

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
        """Send all bytes of `item`.

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
        """End our direction; the other one continues."""
        with suppress(OSError):  # the connection is gone, which the next read reports
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    def _lost(self, error: OSError) -> Exception:
        is_closed = error.errno == errno.EBADF
        return anyio.ClosedResourceError() if is_closed else anyio.BrokenResourceError(str(error))


async def connect_tcp(address: Address, port: int) -> TcpStream:
    """Connect to an address.

    Raises:
        OSError: The connection failed.
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
    return TcpStream(connection)


class TlsByteStream(ByteStream):
    """A TLS connection that raises the same errors as a plain connection."""

    def __init__(self, tls: TLSStream) -> None:
        self._tls = tls

    async def receive(self, max_bytes: int = _READ_BYTES) -> bytes:
        """Receive decrypted bytes."""
        try:
            return await self._tls.receive(max_bytes)
        except (OSError, CutOff) as exc:
            raise anyio.BrokenResourceError from exc

    async def send(self, item: bytes) -> None:
        """Encrypt and send bytes."""
        try:
            await self._tls.send(item)
        except OSError as exc:
            raise anyio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        """Do nothing: TLS ends both directions at once."""

    async def send_close_notify(self) -> None:
        """Send TLS's close_notify, so that the other side does not take the end for a truncation."""
        try:
            await self._tls.unwrap()
        except _LOST:
            return

    async def aclose(self) -> None:
        """Close the connection."""
        await anyio.aclose_forcefully(self._tls)


class PrefixedStream(ByteStream):
    """A stream that returns bytes that were already read before those that follow.

    Args:
        stream: The stream.
        received: The bytes that were already read.
    """

    def __init__(self, stream: ByteStream, received: bytes) -> None:
        self._stream = stream
        self._received = received

    async def receive(self, max_bytes: int = _READ_BYTES) -> bytes:
        """Receive the bytes that were already read, then further ones."""
        if self._received:
            piece, self._received = self._received[:max_bytes], self._received[max_bytes:]
            return piece
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        """Send bytes."""
        await self._stream.send(item)

    async def send_eof(self) -> None:
        """End our direction."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

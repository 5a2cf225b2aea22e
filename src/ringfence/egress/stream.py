"""Byte streams of the gate: TCP connections to the outside, TLS, and streams with bytes that were already read."""

import errno
import os
import socket

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from ringfence.descriptor_stream import DescriptorStream
from ringfence.egress.address import Address
from ringfence.egress.transfer import CutOff

_READ_BYTES = 65_536
_LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


async def connect_tcp(address: Address, port: int) -> DescriptorStream:
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
    descriptor = connection.detach()
    return DescriptorStream(descriptor, descriptor)


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
        """End the sending direction."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

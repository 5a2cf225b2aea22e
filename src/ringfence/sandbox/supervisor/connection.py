"""Frames over a supervisor's socket: whole frames in, a bounded queue of frames out, and who is at the other end."""

import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import SocketAttribute, SocketStream

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.stream import DescriptorStream

END, ADOPT, USAGE, CHANGE_EGRESS, FORWARD_PORT = 96, 97, 98, 99, 100
"""Client to supervisor, on channel 0, beside the guest's own frames: end the sandbox; hand it over; what does it use;
change what may be reached from inside; forward a port to the host."""
RESPONSE = 101
"""Supervisor to client, on channel 0: the result of the last two."""

_READ = 256 * 1024
_LARGEST_FRAME = 8 * 1024**2
"""An OPEN holds arguments and environment, of which the kernel takes 2 MiB or more (execve(2))."""
_QUEUE_LIMIT_BYTES = 64 * 1024**2
_STALL_S = 30.0
_CREDENTIALS = struct.Struct("iII")
LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ClientError(Exception):
    """A client broke the protocol, and is disconnected. Never leaves the supervisor."""


def peer_uid(connection: socket.socket) -> int:
    """Whose process is at the other end of a Unix socket, by the kernel's word (SO_PEERCRED, unix(7))."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


def may_connect(uid: int) -> bool:
    """Whether a user may use our sandboxes: our own, and root."""
    return uid in (0, os.geteuid())


def descriptor_stream(connection: SocketStream) -> DescriptorStream:
    """The same connection as a stream on which small pieces cost a fifth; the one of anyio's is of no use any more."""
    descriptor = connection.extra(SocketAttribute.raw_socket).detach()  # noqa: S610 -- anyio's, not Django's
    return DescriptorStream(descriptor, descriptor)


def encode_frame(kind: int, channel: int = 0, payload: bytes = b"") -> bytes:
    """A frame as bytes."""
    return frames.HEADER.pack(len(payload), channel, kind) + payload


class FrameConnection:
    """One connection between a client and a supervisor.

    What the other end has not read yet is bounded; one that reads nothing is disconnected.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 -- anyio's, not Django's
        self._outgoing = bytearray()
        self._is_stuck = anyio.Event()
        self._is_lost = False

    @property
    def uid(self) -> int:
        """Whose process is at the other end."""
        return peer_uid(self._socket)

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame, and send what the socket takes; the rest is up to `write_forever`."""
        if self._is_lost:
            return
        self._outgoing += encode_frame(kind, channel, payload)
        if len(self._outgoing) > _QUEUE_LIMIT_BYTES:
            self.disconnect()
        else:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            self._is_stuck.set()
        except OSError:
            self.disconnect()

    def disconnect(self) -> None:
        """Send nothing more, and let whoever reads see the end."""
        self._is_lost = True
        self._outgoing.clear()
        self._is_stuck.set()
        with suppress(OSError):  # it has gone by itself
            self._socket.shutdown(socket.SHUT_RDWR)

    async def write_forever(self) -> None:
        """Send what `send` could not send at once; return when the other end is lost."""
        while not self._is_lost:
            await self._is_stuck.wait()
            self._is_stuck = anyio.Event()
            while self._outgoing:
                with anyio.move_on_after(_STALL_S) as stall:
                    await anyio.wait_writable(self._socket)
                if stall.cancelled_caught:
                    self.disconnect()
                self._flush()

    async def frames(self) -> AsyncIterator[tuple[int, int, bytes]]:
        """(kind, channel, payload), until the other end goes.

        Raises:
            ClientError: A frame is longer than any may be.
        """
        header, rest = frames.HEADER, bytearray()
        while data := await self._receive():
            rest += data
            while len(rest) >= header.size:
                length, channel, kind = header.unpack_from(rest)
                if length > _LARGEST_FRAME:
                    raise ClientError(f"a frame of {length} bytes")
                end = header.size + length
                if len(rest) < end:
                    break
                payload = bytes(rest[header.size : end])
                del rest[:end]
                yield kind, channel, payload
            await anyio.lowlevel.checkpoint()

    async def _receive(self) -> bytes:
        # Not by the stream: a cancelled `receive` of anyio's raises into the event loop if bytes come in the same turn.
        while True:
            try:
                return self._socket.recv(_READ)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except OSError:
                return b""

    async def aclose(self) -> None:
        """Close the connection."""
        self.disconnect()
        await self._stream.aclose()

"""The holder's end of one attached client: whole frames in, a bounded queue of frames out."""

import os
import socket
import struct
from collections.abc import AsyncIterator

import anyio

from ringfence.sandbox.guest import frames

END, ADOPT, USE, CHANGE, PUBLISH = 96, 97, 98, 99, 100
"""Client to holder, channel 0, no frames of the guest's: end the sandbox; let me have it; what does it use? Change what
may be reached; show a port to the host."""
ANSWER = 101
"""Holder to client, channel 0: what came of the last two."""

_READ = 256 * 1024
_LARGEST_FRAME = 8 * 1024**2
"""An OPEN holds arguments and environment, of which the kernel takes 2 MiB or more (execve(2))."""
_QUEUE_LIMIT_BYTES = 64 * 1024**2
_STALL_S = 30.0
_CREDENTIALS = struct.Struct("iII")


class PeerError(Exception):
    """A client did what it must not, and is cut off. Never leaves the holder."""


class Peer:
    """A connection of a client. What it has not read yet is bounded; one that does not read is cut off."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._outgoing = bytearray()
        self._wants_room = anyio.Event()
        self._is_lost = False

    def is_allowed(self) -> bool:
        """Whether the client may be here."""
        return is_own_user(self._socket)

    @property
    def uid(self) -> int:
        """Whose process it is."""
        return _uid_of(self._socket)

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame and send what the socket takes."""
        if self._is_lost:
            return
        self._outgoing += frames.HEADER.pack(len(payload), channel, kind)
        self._outgoing += payload
        if len(self._outgoing) > _QUEUE_LIMIT_BYTES:
            self.cut_off()
        else:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except BlockingIOError:
            self._wants_room.set()
        except OSError:
            self.cut_off()

    def cut_off(self) -> None:
        """Nothing more is sent, and whoever reads sees the end."""
        self._is_lost = True
        self._outgoing.clear()
        self._wants_room.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has gone by itself

    async def write_forever(self) -> None:
        """Send what `send` could not send at once; return when the client is lost."""
        while not self._is_lost:
            await self._wants_room.wait()
            self._wants_room = anyio.Event()
            while self._outgoing:
                with anyio.move_on_after(_STALL_S) as stall:
                    await anyio.wait_writable(self._socket)
                if stall.cancelled_caught:
                    self.cut_off()
                self._flush()

    async def frames(self) -> AsyncIterator[tuple[int, int, bytes]]:
        """(kind, channel, payload), until the client goes.

        Raises:
            PeerError: A frame is longer than any may be.
        """
        rest = bytearray()
        while True:
            try:
                data = self._socket.recv(_READ)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
                continue
            except OSError:
                return
            if not data:
                return
            rest += data
            while (frame := _take(rest)) is not None:
                yield frame
            await anyio.lowlevel.checkpoint()

    def close(self) -> None:
        """Let go of the connection."""
        self._is_lost = True
        self._wants_room.set()
        self._socket.close()


def is_own_user(connection: socket.socket) -> bool:
    """Whether our own user, or root, is at the other end, by the kernel's word (SO_PEERCRED, unix(7))."""
    return _uid_of(connection) in (0, os.geteuid())


def _uid_of(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


def _take(data: bytearray) -> tuple[int, int, bytes] | None:
    """Take the first whole frame off `data`."""
    header = frames.HEADER
    if len(data) < header.size:
        return None
    length, channel, kind = header.unpack_from(data)
    if length > _LARGEST_FRAME:
        raise PeerError(f"a frame of {length} bytes")
    end = header.size + length
    if len(data) < end:
        return None
    payload = bytes(data[header.size : end])
    del data[:end]
    return kind, channel, payload

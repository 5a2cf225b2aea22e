"""Frames over a supervisor's socket: whole frames in, a bounded queue of frames out, and who is at the other end."""

import os
import socket
import struct
import time
from collections.abc import AsyncIterator

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.stream import DescriptorStream, SendQueue

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
_LOOK_S = 1.0
_CREDENTIALS = struct.Struct("iII")
LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ClientError(Exception):
    """A client broke the protocol, and is disconnected. Never leaves the supervisor."""


def peer_uid(connection: SocketStream) -> int:
    """Whose process is at the other end of a Unix socket, by the kernel's word (SO_PEERCRED, unix(7))."""
    own = connection.extra(SocketAttribute.raw_socket)  # noqa: S610 -- anyio's, not Django's
    raw = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


def may_connect(uid: int) -> bool:
    """Whether a user may use our sandboxes: our own, and root."""
    return uid in (0, os.geteuid())


class FrameConnection:
    """One connection between a client and a supervisor.

    What the other end has not read yet is bounded; one that reads nothing is disconnected.

    Args:
        stream: Closed by `write_forever` or `aclose`.
        uid: Whose process is at the other end.
    """

    def __init__(self, stream: DescriptorStream, *, uid: int) -> None:
        self.uid = uid
        self.stream = stream
        self._outgoing = SendQueue(stream)
        self._lost = anyio.Event()

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame for `write_forever`."""
        if self._lost.is_set():
            return
        self._outgoing.append(frames.encode_frame(kind, channel, payload))
        if self._outgoing.size > _QUEUE_LIMIT_BYTES:
            self.disconnect()

    def disconnect(self) -> None:
        """Send nothing more, and let `write_forever` close the connection."""
        self._lost.set()
        self._outgoing.clear()

    async def write_forever(self) -> None:
        """Send what is queued, until the connection is lost; it is closed then, and whoever reads gets an error."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._outgoing.run)
            while not self._lost.is_set():
                with anyio.move_on_after(_LOOK_S):
                    await self._lost.wait()
                since = self._outgoing.sending_since
                if since is not None and time.monotonic() - since > _STALL_S:
                    self.disconnect()
            tasks.cancel_scope.cancel()
        await self.stream.aclose()

    async def wait_until_sent(self) -> None:
        """Wait until everything that was queued is sent, or the connection is lost."""
        await self._outgoing.wait_until_sent()

    async def aclose(self) -> None:
        """Close the connection."""
        self.disconnect()
        await self.stream.aclose()


async def read_frames(stream: ByteStream) -> AsyncIterator[tuple[int, int, bytes]]:
    """(kind, channel, payload), until the other end goes.

    Raises:
        frames.FrameError: A frame is longer than any may be.
    """
    reader = frames.FrameReader(_LARGEST_FRAME)
    while True:
        try:
            data = await stream.receive(_READ)
        except LOST:
            return
        for frame in reader.feed(data):
            yield frame

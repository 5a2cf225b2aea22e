"""Sends and receives frames over a supervisor's socket, and identifies the user at its other end."""

import os
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from ringfence.sandbox.guest import frames

END, ADOPT, USAGE, CHANGE_EGRESS, FORWARD_PORT = 96, 97, 98, 99, 100
"""Client to supervisor, on channel 0, besides the guest's own frames: end the sandbox; hand it over; report its usage;
change which hosts can be reached from inside; forward a port to the host."""
RESPONSE = 101
"""Supervisor to client, on channel 0: the result of the last two requests."""
VOLUME = 102
"""Client to supervisor, on channel 0: use this connection for the volume of the sandbox (`pool.volume`)."""

_READ = 256 * 1024
_LARGEST_FRAME = 8 * 1024**2
"""An OPEN frame holds arguments and environment, of which the kernel accepts 2 MiB or more (execve(2))."""
_CREDENTIALS = struct.Struct("iII")
LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ClientError(Exception):
    """A client broke the protocol, and is disconnected. Never leaves the supervisor."""


def peer_uid(connection: SocketStream) -> int:
    """The user of the process at the other end of a Unix socket, as the kernel reports it (SO_PEERCRED, unix(7))."""
    own = connection.extra(SocketAttribute.raw_socket)  # noqa: S610 -- anyio's, not Django's
    raw = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return int(uid)


def may_connect(uid: int) -> bool:
    """Whether a user may use our sandboxes: only our own user and root."""
    return uid in (0, os.geteuid())


async def read_frames(stream: ByteStream) -> AsyncIterator[tuple[int, int, bytes]]:
    """Yield (kind, channel, payload) until the other end disconnects.

    Raises:
        frames.FrameError: A frame is longer than the limit.
    """
    found: deque[tuple[int, int, bytes]] = deque()
    reader = frames.FrameReader(_LARGEST_FRAME, lambda *frame: found.append(frame))
    while True:
        while found:
            yield found.popleft()
        try:
            reader.feed(await stream.receive(_READ))
        except LOST:
            return

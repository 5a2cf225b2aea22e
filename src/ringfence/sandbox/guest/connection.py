"""One connection inside, carried as a channel: bytes as they are granted, each direction ended by itself."""

from __future__ import annotations

import _socket
import _struct as struct
import posix as os
import select

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .loop import Loop
    from .stream import Stream

_READ = 64 * 1024
_GRANT_BATCH = frames.CONNECTION_WINDOW // 2
"""Each grant wakes the host, which has better things to do for a piece of a few bytes."""
_ABRUPTLY = struct.pack("ii", 1, 0)


class Connection:
    """The guest's end of a connection to a process inside.

    Args:
        loop: Where it is waited.
        stream: The way to the host.
        channel: Its number.
        sock: Connected.
        on_over: Called once both sides have said CLOSE.
    """

    def __init__(
        self, loop: Loop, stream: Stream, channel: int, sock: _socket.socket, on_over: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._stream = stream
        self._channel = channel
        self._sock: _socket.socket | None = sock
        self._fd = sock.fileno()
        self._on_over = on_over
        self._credit = frames.CONNECTION_WINDOW
        self._owed = 0
        """Bytes that were written and not granted anew."""
        self._pending = bytearray()
        self._mask = 0
        self._is_read_out = False
        """The process inside ended its direction, and the host was told."""
        self._host_ended = False
        self._is_shut = False
        """The host ended its direction, and the process inside was told."""
        self._is_deaf = False
        """The process inside takes nothing more; what it sent before is still brought over."""
        self._host_closed = False
        sock.setblocking(False)
        if sock.family != _socket.AF_UNIX:
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)

    def arm(self) -> None:
        """Listen for what there is room and need for, and for nothing else: an end would be told for ever."""
        if self._sock is None:
            return
        mask = 0
        if self._wants_input and self._credit > 0 and not self._stream.is_full:
            mask |= select.EPOLLIN
        if self._pending:
            mask |= select.EPOLLOUT
        if mask == self._mask:
            return
        self._mask = mask
        if mask:
            self._loop.listen(self._fd, self._on_ready, mask)
        else:
            self._loop.ignore(self._fd)

    @property
    def _wants_input(self) -> bool:
        return not self._is_read_out and not self._host_closed

    def _on_ready(self, mask: int) -> None:
        if self._pending and mask & ~select.EPOLLIN:
            self._write()
        if self._sock is not None and self._mask & select.EPOLLIN and mask & ~select.EPOLLOUT:
            self._read()
        self.arm()

    def _read(self) -> None:
        """Read once: other channels get their turn before the next read."""
        try:
            data = os.read(self._fd, min(_READ, self._credit))
        except BlockingIOError:
            return
        except OSError:
            self._close(frames.RESET)
            return
        if data:
            self._credit -= len(data)
            self._stream.send(frames.DATA, self._channel, data)
            return
        self._is_read_out = True
        self._stream.send(frames.DATA_END, self._channel)
        self._settle()

    def _write(self) -> None:
        try:
            count = os.write(self._fd, self._pending)
        except BlockingIOError:
            return
        except OSError:
            self._is_deaf = True
            self._pending.clear()
            self._settle()
            return
        del self._pending[:count]
        self._owed += count
        if self._owed >= _GRANT_BATCH and not self._host_closed:
            self._stream.send(frames.CREDIT, self._channel, frames.U32.pack(self._owed))
            self._owed = 0
        self._settle()

    def _settle(self) -> None:
        """Pass ends on, once the bytes before them are."""
        if self._pending or self._sock is None:
            return
        if self._host_closed:
            self._close(b"")
            return
        if self._host_ended and not self._is_shut and not self._is_deaf:
            self._is_shut = True
            try:
                self._sock.shutdown(_socket.SHUT_WR)
            except OSError:
                self._is_deaf = True
        if self._is_read_out and (self._is_shut or self._is_deaf):
            self._close(frames.RESET if self._is_deaf else b"")

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the host for this connection."""
        if kind == frames.CLOSE:
            self._on_close(payload)
        elif self._sock is None:
            return  # it crossed our CLOSE on the way
        elif kind == frames.DATA and not self._is_deaf:
            self._pending += payload
            self._write()
        elif kind == frames.DATA_END:
            self._host_ended = True
            self._settle()
        elif kind == frames.CREDIT:
            self._credit += frames.U32.unpack(payload)[0]
        self.arm()

    def _on_close(self, payload: bytes) -> None:
        self._host_closed = True
        if self._sock is None:
            self._on_over()
        elif payload == frames.RESET:
            abort(self._sock)
            self._close(frames.RESET)
        else:
            self._settle()

    def _close(self, payload: bytes) -> None:
        assert self._sock is not None
        if self._mask:
            self._loop.ignore(self._fd)
            self._mask = 0
        self._sock.close()
        self._sock = None
        self._pending.clear()
        self._stream.send(frames.CLOSE, self._channel, payload)
        if self._host_closed:
            self._on_over()


def abort(sock: _socket.socket) -> None:
    """Let the next close reset a TCP connection; what is not sent is lost."""
    if sock.family != _socket.AF_UNIX:
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _ABRUPTLY)

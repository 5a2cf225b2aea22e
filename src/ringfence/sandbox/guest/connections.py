"""Listeners and connections inside, made by the host's request only."""

from __future__ import annotations

import _socket
import errno
import posix as os
import select
import time

from . import frames
from .connection import Connection, abort

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from .loop import Loop
    from .stream import Stream

    class Endpoint(Protocol):
        """What takes the frames of a channel."""

        def on_frame(self, kind: int, payload: bytes) -> None:
            """A frame of the host."""

        def arm(self) -> None:
            """The stream to the host has room again."""


_MAX_CONNECTIONS = 256
_BACKLOG = 64
_TURN = 16
"""So many are taken at a time: commands get their turn in a storm."""
_PAUSE_S = 0.1


class Connections:
    """All of them."""

    def __init__(self, loop: Loop, stream: Stream) -> None:
        self.loop = loop
        self.stream = stream
        self._channels: dict[int, Endpoint] = {}
        self._listeners: list[Listener] = []
        self._count = 0
        self._last_number = frames.GUEST_NUMBERS

    def deadlines(self) -> list[float]:
        """When (monotonic) there is something to do."""
        return [listener.again_at for listener in self._listeners if listener.again_at is not None]

    def tick(self, now: float) -> None:
        """Let listeners that paused go on."""
        for listener in self._listeners:
            if listener.again_at is not None and listener.again_at <= now:
                listener.arm()

    def rearm(self) -> None:
        """The stream to the host has room again."""
        for endpoint in self._channels.values():
            endpoint.arm()

    def on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """A frame of the host; for a channel that is over it crossed the end on the way."""
        if kind == frames.LISTEN:
            self._listen(channel, dict(frames.decode_record(payload)))
        elif kind == frames.CONNECT:
            attempt = Attempt(self, channel, int(dict(frames.decode_record(payload))["port"]))
            self._channels[channel] = attempt
            attempt.go_on()
        elif channel in self._channels:
            self._channels[channel].on_frame(kind, payload)

    def _listen(self, channel: int, fields: dict[str, str]) -> None:
        path = fields.get("path", "")
        try:
            sock = _listen_unix(path) if path else _listen_tcp(int(fields["port"]))
        except OSError as error:
            self.fail(channel, error)
            return
        listener = Listener(self, channel, sock, limit=int(fields["limit"]), path=path)
        self._channels[channel] = listener
        self._listeners.append(listener)
        port = 0 if path else sock.getsockname()[1]
        self.stream.send(frames.LISTENING, channel, frames.encode_record([("port", port)]))
        listener.arm()

    def forget(self, channel: int) -> None:
        """A channel is over."""
        gone = self._channels.pop(channel)
        if isinstance(gone, Listener):
            self._listeners.remove(gone)

    def fail(self, channel: int, error: OSError) -> None:
        """What the host asked for cannot be."""
        text = error.strerror or str(error)
        self.stream.send(
            frames.FAIL, channel, frames.encode_record([("errno", error.errno or 0), ("message", text)])
        )

    @property
    def has_room(self) -> bool:
        """Whether one more connection may be."""
        return self._count < _MAX_CONNECTIONS

    def next_number(self) -> int:
        """A number for a connection that was accepted."""
        self._last_number += 1
        return self._last_number

    def carry(self, channel: int, sock: _socket.socket, on_over: Callable[[], None]) -> None:
        """Begin to carry a connection, after the host was told of it."""

        def over() -> None:
            self._count -= 1
            self.forget(channel)
            on_over()

        self._count += 1
        connection = Connection(self.loop, self.stream, channel, sock, over)
        self._channels[channel] = connection
        connection.arm()


class Listener:
    """A socket that takes connections of processes inside; too many are refused at once, not queued."""

    def __init__(
        self, owner: Connections, channel: int, sock: _socket.socket, *, limit: int, path: str
    ) -> None:
        self._owner = owner
        self._channel = channel
        self._sock = sock
        self._limit = limit
        self._path = path
        self._inode = os.lstat(path).st_ino if path else 0
        self._count = 0
        self.again_at: float | None = None

    def arm(self) -> None:
        """Take connections."""
        self.again_at = None
        self._owner.loop.listen(self._sock.fileno(), self._on_ready)

    def _on_ready(self, _mask: int) -> None:
        for _ in range(_TURN):
            try:
                descriptor, _address = self._sock._accept()  # type: ignore[attr-defined]  # socket's C half
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or no memory is left for it now
                self._owner.loop.ignore(self._sock.fileno())
                self.again_at = time.monotonic() + _PAUSE_S
                return
            sock = _socket.socket(fileno=descriptor)
            if self._count >= self._limit or not self._owner.has_room:
                abort(sock)
                sock.close()
                continue
            self._count += 1
            number = self._owner.next_number()
            self._owner.stream.send(frames.ACCEPTED, self._channel, frames.U32.pack(number))
            self._owner.carry(number, sock, self._on_one_over)

    def _on_one_over(self) -> None:
        self._count -= 1

    def on_frame(self, kind: int, _payload: bytes) -> None:
        """A frame of the host: the end."""
        if kind != frames.CLOSE:
            return
        self._owner.loop.ignore(self._sock.fileno())
        self._sock.close()
        try:
            if self._path and os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except OSError:
            pass  # something inside removed it already
        self._owner.stream.send(frames.CLOSE, self._channel)
        self._owner.forget(self._channel)


class Attempt:
    """A connection to a port inside that the host asked for, until it is made: IPv4 first, then IPv6."""

    def __init__(self, owner: Connections, channel: int, port: int) -> None:
        self._owner = owner
        self._channel = channel
        self._left = [
            (_socket.AF_INET6, ("::1", port)),
            (_socket.AF_INET, ("127.0.0.1", port)),
        ]
        self._error: OSError | None = None
        self._sock: _socket.socket | None = None

    def arm(self) -> None:
        """It does not wait for the stream."""

    def go_on(self) -> None:
        """Try the next address; after the last the host is told of the first's failure."""
        while self._left and self._owner.has_room:
            family, address = self._left.pop()
            try:
                self._sock = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
                number = self._sock.connect_ex(address)
            except OSError as error:
                number = error.errno or errno.EIO
            if number in (0, errno.EINPROGRESS) and self._sock is not None:
                self._owner.loop.listen(self._sock.fileno(), self._on_ready, select.EPOLLOUT)
                return
            self._give_up(number)
        self._owner.forget(self._channel)
        self._owner.fail(self._channel, self._error or OSError(errno.EAGAIN, "too many connections at once"))

    def _on_ready(self, _mask: int) -> None:
        assert self._sock is not None
        number = self._sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if number:
            self._give_up(number)
            self.go_on()
            return
        try:
            self._sock.getpeername()
        except OSError:
            return  # an event of a descriptor that had this number before
        self._owner.loop.ignore(self._sock.fileno())
        self._owner.stream.send(frames.CONNECTED, self._channel)
        self._owner.carry(self._channel, self._sock, lambda: None)

    def _give_up(self, number: int) -> None:
        if self._error is None:
            self._error = OSError(number, os.strerror(number))
        if self._sock is not None:
            self._owner.loop.ignore(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def on_frame(self, kind: int, _payload: bytes) -> None:
        """A frame of the host: it no longer waits."""
        if kind == frames.CLOSE:
            self._give_up(errno.ECANCELED)
            self._owner.stream.send(frames.CLOSE, self._channel)
            self._owner.forget(self._channel)


def _listen_tcp(port: int) -> _socket.socket:
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _listen_unix(path: str) -> _socket.socket:
    from os import makedirs  # all of os: only where a socket has a path
    from os import path as paths

    makedirs(paths.dirname(path), 0o700, exist_ok=True)
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    before = os.umask(0o177)
    try:
        sock.bind(path)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock

"""Makes connections inside and the sockets that accept them, each a channel, at the host's request only."""

from __future__ import annotations

import _socket
import _struct as struct
import errno
import posix as os
import time

from . import frames
from .stream import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .stream import EventLoop, Stream

_MAX_CONNECTIONS = 256
_BACKLOG = 64
_ACCEPTS_AT_ONCE = 16
"""Connections that are accepted before other channels get a turn."""
_ACCEPT_PAUSE_S = 0.1
_READ = 64 * 1024
_GRANT_BATCH = frames.CONNECTION_WINDOW // 2
"""Bytes for which credit is granted at once: each grant wakes the host, so none is sent for a few bytes."""
_LINGER_NOT = struct.pack("ii", 1, 0)


class Connections:
    """The channels of all listeners and connections."""

    def __init__(self, loop: EventLoop, stream: Stream) -> None:
        self.loop = loop
        self.stream = stream
        self._channels: dict[int, Listener | Attempt | Connection] = {}
        self._last_number = frames.GUEST_NUMBERS

    def pause(self) -> None:
        """Make listeners accept again after a pause, as one cannot accept now."""
        self.loop.set_timer(self._resume, time.monotonic() + _ACCEPT_PAUSE_S)

    def _resume(self) -> None:
        """Make listeners accept again."""
        for channel in self._channels.values():
            if isinstance(channel, Listener):
                channel.resume()

    def on_room(self) -> None:
        """Handle that the stream to the host has room again."""
        for channel in self._channels.values():
            if isinstance(channel, Connection):
                channel.update()

    def on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        """Handle a frame of the host; one for a channel that has just ended is ignored."""
        if kind == frames.LISTEN:
            self._listen(channel, dict(frames.decode_record(payload)))
        elif kind == frames.CONNECT:
            attempt = Attempt(self, channel, int(dict(frames.decode_record(payload))["port"]))
            self._channels[channel] = attempt
            attempt.connect_next()
        elif channel in self._channels:
            self._channels[channel].on_frame(kind, payload)

    def _listen(self, channel: int, fields: dict[str, str]) -> None:
        path = fields.get("path", "")
        try:
            sock = _listen_unix(path) if path else _listen_tcp(int(fields["port"]))
        except OSError as error:
            self.stream.send_failure(channel, error)
            return
        listener = Listener(self, channel, sock, int(fields["limit"]), path)
        self._channels[channel] = listener
        port = 0 if path else sock.getsockname()[1]
        self.stream.send(frames.LISTENING, channel, frames.encode_record([("port", port)]))
        listener.resume()

    def has_room(self, listener: Listener | None = None) -> bool:
        """Whether one more connection is allowed and, given a listener, one more that it accepts."""
        connections = [one for one in self._channels.values() if isinstance(one, Connection)]
        if listener is None or len(connections) >= _MAX_CONNECTIONS:
            return len(connections) < _MAX_CONNECTIONS
        return sum(one.listener is listener for one in connections) < listener.limit

    def accept(self, listener: Listener, sock: _socket.socket) -> None:
        """Open a channel for a connection to a listener."""
        self._last_number += 1
        self.stream.send(frames.ACCEPTED, listener.channel, frames.U32.pack(self._last_number))
        self.open(self._last_number, sock, listener)

    def open(self, channel: int, sock: _socket.socket, listener: Listener | None = None) -> None:
        """Forward a connection, of which the host was notified."""
        connection = Connection(self, channel, sock, listener)
        self._channels[channel] = connection
        connection.update()

    def end(self, channel: int) -> None:
        """Free a channel's number."""
        del self._channels[channel]


class Connection:
    """The guest's end of a connection to a process inside.

    Args:
        owner: All connections.
        channel: The channel's number.
        sock: Connected.
        listener: The listener that accepted it; None if the host opened it.
    """

    def __init__(
        self, owner: Connections, channel: int, sock: _socket.socket, listener: Listener | None
    ) -> None:
        self.listener = listener
        self._owner = owner
        self._stream = owner.stream
        self._channel = channel
        self._sock: _socket.socket | None = sock
        self._writer = Writer(owner.loop, sock.fileno(), self._on_written)
        self._credit = frames.CONNECTION_WINDOW
        self._to_grant = 0
        """Bytes that were written and for which no new credit was granted."""
        self._sent_end = False
        """The process inside ended its direction, and so did we."""
        self._received_end = False
        self._is_shut = False
        """The host's end was passed on to the process inside."""
        self._received_close = False
        if sock.family != _socket.AF_UNIX:
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)

    def update(self) -> None:
        """Read bytes of the process inside while the host accepts them."""
        if self._sock is not None:
            is_open = not self._sent_end and not self._received_close
            can_read = is_open and self._credit > 0 and not self._stream.is_full
            self._owner.loop.set_reader(self._sock.fileno(), self._on_readable if can_read else None)

    def _on_readable(self) -> None:
        """Read only once, so that other channels get a turn before the next read."""
        assert self._sock is not None
        try:
            data = os.read(self._sock.fileno(), min(_READ, self._credit))
        except BlockingIOError:
            return
        except OSError:
            self._close(frames.RESET)
            return
        if data:
            self._credit -= len(data)
            self._stream.send(frames.DATA, self._channel, data)
        else:
            self._sent_end = True
            self._stream.send(frames.DATA_END, self._channel)
            self._settle()
        self.update()

    def _on_written(self, count: int) -> None:
        if self._writer.is_lost:  # bytes that the process inside sent before are still forwarded
            count = 0
        self._to_grant += count
        if self._to_grant >= _GRANT_BATCH and not self._received_close:
            self._stream.send(frames.CREDIT, self._channel, frames.U32.pack(self._to_grant))
            self._to_grant = 0
        self._settle()

    def _settle(self) -> None:
        """Forward the end of each direction, once the bytes before it are forwarded."""
        if self._writer.pending or self._sock is None:
            return
        if self._received_close:
            self._close(b"")
            return
        if self._received_end and not self._is_shut and not self._writer.is_lost:
            self._is_shut = True
            try:
                self._sock.shutdown(_socket.SHUT_WR)
            except OSError:
                self._writer.is_lost = True
        if self._sent_end and (self._is_shut or self._writer.is_lost):
            self._close(frames.RESET if self._writer.is_lost else b"")

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the host for this connection."""
        if kind == frames.CLOSE:
            self._on_close(payload)
        elif self._sock is None:
            return  # it was sent before our CLOSE arrived
        elif kind == frames.DATA:
            self._writer.write(payload)
        elif kind == frames.DATA_END:
            self._received_end = True
            self._settle()
        elif kind == frames.CREDIT:
            self._credit += frames.U32.unpack(payload)[0]
        self.update()

    def _on_close(self, payload: bytes) -> None:
        self._received_close = True
        if self._sock is None:
            self._owner.end(self._channel)
        elif payload == frames.RESET:
            _reset_on_close(self._sock)
            self._close(frames.RESET)
        else:
            self._settle()

    def _close(self, payload: bytes) -> None:
        assert self._sock is not None
        sock, self._sock = self._sock, None
        self._owner.loop.set_reader(sock.fileno(), None)
        self._writer.close()
        sock.close()
        self._stream.send(frames.CLOSE, self._channel, payload)
        if self._received_close:
            self._owner.end(self._channel)


class Listener:
    """A socket that accepts connections of processes inside; too many are refused at once, not queued."""

    def __init__(self, owner: Connections, channel: int, sock: _socket.socket, limit: int, path: str) -> None:
        self.channel = channel
        self.limit = limit
        self._owner = owner
        self._sock = sock
        self._path = path
        self._inode = os.lstat(path).st_ino if path else 0

    def resume(self) -> None:
        """Accept connections."""
        self._owner.loop.set_reader(self._sock.fileno(), self._on_ready)

    def _on_ready(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                descriptor, _address = self._sock._accept()  # type: ignore[attr-defined]  # socket's C half
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor or memory is available now
                self._owner.loop.set_reader(self._sock.fileno(), None)
                self._owner.pause()
                return
            sock = _socket.socket(fileno=descriptor)
            if self._owner.has_room(self):
                self._owner.accept(self, sock)
            else:
                _reset_on_close(sock)
                sock.close()

    def on_frame(self, kind: int, _payload: bytes) -> None:
        """Handle a frame of the host: CLOSE."""
        if kind != frames.CLOSE:
            return
        self._owner.loop.set_reader(self._sock.fileno(), None)
        self._sock.close()
        try:
            if self._path and os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except OSError:
            pass  # something inside removed it already
        self._owner.stream.send(frames.CLOSE, self.channel)
        self._owner.end(self.channel)


class Attempt:
    """A connection to a port inside that is being made for the host, by IPv4 or else by IPv6."""

    def __init__(self, owner: Connections, channel: int, port: int) -> None:
        self._owner = owner
        self._channel = channel
        self._addresses = [(_socket.AF_INET6, ("::1", port)), (_socket.AF_INET, ("127.0.0.1", port))]
        self._error: OSError | None = None
        self._sock: _socket.socket | None = None

    def connect_next(self) -> None:
        """Try the next address; after the last, report why the first failed."""
        while self._addresses and self._owner.has_room():
            family, address = self._addresses.pop()
            try:
                self._sock = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
                number = self._sock.connect_ex(address)
            except OSError as error:
                number = error.errno or errno.EIO
            if number in (0, errno.EINPROGRESS) and self._sock is not None:
                self._owner.loop.set_writer(self._sock.fileno(), self._on_ready)
                return
            self._give_up(number)
        self._owner.end(self._channel)
        failure = self._error or OSError(errno.EAGAIN, "too many connections at once")
        self._owner.stream.send_failure(self._channel, failure)

    def _on_ready(self) -> None:
        assert self._sock is not None
        number = self._sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if number:
            self._give_up(number)
            self.connect_next()
            return
        try:
            self._sock.getpeername()
        except OSError:
            return  # an event of a descriptor that had this number before
        self._owner.loop.set_writer(self._sock.fileno(), None)
        self._owner.stream.send(frames.CONNECTED, self._channel)
        self._owner.open(self._channel, self._sock)

    def _give_up(self, number: int) -> None:
        if self._error is None:
            self._error = OSError(number, os.strerror(number))
        if self._sock is not None:
            self._owner.loop.set_writer(self._sock.fileno(), None)
            self._sock.close()
            self._sock = None

    def on_frame(self, kind: int, _payload: bytes) -> None:
        """Handle a frame of the host: CLOSE, as it waits no longer."""
        if kind == frames.CLOSE:
            self._give_up(errno.ECANCELED)
            self._owner.stream.send(frames.CLOSE, self._channel)
            self._owner.end(self._channel)


def _reset_on_close(sock: _socket.socket) -> None:
    """Make the next close reset a TCP connection, which loses unsent bytes."""
    if sock.family != _socket.AF_UNIX:
        sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _LINGER_NOT)


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

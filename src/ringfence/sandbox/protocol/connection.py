"""Carries connections of processes inside over the stream; only the host requests them or listens for them.

Every byte from the guest is hostile.
"""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio import lowlevel
from anyio.abc import ByteStream, TaskGroup

from ringfence.background_tasks import background_tasks
from ringfence.errors import SandboxDied, SandboxPortError, UsageError
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.link import MOST_CONNECTIONS, GuestLink
from ringfence.sandbox.protocol.records import Failure, Listening, ProtocolError, parse_record
from ringfence.sandbox.protocol.session import is_word
from ringfence.sandbox.protocol.stream import ByteQueue, Wakeup

_GRANT_BATCH = frames.CONNECTION_WINDOW // 2

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, SandboxDied)


class Connection(ByteStream):
    """A byte stream to a process inside, whose directions end independently.

    Bytes that are not received hold up only their sender. A connection that was cut off, rather than ended by the
    process inside, raises `anyio.BrokenResourceError` after the bytes that arrived before; a sandbox that is gone
    raises `SandboxDied`.

    Args:
        link: The link.
        number: The guest's number of a connection that it has accepted; None for one that the host requests.
    """

    def __init__(self, link: GuestLink, number: int | None = None) -> None:
        self.received_bytes = 0
        """Bytes received from inside."""
        self.sent_bytes = 0
        """Bytes sent inside."""
        self.failure: Failure | None = None
        """Why a connection that the host requested could not be made."""
        self._link = link
        self._unread = ByteQueue()
        self._granted = frames.CONNECTION_WINDOW
        self._owed = 0
        self._credit = frames.CONNECTION_WINDOW
        self._awaits_answer = number is None
        self._guest_ended = False
        self._guest_closed = False
        self._we_ended = False
        self._we_closed = False
        self._error: BaseException | None = None
        self._changed = Wakeup()
        if number is None:
            self.number = link.open(self)
        else:
            self.number = number
            link.adopt(number, self)

    # --- frames

    @property
    def is_over(self) -> bool:
        """Whether both sides have released the number, or the sandbox is gone."""
        is_closed = self._guest_closed and self._we_closed
        return is_closed or self.failure is not None or self._error is not None

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the guest for this connection."""
        if self._guest_closed:
            raise ProtocolError(f"sent frame kind {kind} on a connection it had closed")
        if kind == frames.CLOSE and payload in (b"", frames.RESET):
            self._guest_closed = True
        elif self._awaits_answer:
            self._on_answer(kind, payload)
        elif kind == frames.DATA:
            self._on_data(payload)
        elif kind == frames.DATA_END and not payload and not self._guest_ended:
            self._guest_ended = True
        elif kind == frames.CREDIT and len(payload) == frames.U32.size:
            credit = self._credit + frames.U32.unpack(payload)[0]
            self._credit = min(credit, frames.CONNECTION_WINDOW)
        else:
            raise ProtocolError(f"sent frame kind {kind} of {len(payload)} bytes on a connection")
        self._changed.notify_all()

    def _on_answer(self, kind: int, payload: bytes) -> None:
        if kind == frames.FAIL:
            self.failure = parse_record(payload, Failure)
        elif kind != frames.CONNECTED or payload:
            raise ProtocolError(f"answered a request for a connection by frame kind {kind}")
        self._awaits_answer = False

    def _on_data(self, payload: bytes) -> None:
        self._granted -= len(payload)
        # Empty frames cost no credit, so a flood of them would use memory without bound.
        if self._granted < 0 or not payload or self._guest_ended:
            raise ProtocolError(
                "sent more on a connection than was granted, none in a frame, or after its end"
            )
        if self._we_closed:
            return
        self.received_bytes += len(payload)
        self._unread.append(payload)

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone."""
        self._error = error
        self._changed.notify_all()

    # --- methods for the holder

    async def wait_for_answer(self) -> Failure | None:
        """Wait until the guest has answered the request for it; return why it could not be made."""
        while self._awaits_answer and not self._guest_closed:
            self._check()
            await self._changed.wait()
        return self.failure

    async def wait_until_over(self) -> None:
        """Wait until both sides have released the number, or the sandbox is gone."""
        while not self.is_over:
            await self._changed.wait()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Receive bytes from inside, at least one.

        Raises:
            anyio.EndOfStream: The process inside has ended its direction.
            anyio.BrokenResourceError: The connection was cut off.
            SandboxDied: The sandbox is gone.
        """
        if self._unread:
            # Does not yield to other tasks: a window is small, and more bytes arrive only when the reader task runs.
            await lowlevel.checkpoint_if_cancelled()
        while not self._unread:
            self._check()
            if self._guest_ended:
                raise anyio.EndOfStream
            if self._guest_closed:
                raise anyio.BrokenResourceError
            await self._changed.wait()
        chunk = self._unread.pop(max_bytes)
        self._grant(len(chunk))
        return chunk

    def _grant(self, count: int) -> None:
        self._owed += count
        if self._owed >= _GRANT_BATCH and not self._guest_ended and not self._we_closed:
            owed, self._owed = self._owed, 0
            self._granted += owed
            self._link.post(frames.CREDIT, self.number, frames.U32.pack(owed))

    async def send(self, item: bytes) -> None:
        """Send bytes inside, waiting while the process there does not read.

        Raises:
            anyio.BrokenResourceError: The process inside no longer receives.
            SandboxDied: The sandbox is gone.
        """
        view = memoryview(bytes(item))
        while view:
            self._check()
            if self._we_ended:
                raise anyio.ClosedResourceError
            if self._guest_closed:
                raise anyio.BrokenResourceError
            if self._credit == 0:
                await self._changed.wait()
                continue
            if self._link.is_full:
                await self._link.wait_for_turn()
                continue
            piece = view[: min(self._credit, frames.MAX_PAYLOAD)]
            self._credit -= len(piece)
            self.sent_bytes += len(piece)
            self._link.post(frames.DATA, self.number, piece)
            view = view[len(piece) :]

    async def send_eof(self) -> None:
        """End the direction to the inside; the other stays open."""
        if not self._we_ended:
            self._we_ended = True
            if not self._guest_closed:
                self._link.post(frames.DATA_END, self.number)

    async def aclose(self) -> None:
        """Close the connection: bytes that were sent are still delivered, bytes that arrive are dropped."""
        self._close(b"")

    def reset(self) -> None:
        """Reset the connection, so that the process inside sees an error."""
        self._close(frames.RESET)

    def _close(self, payload: bytes) -> None:
        if self._we_closed:
            return
        self._we_closed = self._we_ended = True
        self._unread.clear()
        if self._error is None and self.failure is None:
            self._link.post(frames.CLOSE, self.number, payload)
        self._changed.notify_all()
        if self._guest_closed:
            self._link.release(self.number)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._we_closed:
            raise anyio.ClosedResourceError


async def dial(link: GuestLink, port: int, *, timeout_s: float) -> Connection:
    """Connect to `port` inside. The caller closes the connection.

    Raises:
        SandboxPortError: No process answers there, or not within `timeout_s` (`ETIMEDOUT`).
        SandboxDied: The sandbox is gone.
    """
    connection = Connection(link)
    link.post(frames.CONNECT, connection.number, frames.encode_record([("port", port)]))
    failure: Failure | None = Failure(errno.ETIMEDOUT, f"nothing answered within {timeout_s:g} s")
    try:
        with anyio.move_on_after(timeout_s):
            failure = await connection.wait_for_answer()
    except BaseException:
        connection.reset()
        raise
    if failure is None:
        return connection
    connection.reset()
    raise _port_error("connect to", f"port {port!r}", failure)


def _port_error(attempt: str, where: str, failure: Failure) -> SandboxPortError:
    text = f"cannot {attempt} {where} inside the sandbox: {failure.message}"
    return SandboxPortError(text, where=where, errno_name=failure.errno_name)


Serve = Callable[[Connection], Awaitable[None]]
"""Serves one connection to its end. It is closed when the function returns, reset when it raises."""


class Listener:
    """A socket inside that accepts connections of processes there."""

    def __init__(self, link: GuestLink, serve: Serve, *, limit: int, tasks: TaskGroup) -> None:
        self.port = 0
        """Port on the loopback inside; 0 for a Unix socket."""
        self._link = link
        self._serve = serve
        self._limit = limit
        self._tasks = tasks
        self._connections: list[Connection] = []
        self._is_open = False
        self._is_closing = False
        self._is_closed = False
        self._failure: Failure | None = None
        self._error: BaseException | None = None
        self._changed = Wakeup()
        self.number = link.open(self)

    @property
    def is_over(self) -> bool:
        """Whether the guest has sent its last frame on this number."""
        return self._failure is not None or self._is_closed

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the guest for this listener."""
        if kind == frames.ACCEPTED and self._is_open and len(payload) == frames.U32.size:
            self._on_accepted(frames.U32.unpack(payload)[0])
        elif kind == frames.CLOSE and not payload and self._is_closing:
            self._is_closed = True
        elif kind == frames.LISTENING and not self._is_open:
            self.port = parse_record(payload, Listening).port
            self._is_open = True
        elif kind == frames.FAIL and not self._is_open:
            self._failure = parse_record(payload, Failure)
        else:
            raise ProtocolError(f"sent frame kind {kind} of {len(payload)} bytes on a listener")
        self._changed.notify_all()

    def _on_accepted(self, number: int) -> None:
        self._connections = [one for one in self._connections if not one.is_over]
        if len(self._connections) >= self._limit:
            raise ProtocolError(f"accepted more than {self._limit} connections at once")
        connection = Connection(self._link, number)
        self._connections.append(connection)
        if self._is_closing:
            connection.reset()
        else:
            self._tasks.start_soon(self._serve_one, connection)

    async def _serve_one(self, connection: Connection) -> None:
        try:
            try:
                await self._serve(connection)
                await connection.aclose()
            finally:
                connection.reset()  # unless it is closed
        except* _GONE:  # also in the group of a server that has tasks
            pass

    async def wait_until_idle(self) -> None:
        """Wait until all connections that the guest has announced are over, including those not served yet.

        Connections that a process inside opened were announced before its end was.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        while left := [one for one in self._connections if not one.is_over]:
            await left[0].wait_until_over()
        if self._error is not None:
            raise self._error

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone."""
        self._error = error
        self._changed.notify_all()

    async def wait_until_open(self, where: str) -> None:
        """Wait for the guest's answer.

        Raises:
            SandboxPortError: It cannot listen there.
            SandboxDied: The sandbox is gone.
        """
        while not self._is_open:
            if self._error is not None:
                raise self._error
            if self._failure is not None:
                raise _port_error("listen on", where, self._failure)
            await self._changed.wait()

    def close(self) -> None:
        """Accept no more connections."""
        if not self._is_closing and self._failure is None:
            self._is_closing = True
            self._link.post(frames.CLOSE, self.number)


@asynccontextmanager
async def listening(
    link: GuestLink, serve: Serve, where: tuple[str, object], *, limit: int
) -> AsyncIterator[Listener]:
    """Listen at `where` (a `port` or a `path`) until the context is left; then reset the connections.

    Raises:
        SandboxPortError: The guest cannot listen there.
        SandboxDied: The sandbox is gone.
    """
    async with background_tasks() as tasks:
        listener = Listener(link, serve, limit=limit, tasks=tasks)
        try:
            link.post(frames.LISTEN, listener.number, frames.encode_record([where, ("limit", limit)]))
            await listener.wait_until_open(f"{where[0]} {where[1]!r}")
            yield listener
        finally:
            listener.close()


_HIGHEST_PORT = 65_535


def check_port(port: int, *, least: int) -> int:
    """Check the number of a port; return it.

    Raises:
        UsageError: It is below `least` or above 65535.
    """
    if not least <= port <= _HIGHEST_PORT:
        raise UsageError(f"a port is a number from {least} to {_HIGHEST_PORT}, not {port!r}")
    return port


def check_listener(port: int | None, unix: str | None, limit: int) -> tuple[str, object]:
    """Check the address of a listener; return the field of the request for the guest.

    Raises:
        UsageError: Neither or both of port and path are given, one is invalid, or the limit is out of range.
    """
    if (port is None) == (unix is None) or not 1 <= limit <= MOST_CONNECTIONS:
        raise UsageError(
            f"listen takes one of port and unix, and a limit from 1 to {MOST_CONNECTIONS}, "
            f"not {port!r}, {unix!r}, {limit!r}"
        )
    if unix is not None and not (unix.startswith("/") and is_word(unix)):
        raise UsageError(f"{unix!r} is not an absolute path")
    return ("port", check_port(port, least=0)) if port is not None else ("path", unix)

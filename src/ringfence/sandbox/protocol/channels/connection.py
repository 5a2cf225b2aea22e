"""The host's end of one connection to a process inside. Every byte from the guest is hostile."""

import asyncio
from collections import deque
from collections.abc import Callable

import anyio
from anyio import lowlevel
from anyio.abc import ByteStream

from ringfence.errors import SandboxPortError
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.link import GuestLink
from ringfence.sandbox.protocol.records import Failure, ProtocolError, errno_name, parse_failure

_JOIN_BELOW = 4096
_GRANT_BATCH = frames.CONNECTION_WINDOW // 2


class Connection(ByteStream):
    """A byte stream to a process inside, each direction ended by itself.

    What is not received holds up its sender and nobody else. A connection that was cut off, rather than ended by
    the process inside, raises `anyio.BrokenResourceError` after the bytes that came before; a sandbox that is gone
    raises `SandboxDied`.
    """

    def __init__(
        self, link: GuestLink, number: int, *, is_asked_for: bool = False, on_over: Callable[[], None]
    ) -> None:
        self.number = number
        self.received_bytes = 0
        """Bytes that came from inside."""
        self.sent_bytes = 0
        """Bytes that went inside."""
        self.failure: Failure | None = None
        """Why a connection that the host asked for could not be made."""
        self._link = link
        self._on_over = on_over
        self._chunks: deque[bytes | bytearray] = deque()
        self._granted = frames.CONNECTION_WINDOW
        self._owed = 0
        self._credit = frames.CONNECTION_WINDOW
        self._awaits_answer = is_asked_for
        self._guest_ended = False
        self._guest_closed = False
        self._we_ended = False
        self._we_closed = False
        self._error: BaseException | None = None
        self._waiting: list[asyncio.Future[None]] = []
        """Of who waits for a change: futures, for an `anyio.Event` takes five times as long to make and to set."""

    # --- frames

    @property
    def is_over(self) -> bool:
        """Whether both sides are done with the number."""
        return self.failure is not None or (self._guest_closed and self._we_closed)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the guest for this connection."""
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
        self._wake()
        if self.is_over:
            self._on_over()

    def _on_answer(self, kind: int, payload: bytes) -> None:
        if kind == frames.FAIL:
            self.failure = parse_failure(payload)
        elif kind != frames.CONNECTED or payload:
            raise ProtocolError(f"answered a request for a connection by frame kind {kind}")
        self._awaits_answer = False

    def _on_data(self, payload: bytes) -> None:
        self._granted -= len(payload)
        # Empty ones would cost no credit: a flood of them is held for nothing.
        if self._granted < 0 or not payload or self._guest_ended:
            raise ProtocolError(
                "sent more on a connection than was granted, none in a frame, or after its end"
            )
        if self._we_closed:
            return
        self.received_bytes += len(payload)
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) < _JOIN_BELOW:
            last += payload
        else:
            # Small ones are joined: a window full of single bytes would weigh fifty times its size.
            self._chunks.append(bytearray(payload) if len(payload) < _JOIN_BELOW else payload)

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone."""
        self._error = error
        self._wake()
        self._on_over()

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def _wait_for_change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    # --- what the holder does

    async def wait_for_answer(self) -> None:
        """Wait until the guest has said whether the connection that was asked for is there."""
        while self._awaits_answer and not self._guest_closed:
            self._check()
            await self._wait_for_change()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Bytes from inside, at least one.

        Raises:
            anyio.EndOfStream: The process inside has ended its direction.
            anyio.BrokenResourceError: The connection was cut off.
            SandboxDied: The sandbox is gone.
        """
        if self._chunks:
            # No turn for others: a window holds little, and more of it comes only in a turn of the reader's.
            await lowlevel.checkpoint_if_cancelled()
        while not self._chunks:
            self._check()
            if self._guest_ended:
                raise anyio.EndOfStream
            if self._guest_closed:
                raise anyio.BrokenResourceError
            await self._wait_for_change()
        chunk = self._chunks.popleft()
        if len(chunk) > max_bytes:
            self._chunks.appendleft(chunk[max_bytes:])
            chunk = chunk[:max_bytes]
        self._grant(len(chunk))
        return bytes(chunk)

    def _grant(self, count: int) -> None:
        self._owed += count
        if self._owed >= _GRANT_BATCH and not self._guest_ended and not self._we_closed:
            owed, self._owed = self._owed, 0
            self._granted += owed
            self._link.post(frames.CREDIT, self.number, frames.U32.pack(owed))

    async def send(self, item: bytes) -> None:
        """Send bytes inside, waiting while the process there does not read.

        Raises:
            anyio.BrokenResourceError: Nobody inside takes them any more.
            SandboxDied: The sandbox is gone.
        """
        view = memoryview(item)
        while view:
            self._check()
            if self._we_ended:
                raise anyio.ClosedResourceError
            if self._guest_closed:
                raise anyio.BrokenResourceError
            if self._credit == 0:
                await self._wait_for_change()
                continue
            if self._link.is_full:
                await self._link.wait_for_turn()
                continue
            piece = view[: min(self._credit, frames.MAX_PAYLOAD)]
            self._credit -= len(piece)
            self.sent_bytes += len(piece)
            self._link.post(frames.DATA, self.number, bytes(piece))
            view = view[len(piece) :]

    async def send_eof(self) -> None:
        """End the direction to the inside; the other goes on."""
        if not self._we_ended:
            self._we_ended = True
            if not self._guest_closed:
                self._link.post(frames.DATA_END, self.number)

    async def aclose(self) -> None:
        """Let go of the connection; what was sent is still delivered, what comes is not wanted."""
        self._close(b"")

    def reset(self) -> None:
        """Cut the connection off: the process inside learns that it did not end well."""
        self._close(frames.RESET)

    def _close(self, payload: bytes) -> None:
        if self._we_closed:
            return
        self._we_closed = self._we_ended = True
        self._chunks.clear()
        if self._error is None and self.failure is None:
            self._link.post(frames.CLOSE, self.number, payload)
        self._wake()
        if self._guest_closed:
            self._link.release(self.number)
            self._on_over()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._we_closed:
            raise anyio.ClosedResourceError


async def dial(link: GuestLink, port: int, *, timeout_s: float) -> Connection:
    """Connect to `port` inside. The caller closes the connection.

    Raises:
        SandboxPortError: Nothing answers there, or not within `timeout_s` (`ETIMEDOUT`).
        SandboxDied: The sandbox is gone.
    """
    number = link.next_number()
    connection = Connection(link, number, is_asked_for=True, on_over=_nothing)
    link.attach(number, connection)
    link.post(frames.CONNECT, number, frames.encode_record([("port", port)]))
    reason, name = f"nothing answered within {timeout_s:g} s", "ETIMEDOUT"
    try:
        with anyio.move_on_after(timeout_s) as patience:
            await connection.wait_for_answer()
    except BaseException:
        connection.reset()
        raise
    if connection.failure is not None:
        reason, name = connection.failure.message, errno_name(connection.failure)
    elif not patience.cancelled_caught:
        return connection
    connection.reset()
    where = f"port {port!r}"
    raise SandboxPortError(
        f"cannot connect to {where} inside the sandbox: {reason}", where=where, errno_name=name
    )


def _nothing() -> None:
    """Nobody counts them."""

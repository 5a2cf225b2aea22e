"""The host's end of a listener inside: each connection it takes is handed to a function, bounded in number."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from ringfence.errors import SandboxDied, SandboxPortError
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.channels.connection import Connection
from ringfence.sandbox.protocol.link import GuestLink
from ringfence.sandbox.protocol.records import Failure, ProtocolError, errno_name, parse_failure, parse_port

Serve = Callable[[Connection], Awaitable[None]]
"""Serves one connection to its end. It is closed when the function returns, reset when it raises."""

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, SandboxDied)


class Listener:
    """A socket inside that takes connections of processes there."""

    def __init__(self, link: GuestLink, number: int, serve: Serve, *, limit: int, tasks: TaskGroup) -> None:
        self.number = number
        self.port = 0
        """Port on the loopback inside; 0 for a Unix socket."""
        self._link = link
        self._serve = serve
        self._limit = limit
        self._tasks = tasks
        self._accepted: asyncio.Queue[Connection] = asyncio.Queue()
        self._count = 0
        self._is_open = False
        self._is_closing = False
        self._is_closed = False
        self._failure: Failure | None = None
        self._error: BaseException | None = None
        self._answered = anyio.Event()
        self._changed = anyio.Event()

    @property
    def is_over(self) -> bool:
        """Whether the guest has said its last on this number."""
        return self._failure is not None or self._is_closed

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the guest for this listener."""
        if kind == frames.ACCEPTED and self._is_open and len(payload) == frames.U32.size:
            self._on_accepted(frames.U32.unpack(payload)[0])
        elif kind == frames.CLOSE and not payload and self._is_closing:
            self._is_closed = True
        elif kind == frames.LISTENING and not self._is_open:
            self.port = parse_port(payload)
            self._is_open = True
            self._answered.set()
        elif kind == frames.FAIL and not self._is_open:
            self._failure = parse_failure(payload)
            self._answered.set()
        else:
            raise ProtocolError(f"sent frame kind {kind} of {len(payload)} bytes on a listener")

    def _on_accepted(self, number: int) -> None:
        if self._count >= self._limit:
            raise ProtocolError(f"accepted more than {self._limit} connections at once")
        self._count += 1
        connection = Connection(self._link, number, on_over=self._on_one_over)
        self._link.adopt(number, connection)
        if self._is_closing:
            connection.reset()
        else:
            self._accepted.put_nowait(connection)

    def _on_one_over(self) -> None:
        self._count -= 1
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_until_idle(self) -> None:
        """Wait until all connections are over that the guest has told of, also those that are not served yet.

        What a process inside opened before it ended was told of before its end.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        while self._count and self._error is None:
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    async def attend(self) -> None:
        """Serve what is accepted. In a task, as frames come where none can be started."""
        while True:
            self._tasks.start_soon(self._attend_one, await self._accepted.get())

    async def _attend_one(self, connection: Connection) -> None:
        try:
            await self._serve(connection)
        except _GONE:
            connection.reset()
        except BaseException:
            connection.reset()
            raise
        await connection.aclose()

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone."""
        self._error = error
        self._answered.set()
        self._changed.set()

    async def wait_until_open(self, where: str) -> None:
        """Wait for the guest's answer.

        Raises:
            SandboxPortError: It cannot listen there.
            SandboxDied: The sandbox is gone.
        """
        await self._answered.wait()
        if self._error is not None:
            raise self._error
        if self._failure is not None:
            raise SandboxPortError(
                f"cannot listen on {where} inside the sandbox: {self._failure.message}",
                where=where,
                errno_name=errno_name(self._failure),
            )

    def close(self) -> None:
        """Take no more connections."""
        if not self._is_closing and self._failure is None:
            self._is_closing = True
            self._link.post(frames.CLOSE, self.number)
        while not self._accepted.empty():
            self._accepted.get_nowait().reset()


@asynccontextmanager
async def listening(
    link: GuestLink, serve: Serve, where: tuple[str, object], *, limit: int
) -> AsyncIterator[Listener]:
    """A listener at `where` (a `port` or a `path`) until the context is left; then its connections are cut off.

    Raises:
        SandboxPortError: The guest cannot listen there.
        SandboxDied: The sandbox is gone.
    """
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        number = link.next_number()
        listener = Listener(link, number, serve, limit=limit, tasks=tasks)
        link.attach(number, listener)
        tasks.start_soon(listener.attend)
        try:
            link.post(frames.LISTEN, number, frames.encode_record([where, ("limit", limit)]))
            await listener.wait_until_open(f"{where[0]} {where[1]!r}")
            yield listener
        except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
            error = exc
        finally:
            listener.close()
        tasks.cancel_scope.cancel()
    if error is not None:
        raise error

"""The gateway's side of a connection from inside: HTTP/1.1, hostile, bounded, kept open between requests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import anyio
from anyio.abc import ByteStream, TaskGroup

from ringfence.egress.conversation import Conversation
from ringfence.egress.forwarding import Emit
from ringfence.egress.gateway.answer import Answer
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provided import PORT_INSIDE, SOCKET_INSIDE
from ringfence.egress.gateway.shapes import error_value
from ringfence.egress.gateway.upstream import UpstreamGone
from ringfence.egress.pace import Pace
from ringfence.egress.reading import Asked, Unreadable
from ringfence.egress.room import Room
from ringfence.errors import SandboxDied

_BODY_BYTES = 32 * 1024 * 1024
_ALL_BODIES_BYTES = 128 * 1024 * 1024
"""Of all requests together that are read or answered at once."""

_IDLE_S = 75.0
_STUCK_S = 60.0
_MOST_REQUESTS = 10_000
_PER_S, _BURST = 50.0, 200
_GRACE_S = 10.0
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied)


class Listens(Protocol):
    """What is needed of a sandbox."""

    id: str

    def listen(
        self,
        serve: Callable[[ByteStream], Awaitable[None]],
        *,
        port: int | None = None,
        unix: str | None = None,
    ) -> AbstractAsyncContextManager[object]:
        """Take connections of processes inside."""


@asynccontextmanager
async def opened_door(gateway: Gateway, sandbox: Listens, emit: Emit) -> AsyncIterator[None]:
    """Let processes of a sandbox ask `gateway`, at `PORT_INSIDE` and `SOCKET_INSIDE`, until the context is left.

    When the gateway has no more to give, clients are told so at once and the context is ended a little later.

    Args:
        gateway: What answers.
        sandbox: Whose processes.
        emit: Records an event; returns when it is written.

    Raises:
        SandboxPortError: The port or the socket is taken inside.
        LimitReached, AuthenticationFailed, InfrastructureFault: Why the gateway has no more to give.
    """
    door = Door(gateway, sandbox.id)
    error: Exception | None = None
    async with (
        gateway.opened(emit),
        sandbox.listen(door.serve, port=PORT_INSIDE),
        sandbox.listen(door.serve, unix=SOCKET_INSIDE),
        anyio.create_task_group() as tasks,
    ):

        async def watch() -> None:
            await gateway.wait_stopped()
            await anyio.sleep(_GRACE_S)  # for the client to tell of it
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            yield
        except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
            error = exc
        tasks.cancel_scope.cancel()
    if gateway.stopped is not None:
        raise gateway.stopped from error
    if error is not None:
        raise error


class Door:
    """Serves connections of one sandbox.

    Args:
        gateway: What answers.
        sandbox_id: Whose connections they are.
    """

    def __init__(self, gateway: Gateway, sandbox_id: str) -> None:
        self._gateway = gateway
        self._sandbox_id = sandbox_id
        self._pace = Pace(_PER_S, burst=_BURST)
        self._room = Room(_ALL_BODIES_BYTES)

    async def serve(self, inside: ByteStream) -> None:
        """Answer the requests of one connection, one after the other."""
        talk = Conversation(inside, body_bytes=_BODY_BYTES, room=self._room)
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                try:
                    await self._serve_all(talk, tasks)
                except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
                    error = exc
                tasks.cancel_scope.cancel()
        finally:
            talk.release()
        try:
            if error is not None:
                raise error
        finally:
            error = None  # it holds this frame, and with it what was asked, which may be large

    async def _serve_all(self, talk: Conversation, tasks: TaskGroup) -> None:
        for _ in range(_MOST_REQUESTS):
            watch = _Watch(talk)
            if not await self._serve_one(talk, watch, tasks) or not await watch.saw_more():
                return

    async def _serve_one(self, talk: Conversation, watch: "_Watch", tasks: TaskGroup) -> bool:
        """Read and answer one request, and let go of it; whether another may follow on the connection."""
        refused: tuple[int, str] | None = None
        try:
            asked = await talk.request()
        except Unreadable as exc:
            asked, refused = None, (exc.status, str(exc))
        if refused is not None:  # not above: an error of sending would hold this one, and all that was read
            await _refuse(talk, *refused)
        if asked is None:
            return False
        await self._pace.wait()
        tasks.start_soon(watch.run)
        goes_on = await self._answer(talk, asked, watch)
        talk.release()
        return goes_on

    async def _answer(self, talk: Conversation, asked: Asked, watch: "_Watch") -> bool:
        """Answer one request; whether another may follow on the connection."""
        is_whole = False
        keeps = asked.header("connection").lower() != "close"
        with watch.answering:
            try:
                answer = await self._gateway.answer(asked, sandbox_id=self._sandbox_id)
                try:
                    is_whole = await _pass_on(talk, answer, keeps=keeps)
                finally:
                    with anyio.CancelScope(shield=True):
                        await answer.aclose()
            except anyio.ClosedResourceError:  # the run is over
                pass
        if not is_whole:
            raise anyio.BrokenResourceError
        return talk.goes_on()


class _Watch:
    """Looks whether who asked still waits, and then whether he asks again."""

    def __init__(self, talk: Conversation) -> None:
        self.answering = anyio.CancelScope()
        """Of the answer: one that nobody waits for any more is not paid for."""
        self._talk = talk
        self._has_more = False
        self._is_over = anyio.Event()

    async def run(self) -> None:
        """Until something comes, or the end."""
        with suppress(*_GONE):
            self._has_more = await self._talk.more()
        if not self._has_more:
            self.answering.cancel()
        self._is_over.set()

    async def saw_more(self) -> bool:
        """Wait for the next request; whether it begins in time."""
        with anyio.move_on_after(_IDLE_S):
            await self._is_over.wait()
        return self._has_more


async def _pass_on(talk: Conversation, answer: Answer, *, keeps: bool) -> bool:
    """Send an answer as it comes; whether all of it was sent."""
    headers = {name.title(): value for name, value in answer.headers.items()}
    if answer.whole is not None:
        headers["Content-Length"] = str(len(answer.whole))
    try:
        # The head goes with the first piece, which follows at once: one thing less to carry.
        await talk.begin(answer.status, headers, keeps=keeps, waits=True)
        async for piece in answer.pieces():
            with anyio.fail_after(_STUCK_S):
                await talk.send(piece)
        await talk.end()
    except (UpstreamGone, TimeoutError, *_GONE):
        return False
    return True


async def _refuse(talk: Conversation, status: int, reason: str) -> None:
    await talk.answer_error(status, error_value("anthropic", status, reason))

"""The gateway's side of a connection from inside: HTTP/1.1, hostile, bounded, kept open between requests."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from ringfence.egress.conversation import Conversation
from ringfence.egress.forwarding import Emit
from ringfence.egress.gateway.answer import Answer
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import PORT_INSIDE, SOCKET_INSIDE
from ringfence.egress.gateway.shapes import error_value
from ringfence.egress.http.client import UpstreamError
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
        tasks.start_soon(gateway.prepare)
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
                watch = _Watch(talk)
                tasks.start_soon(watch.run)
                try:
                    await self._serve_all(talk, watch)
                except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
                    error = exc
                watch.end(tasks.cancel_scope)
        finally:
            talk.release()
        try:
            if error is not None:
                raise error
        finally:
            error = None  # it holds this frame, and with it what was asked, which may be large

    async def _serve_all(self, talk: Conversation, watch: "_Watch") -> None:
        for _ in range(_MOST_REQUESTS):
            if not await self._serve_one(talk, watch) or not await watch.saw_more():
                return

    async def _serve_one(self, talk: Conversation, watch: "_Watch") -> bool:
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
        goes_on = await self._answer(talk, asked, watch)
        talk.release()
        return goes_on

    async def _answer(self, talk: Conversation, asked: Asked, watch: "_Watch") -> bool:
        """Answer one request; whether another may follow on the connection."""
        is_whole = False
        keeps = asked.header("connection").lower() != "close"
        with watch.begun() as answering:
            try:
                answer = await self._gateway.answer(asked, sandbox_id=self._sandbox_id)
                try:
                    is_whole = await _pass_on(talk, answer, _Patience(answering), keeps=keeps)
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
        self._talk = talk
        self._answering = anyio.CancelScope()
        self._has_begun = asyncio.Event()
        self._is_looking = False
        self._is_ended = False
        self._has_more = False
        self._is_over = asyncio.Event()

    def begun(self) -> anyio.CancelScope:
        """A request is there; the scope of its answer: one that nobody waits for any more is not paid for."""
        self._answering, self._has_more = anyio.CancelScope(), False
        self._is_over.clear()
        self._has_begun.set()
        return self._answering

    async def run(self) -> None:
        """While each request is answered and after it, until something comes, or the end."""
        while True:
            await self._has_begun.wait()
            if self._is_ended:
                return
            self._has_begun.clear()
            self._is_looking = True
            with suppress(*_GONE):
                self._has_more = await self._talk.more()
            self._is_looking = False
            if not self._has_more:
                self._answering.cancel()
            self._is_over.set()

    def end(self, running: anyio.CancelScope) -> None:
        """Look no more. What is cancelled holds what it saw until Python looks for it: only if need be."""
        self._is_ended = True
        self._has_begun.set()
        if self._is_looking:
            running.cancel()

    async def saw_more(self) -> bool:
        """Wait for the next request; whether it begins in time."""
        with anyio.move_on_after(_IDLE_S):
            await self._is_over.wait()
        return self._has_more


class _Patience:
    """Ends an answer of which nothing is taken for too long. One timer for all its pieces: most are taken at once."""

    def __init__(self, answering: anyio.CancelScope) -> None:
        self._answering = answering
        self._loop = asyncio.get_running_loop()
        self._since = math.inf
        self._alarm: asyncio.TimerHandle | None = None

    async def send(self, talk: Conversation, piece: bytes) -> None:
        """Send a piece."""
        self._since = self._loop.time()
        if self._alarm is None:
            self._alarm = self._loop.call_later(_STUCK_S, self._on_alarm)
        await talk.send(piece)
        self._since = math.inf

    def _on_alarm(self) -> None:
        now = self._loop.time()
        if now >= self._since + _STUCK_S:
            self._answering.cancel()
        else:
            self._alarm = self._loop.call_at(min(self._since, now) + _STUCK_S, self._on_alarm)

    def end(self) -> None:
        """The answer is over."""
        if self._alarm is not None:
            self._alarm.cancel()


async def _pass_on(talk: Conversation, answer: Answer, patience: _Patience, *, keeps: bool) -> bool:
    """Send an answer as it comes; whether all of it was sent."""
    headers = {name.title(): value for name, value in answer.headers.items()}
    if answer.whole is not None:
        headers["Content-Length"] = str(len(answer.whole))
    try:
        # The head goes with the first piece, which follows at once: one thing less to carry.
        await talk.begin(answer.status, headers, keeps=keeps, waits=True)
        async for piece in answer.pieces():
            await patience.send(talk, piece)
        await talk.end()
    except (UpstreamError, *_GONE):
        return False
    finally:
        patience.end()
    return True


async def _refuse(talk: Conversation, status: int, reason: str) -> None:
    await talk.answer_error(status, error_value("anthropic", status, reason))

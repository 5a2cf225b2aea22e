"""Serves the gateway to processes inside over hostile, bounded connections that stay open between requests."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.abc import ByteStream

from ringfence.egress.gateway.exchange import Response
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import PORT_INSIDE, SOCKET_INSIDE
from ringfence.egress.gateway.routes import error_value
from ringfence.egress.http.client import UpstreamError
from ringfence.egress.http.rules import BadRequest, Request
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.limiter import ByteQuota, RateLimiter
from ringfence.errors import SandboxDied

if TYPE_CHECKING:
    from ringfence.egress.failure import ConfinedListener

_BODY_LIMIT_BYTES = 32 * 1024 * 1024
_ALL_BODIES_BYTES = 128 * 1024 * 1024
"""The limit for the bodies of all requests that are being read or answered."""

_IDLE_S = 75.0
_STUCK_S = 60.0
_CONNECTION_REQUESTS = 10_000
_PER_S, _BURST = 50.0, 200
_GRACE_S = 10.0
_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied)


@asynccontextmanager
async def serving_gateway(gateway: Gateway, listener: "ConfinedListener") -> AsyncIterator[None]:
    """Serve `gateway` inside, at `PORT_INSIDE` and `SOCKET_INSIDE`, until the context is left.

    When the gateway stops, requests are rejected at once, and the context ends a little later.

    Args:
        gateway: The gateway, which is open.
        listener: Listens in the sandbox.

    Raises:
        SandboxPortError: The port or the socket is already in use inside.
        LimitReached, AuthenticationFailed, InfrastructureFault: The gateway has stopped for this reason.
    """
    server = GatewayServer(gateway, listener.id)
    error: Exception | None = None
    async with (
        listener.listen(server.serve, port=PORT_INSIDE),
        listener.listen(server.serve, unix=SOCKET_INSIDE),
        anyio.create_task_group() as tasks,
    ):

        async def watch() -> None:
            await gateway.wait_stopped()
            await anyio.sleep(_GRACE_S)  # for the client to report it
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


class GatewayServer:
    """Serves the connections of one sandbox.

    Args:
        gateway: Answers the requests.
        sandbox_id: The sandbox that the connections come from.
    """

    def __init__(self, gateway: Gateway, sandbox_id: str) -> None:
        self._gateway = gateway
        self._sandbox_id = sandbox_id
        self._limiter = RateLimiter(_PER_S, burst=_BURST)
        self._quota = ByteQuota(_ALL_BODIES_BYTES)

    async def serve(self, stream: ByteStream) -> None:
        """Answer the requests of one connection, one after the other."""
        connection = HttpConnection(stream, body_limit_bytes=_BODY_LIMIT_BYTES, quota=self._quota)
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                watcher = _ClientWatcher(connection)
                tasks.start_soon(watcher.run)
                try:
                    await self._serve_requests(connection, watcher)
                except Exception as exc:  # noqa: BLE001 -- raised below, outside of the group's wrapping
                    error = exc
                watcher.end(tasks.cancel_scope)
        finally:
            connection.release_body()
        try:
            if error is not None:
                raise error
        finally:
            error = None  # it holds this frame, and with it the request, which may be large

    async def _serve_requests(self, connection: HttpConnection, watcher: "_ClientWatcher") -> None:
        for _ in range(_CONNECTION_REQUESTS):
            if not await self._serve_request(connection, watcher) or not await watcher.wait_for_next():
                return

    async def _serve_request(self, connection: HttpConnection, watcher: "_ClientWatcher") -> bool:
        """Read and answer one request; return whether another may follow."""
        refused: tuple[int, str] | None = None
        try:
            request = await connection.read_request()
        except BadRequest as exc:
            request, refused = None, (exc.status, str(exc))
        if (
            refused is not None
        ):  # outside of `except`, so that an error of sending does not keep all that was read
            await connection.respond_json(refused[0], error_value("anthropic", *refused))
        if request is None:
            return False
        await self._limiter.wait()
        can_continue = await self._answer(connection, request, watcher)
        connection.release_body()
        return can_continue

    async def _answer(self, connection: HttpConnection, request: Request, watcher: "_ClientWatcher") -> bool:
        """Answer one request; return whether another may follow."""
        is_complete = False
        with watcher.watch() as answering:
            try:
                response = await self._gateway.handle(request, sandbox_id=self._sandbox_id)
                try:
                    is_complete = await _send(connection, response, answering)
                finally:
                    with anyio.CancelScope(shield=True):
                        await response.aclose()
            except anyio.ClosedResourceError:  # the run is over
                pass
        if not is_complete:
            raise anyio.BrokenResourceError
        return connection.start_next()


class _ClientWatcher:
    """Notices when the client of a request leaves, and when it sends the next one. One task for a whole connection."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._answering = anyio.CancelScope()
        self._has_begun = asyncio.Event()
        self._is_reading = False
        self._is_ended = False
        self._has_data = False
        self._has_read = asyncio.Event()

    def watch(self) -> anyio.CancelScope:
        """Return a scope for answering a request, which is cancelled when its client leaves, to save the cost."""
        self._answering, self._has_data = anyio.CancelScope(), False
        self._has_read.clear()
        self._has_begun.set()
        return self._answering

    async def run(self) -> None:
        """Wait, once for each request, for the beginning of the next one or the end of the connection."""
        while True:
            await self._has_begun.wait()
            if self._is_ended:
                return
            self._has_begun.clear()
            self._is_reading = True
            with suppress(*_LOST):
                self._has_data = await self._connection.wait_for_data()
            self._is_reading = False
            if not self._has_data:
                self._answering.cancel()
            self._has_read.set()

    def end(self, running: anyio.CancelScope) -> None:
        """Stop; cancel the task only if needed, since that keeps its objects alive until a garbage collection."""
        self._is_ended = True
        self._has_begun.set()
        if self._is_reading:
            running.cancel()

    async def wait_for_next(self) -> bool:
        """Wait for the next request; return whether it begins in time."""
        with anyio.move_on_after(_IDLE_S):
            await self._has_read.wait()
        return self._has_data


async def _send(connection: HttpConnection, response: Response, answering: anyio.CancelScope) -> bool:
    """Send a response as it arrives; return whether all of it was sent. A client that stops reading is dropped."""
    headers = {name.title(): value for name, value in response.headers.items()}
    if response.content is not None:
        headers["Content-Length"] = str(len(response.content))
    try:
        await connection.start_response(response.status, headers.items(), keep_alive=True, with_body=True)
        async for piece in response.body():
            answering.deadline = anyio.current_time() + _STUCK_S
            await connection.send(piece)
            answering.deadline = math.inf
        await connection.end()
    except (UpstreamError, *_LOST):
        return False
    return True

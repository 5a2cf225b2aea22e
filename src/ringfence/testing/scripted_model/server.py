"""The scripted model's HTTP server, on a socket of 127.0.0.1."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Mapping

import anyio
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ringfence.background_tasks import background_tasks
from ringfence.errors import InfrastructureFault
from ringfence.model.scripted.api import (
    REQUEST_LIMIT_BYTES,
    ConnectionDropped,
    RecordedRequest,
    ScriptedApi,
    ScriptedResponse,
    parse_json,
)
from ringfence.model.scripted.script import Script

_TICK_S = 1.0
_GRACE_S = 1.0


class ScriptedModelServer:
    """A running server, which `serve` creates.

    `requests` holds every request in order, including refused ones; `turns_done` counts the turns of `script`, if it
    has no cases.
    """

    def __init__(self, script: Script | None, named: Mapping[str, Script]) -> None:
        self.script = script
        self.requests: list[RecordedRequest] = []
        self.base_url = ""
        self._api = ScriptedApi(script, named)
        self._closing = anyio.Event()

    @property
    def turns_done(self) -> int:
        """Number of finished turns of the server's own script; 0 if it has cases."""
        return self._api.turns_done

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(
        cls, script: Script | None = None, *, port: int = 0, named: Mapping[str, Script] | None = None
    ) -> AsyncIterator["ScriptedModelServer"]:
        """Serve on 127.0.0.1 while the context is open.

        Args:
            script: The script for requests whose prompt carries none; None: those are answered with 400.
            port: The port; 0: any free one.
            named: Scripts that a prompt may name.

        Raises:
            InfrastructureFault: The port is taken.
        """
        server = cls(script, named or {})
        with listening(port) as listener:
            server.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with running(server, listener, server._closing):
                yield server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; an ASGI application.

        The response is cancelled when the client disconnects or the server closes; a turn that was not sent completely
        is then due again.
        """
        request = Request(scope, receive)
        try:
            raw = await _body(request)
        except ClientDisconnect:
            return
        headers, path = dict(request.headers), request.url.path
        self.requests.append(RecordedRequest(request.method, path, headers, parse_json(raw)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            tasks.start_soon(self._cancel_on_close, tasks.cancel_scope)
            async with self._api.answer(request.method, path, headers, raw) as response:
                await _send(response, send)
            tasks.cancel_scope.cancel()

    async def _cancel_on_close(self, scope: anyio.CancelScope) -> None:
        await self._closing.wait()
        scope.cancel()


async def _send(response: ScriptedResponse, send: Send) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    try:
        async for piece in response.pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    except ConnectionDropped:
        return  # without a last message the server closes the connection
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _body(request: Request) -> bytes:
    """Read the body, at most one chunk beyond the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > REQUEST_LIMIT_BYTES:
            break
    return bytes(body)


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Listen on `port` of 127.0.0.1; 0: any free one.

    Raises:
        InfrastructureFault: The port is taken.
    """
    # Without an explicit protocol asyncio does not disable Nagle's algorithm, and each answer takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
        except OSError as exc:
            raise InfrastructureFault(
                f"cannot listen on port {port!r} of 127.0.0.1: {exc.strerror}; take another, or 0 for any"
            ) from exc
        yield listener


class _Server(uvicorn.Server):
    """A server that stops at once: uvicorn's own polls ten times a second whether to stop, and for open connections."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program in which the server runs."""
        yield

    async def main_loop(self) -> None:
        """Keep the responses' date up to date until the server closes."""
        while not await self.on_tick(0):
            with anyio.move_on_after(_TICK_S):
                await self._closing.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections; give running responses a grace period."""
        for server in self.servers:
            server.close()
        for taken in sockets or []:
            taken.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if answering := set(self.server_state.tasks):
            _, late = await asyncio.wait(answering, timeout=_GRACE_S)
            for task in late:
                task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.close()


@contextlib.asynccontextmanager
async def running(application: ASGIApp, listener: socket.socket, closing: anyio.Event) -> AsyncIterator[None]:
    """Serve while the context is open; `closing` is set at its end, for responses that still wait."""
    # uvicorn logs each connection that is broken on purpose.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    server = _Server(config, closing)
    async with background_tasks(wait=True) as tasks:
        tasks.start_soon(_serve, server, listener)
        try:
            yield
        finally:
            server.should_exit = True
            closing.set()


async def _serve(server: _Server, listener: socket.socket) -> None:
    # Shielded: a cancelled uvicorn leaves its sockets open. It ends by itself soon after `should_exit`.
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])

"""Starts and stops the HTTP server on a socket of its own."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import anyio
import uvicorn
from starlette.applications import Starlette

from ringfence.background_tasks import background_tasks
from ringfence.errors import InfrastructureFault


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """A socket on `port` of 127.0.0.1; 0: any that is free.

    Raises:
        InfrastructureFault: The port is taken.
    """
    # With the protocol left out asyncio does not switch Nagle's algorithm off, and each answer takes 40 ms.
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


_TICK_S = 1.0
_GRACE_S = 1.0


class _Server(uvicorn.Server):
    """Ends as soon as it is told: uvicorn's own looks ten times a second whether it shall, and whether all went."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program we run in."""
        yield

    async def main_loop(self) -> None:
        """Keep the date of the answers until it is time to end."""
        while not await self.on_tick(0):
            with anyio.move_on_after(_TICK_S):
                await self._closing.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections; let what is being answered end, for a time."""
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
async def running(
    application: Starlette, listener: socket.socket, closing: anyio.Event
) -> AsyncIterator[None]:
    """Serve while the context is open; `closing` is set when it ends, for answers that still wait."""
    # uvicorn reports each connection that we break on purpose.
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

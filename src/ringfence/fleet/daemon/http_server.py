"""Serves HTTP applications on Unix sockets, which only their owner can open, and on TCP addresses."""

import logging
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import uvicorn

from ringfence.errors import InfrastructureFault
from ringfence.filesystem import short_path
from ringfence.fleet.daemon.connection_limits import LimitedProtocol

_ROUNDS = 5
_MAX_CONNECTIONS = 200
"""Concurrent connections at an address that strangers may reach; further requests are answered with 503."""

_TICK_S = 1.0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command: while the daemon stops, it must still answer requests for its status."""
        yield

    def end(self) -> None:
        """Make the server end soon."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Set the date of responses once a second until `end` is called; uvicorn's own loop wakes ten times a second."""
        while not await self.on_tick(0):
            with anyio.move_on_after(_TICK_S):
                await self._ending.wait()


@asynccontextmanager
async def serving(app: Any, path: Path) -> AsyncIterator[None]:
    """Serve an application on a Unix socket. The caller holds the daemon's lock, so a socket left there is removed.

    Raises:
        InfrastructureFault: The socket cannot be created.
    """
    try:
        async with _served(app, _listen(path)):
            yield
    finally:
        path.unlink(missing_ok=True)  # noqa: ASYNC240 -- at the end, at once


@asynccontextmanager
async def serving_at(app: Any, address: str) -> AsyncIterator[None]:
    """Serve an application at HOST:PORT.

    Raises:
        InfrastructureFault: The address cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    try:
        listener = socket.create_server((host.strip("[]"), int(port)), family=_family(host), reuse_port=False)
    except (OSError, OverflowError) as exc:
        raise InfrastructureFault(
            f"nothing can listen at {address!r}: {getattr(exc, 'strerror', None) or exc}; name another address"
        ) from exc
    async with _served(app, listener, most=_MAX_CONNECTIONS):
        yield


@asynccontextmanager
async def serving_on(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a TCP socket that is already listening, and close the socket at the end."""
    async with _served(app, listener, most=_MAX_CONNECTIONS):
        yield


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@asynccontextmanager
async def _served(app: Any, listener: socket.socket, *, most: int | None = None) -> AsyncIterator[None]:
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        limit_concurrency=most,
        proxy_headers=False,  # every program of this machine can write X-Forwarded-For
        http="auto" if most is None else LimitedProtocol,
    )
    server = _Server(config)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve, server, listener)
            try:
                yield
            finally:
                server.end()
    finally:
        listener.close()


async def _serve(server: _Server, listener: socket.socket) -> None:
    # Shielded: a cancelled uvicorn leaves its connections open. It ends by itself soon after `should_exit`.
    with anyio.CancelScope(shield=True):
        await server.serve([listener])
        # The server knows a connection that it accepted last only after some rounds of the event loop.
        for _ in range(_ROUNDS):
            await anyio.lowlevel.checkpoint()
        for connection in tuple(server.server_state.connections):
            connection.transport.close()
        await anyio.lowlevel.checkpoint()


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with short_path(path) as short:
                listener.bind(short)
        finally:
            os.umask(before)
        listener.listen(128)
    except OSError as exc:
        listener.close()
        raise InfrastructureFault(
            f"the daemon's socket {str(path)!r} cannot be created: {exc.strerror or exc}; check the permissions of "
            "its directory, or name another state directory by RINGFENCE_STATE_DIR"
        ) from exc
    return listener

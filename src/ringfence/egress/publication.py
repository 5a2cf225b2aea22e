"""Published ports: a port inside that is reachable on the host's loopback for as long as the user wants.

Every user of this machine can connect to the port on the host, and a browser there shows what an agent wrote.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from ringfence.background_tasks import background_tasks
from ringfence.egress.transfer import Transfer, transfer
from ringfence.errors import SandboxDied, SandboxPortError, UsageError
from ringfence.events import Event, PortPublished, PortWithdrawn

_CONNECTIONS = 64
_EMIT_S = 5.0


class Connects(Protocol):
    """The part of a sandbox that a publication uses."""

    id: str

    def connect(self, port: int) -> Awaitable[ByteStream]:
        """Connect to a port inside."""


class _Publication:
    """Connects clients on the host to the port inside, a limited number at once, and counts them."""

    def __init__(self, sandbox: Connects, port: int) -> None:
        self._sandbox = sandbox
        self._port = port
        self._open = 0
        self.connections = 0
        self.failed = 0
        self.sent_bytes = 0
        self.received_bytes = 0

    def withdrawn(self, sandbox_id: str, host_port: int) -> PortWithdrawn:
        """Return the event of the end of the publication, with the counts."""
        return PortWithdrawn(
            sandbox_id=sandbox_id,
            port=self._port,
            host_port=host_port,
            connections=self.connections,
            failed=self.failed,
            sent_bytes=self.sent_bytes,
            received_bytes=self.received_bytes,
        )

    async def serve(self, outside: SocketStream) -> None:
        """Serve one connection until its end; a connection that fails or exceeds the limit is closed."""
        async with outside:
            if self._open >= _CONNECTIONS:
                self.failed += 1
                return
            self._open += 1
            self.connections += 1
            passed = Transfer()
            try:
                inside = await self._sandbox.connect(self._port)
                try:
                    await transfer(inside, outside, passed)
                finally:
                    await inside.aclose()
            except (SandboxPortError, SandboxDied):
                self.failed += 1
            finally:
                self._open -= 1
                self.sent_bytes += passed.sent_bytes
                self.received_bytes += passed.received_bytes


@asynccontextmanager
async def publish_port(
    sandbox: Connects, port: int, emit: Callable[[Event], Awaitable[None]], *, host_port: int = 0
) -> AsyncIterator[int]:
    """Forward 127.0.0.1:`host_port` of the host to `port` inside, and yield the host's port; 0: any free port.

    Raises:
        UsageError: The host's port is already in use or not permitted.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=host_port)
    except OSError as exc:
        raise UsageError(
            f"cannot listen on port {host_port} of this machine: {exc.strerror or exc}; choose another"
        ) from exc
    publication = _Publication(sandbox, port)
    async with listener:
        chosen = listener.extra(SocketAttribute.local_port)  # noqa: S610 -- anyio's, not Django's
        await emit(PortPublished(sandbox_id=sandbox.id, port=port, host_port=chosen))
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(listener.serve, publication.serve)
                yield chosen
        finally:
            with anyio.move_on_after(_EMIT_S, shield=True):
                await emit(publication.withdrawn(sandbox.id, chosen))

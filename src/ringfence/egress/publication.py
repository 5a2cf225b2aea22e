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
    """What is needed of a sandbox."""

    id: str

    def connect(self, port: int) -> Awaitable[ByteStream]:
        """Connect to a port inside."""


class _Publication:
    """Connects clients of the host, up to a number at once, and counts."""

    def __init__(self, sandbox: Connects, port: int) -> None:
        self._sandbox = sandbox
        self._port = port
        self._open = 0
        self.connections = 0
        self.failed = 0
        self.sent_bytes = 0
        self.received_bytes = 0

    def withdrawn(self, sandbox_id: str, host_port: int) -> PortWithdrawn:
        """The event of its end, with the counts."""
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
        """Serve one connection until its end; one that fails, or is one too many, is closed."""
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
    """Lead 127.0.0.1:`host_port` of the host to `port` inside; 0: a free port, which is yielded.

    Raises:
        UsageError: The host's port is taken or not permitted.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=host_port)
    except OSError as exc:
        raise UsageError(
            f"port {host_port} of this machine cannot be listened on: {exc.strerror or exc}; name another"
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

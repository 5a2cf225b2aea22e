"""The other way: a port inside, reachable on the host's loopback while somebody asks for it, and for him alone.

Whoever uses this machine can connect to the port on the host, and a browser there shows what an agent wrote.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from ringfence.background_tasks import background_tasks
from ringfence.egress.pump import Exchange, exchange
from ringfence.errors import SandboxDied, SandboxPortError, UsageError
from ringfence.events import Event, PortPublished, PortWithdrawn

_MOST = 64
_TELL_S = 5.0


class Connects(Protocol):
    """What is needed of a sandbox."""

    id: str

    def connect(self, port: int) -> Awaitable[ByteStream]:
        """Connect to a port inside."""


class _Publication:
    """Passes connections on, as many as may be at once."""

    def __init__(self, sandbox: Connects, port: int) -> None:
        self._sandbox = sandbox
        self._port = port
        self._open = 0
        self.connections = 0
        self.failed = 0
        self.sent_bytes = 0
        self.received_bytes = 0

    def withdrawn(self, sandbox_id: str, host_port: int) -> PortWithdrawn:
        """That it is over, and what passed."""
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
        """Carry one connection to its end; one that cannot be made, or is one too many, is closed."""
        async with outside:
            if self._open >= _MOST:
                self.failed += 1
                return
            self._open += 1
            self.connections += 1
            passed = Exchange()
            try:
                inside = await self._sandbox.connect(self._port)
                try:
                    await exchange(inside, outside, passed)
                finally:
                    await inside.aclose()
            except (SandboxPortError, SandboxDied):
                self.failed += 1
            finally:
                self._open -= 1
                self.sent_bytes += passed.sent_bytes
                self.received_bytes += passed.received_bytes


@asynccontextmanager
async def published(
    sandbox: Connects, port: int, emit: Callable[[Event], Awaitable[None]], *, host_port: int = 0
) -> AsyncIterator[int]:
    """Lead 127.0.0.1:`host_port` of the host (0: a free one, which is given) to `port` inside.

    Raises:
        UsageError: The host's port is taken or not allowed.
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
            with anyio.move_on_after(_TELL_S, shield=True):
                await emit(publication.withdrawn(sandbox.id, chosen))

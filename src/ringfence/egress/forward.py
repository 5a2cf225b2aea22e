"""Forwards: connects each connection to a port inside to the service on the host's side that the port stands for."""

import time

import anyio
from anyio.abc import ByteStream

from ringfence.config.forward import Forward
from ringfence.egress.address import refused_address, refused_target
from ringfence.egress.limiter import RateLimiter
from ringfence.egress.resolver import (
    Resolve,
    Resolved,
    Unreachable,
    connect_first,
    own_ports,
    resolve_by_system,
    resolve_checked,
)
from ringfence.egress.transfer import Transfer, transfer
from ringfence.errors import PolicyRefused
from ringfence.events import Emit, ForwardClosed, ForwardOpened, ForwardRefused

_PER_S, _BURST = 50.0, 200
_EMIT_S = 5.0


def check_forward(forward: Forward) -> None:
    """Check that the target of a forward may be granted.

    Raises:
        PolicyRefused: No grant may lead to the target.
    """
    reason = refused_target(forward.host, forward.target_port)
    if reason is not None:
        raise PolicyRefused(f"forward '{forward}' is refused: {reason}", rule="forward-target")


class Forwarder:
    """Serves the connections of one forward.

    Args:
        forward: The port and its target.
        sandbox_id: The sandbox that the connections come from.
        emit: Writes an event to the record; returns when it is written.
        resolve: How the name of the target is resolved.
    """

    def __init__(
        self, forward: Forward, *, sandbox_id: str, emit: Emit, resolve: Resolve = resolve_by_system
    ) -> None:
        check_forward(forward)
        self._forward = forward
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._resolve_name = resolve
        self._limiter = RateLimiter(_PER_S, burst=_BURST)
        self._count = 0

    async def serve(self, inside: ByteStream) -> None:
        """Serve one connection until its end; a refused or failed connection is aborted."""
        await self._limiter.wait()
        self._count += 1
        number = self._count
        try:
            resolved = await self._resolve()
        except Unreachable as exc:
            await self._emit(
                ForwardRefused(
                    sandbox_id=self._sandbox_id,
                    forward=str(self._forward),
                    connection=number,
                    target=self._forward.target,
                    reason=str(exc),
                )
            )
            raise anyio.BrokenResourceError from exc
        await self._emit(
            ForwardOpened(
                sandbox_id=self._sandbox_id,
                forward=str(self._forward),
                connection=number,
                target=self._forward.target,
                address=str(resolved),
            )
        )
        await self._transfer(inside, resolved, number)

    async def _resolve(self) -> Resolved:
        """Resolve the target, and check that none of its addresses is refused."""
        forward = self._forward
        found = await resolve_checked(
            forward.host,
            forward.target_port,
            lambda resolved: refused_address(resolved.address),
            resolve=self._resolve_name,
        )
        if forward.target_port in own_ports():
            raise Unreachable(f"port {forward.target_port} is one that ringfence itself listens on")
        return found[0]

    async def _transfer(self, inside: ByteStream, resolved: Resolved, number: int) -> None:
        began = time.monotonic()
        passed = Transfer()
        try:
            outside = await connect_first([resolved])
            try:
                await transfer(inside, outside, passed)
            finally:
                await anyio.aclose_forcefully(outside)
        except Unreachable as exc:
            passed.ended_by = str(exc)
        finally:
            with anyio.move_on_after(_EMIT_S, shield=True):
                await self._emit(
                    ForwardClosed(
                        sandbox_id=self._sandbox_id,
                        forward=str(self._forward),
                        connection=number,
                        sent_bytes=passed.sent_bytes,
                        received_bytes=passed.received_bytes,
                        ended_by=passed.ended_by,
                        duration_ms=round((time.monotonic() - began) * 1000, 3),
                    )
                )
        if passed.ended_by != "closed":
            raise anyio.BrokenResourceError

"""Forwards: each connection to a port inside is carried to the service of the host's side that it stands for."""

import time
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import ByteStream

from ringfence.config.forward import Forward
from ringfence.egress.address import refused_address, refused_target
from ringfence.egress.own_sockets import own_ports
from ringfence.egress.pace import Pace
from ringfence.egress.pump import Exchange, exchange
from ringfence.egress.resolving import Resolved, Unreachable, connected, resolved_once
from ringfence.errors import PolicyRefused
from ringfence.events import Event, ForwardClosed, ForwardOpened, ForwardRefused

_PER_S, _BURST = 50.0, 200
_TELL_S = 5.0

Emit = Callable[[Event], Awaitable[None]]


def check_forward(forward: Forward) -> None:
    """Refuse a target that no grant opens.

    Raises:
        PolicyRefused: It is one.
    """
    reason = refused_target(forward.host, forward.target_port)
    if reason is not None:
        raise PolicyRefused(f"forward '{forward}' is refused: {reason}", rule="forward-target")


class Forwarder:
    """Serves the connections of one forward.

    Args:
        forward: What it stands for.
        sandbox_id: Whose connections they are.
        emit: Records an event; returns when it is written.
    """

    def __init__(self, forward: Forward, *, sandbox_id: str, emit: Emit) -> None:
        check_forward(forward)
        self._forward = forward
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._pace = Pace(_PER_S, burst=_BURST)
        self._count = 0

    async def serve(self, inside: ByteStream) -> None:
        """Carry one connection to its end; a refused or failed one is cut off."""
        await self._pace.wait()
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
        await self._carry(inside, resolved, number)

    async def _resolve(self) -> Resolved:
        """Look the target up, and see that nothing it resolves to is refused."""
        forward = self._forward
        found = await resolved_once(
            forward.host, forward.target_port, lambda one: refused_address(one.address)
        )
        if forward.target_port in own_ports():
            raise Unreachable(f"port {forward.target_port} is one that ringfence itself listens on")
        return found[0]

    async def _carry(self, inside: ByteStream, resolved: Resolved, number: int) -> None:
        began = time.monotonic()
        passed = Exchange()
        try:
            outside = await connected([resolved])
            try:
                await exchange(inside, outside, passed)
            finally:
                await anyio.aclose_forcefully(outside)
        except Unreachable as exc:
            passed.ended_by = str(exc)
        finally:
            with anyio.move_on_after(_TELL_S, shield=True):
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

"""The life of a holder's socket: open while the sandbox lives, somebody wants it and its time is not up."""

import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

import anyio

from ringfence.config.units import format_duration
from ringfence.errors import InfrastructureFault, SandboxDied
from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.asking import ChangeEgress
from ringfence.sandbox.supervisor.peer import Peer
from ringfence.sandbox.supervisor.place import HolderPlace
from ringfence.sandbox.supervisor.relay import Relay
from ringfence.sandbox.supervisor.state import HolderState, write_state

_WIND_DOWN_S = 5.0
_ACCEPT_AGAIN_S = 0.1


@frozen
class HoldEnd:
    """Why a held sandbox was ended in order."""

    reason: Literal["removed", "idle"]
    detail: str


async def hold(
    sandbox: Sandbox,
    place: HolderPlace,
    state: HolderState,
    *,
    idle_s: float | None,
    record: Callable[[Event], Awaitable[None]],
    on_ready: Callable[[], Awaitable[None]],
    change: ChangeEgress | None = None,
) -> HoldEnd:
    """Serve a sandbox on the socket of its place until it shall end.

    Args:
        sandbox: Open; whoever opened it closes it afterwards.
        place: Where it is found; locked by this process.
        state: Written there before anybody can attach, and again when the sandbox has died.
        idle_s: How long it lives while no client is attached; None is no limit.
        record: As `Relay`.
        on_ready: Called once when clients can attach.
        change: As `Relay`.

    Raises:
        SandboxDied: The guest is gone.
        InfrastructureFault: The state directory cannot be written.
    """
    holding = _Holding(Relay(sandbox, record, change=change), sandbox, idle_s)
    write_state(place, state)
    listening = place.listen()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_accept, listening, holding.relay, tasks)
            tasks.start_soon(holding.watch)
            await on_ready()
            await holding.over.wait()
            place.stop_listening()
            if holding.death is not None:
                _note_death(place, state, holding.death)
                holding.relay.tell_death(holding.death.reason)
            else:
                await holding.relay.wind_down(timeout_s=_WIND_DOWN_S)
            tasks.cancel_scope.cancel()
    finally:
        place.stop_listening()
        listening.close()
    if holding.death is not None:
        raise holding.death
    assert holding.end is not None
    return holding.end


class _Holding:
    """What ends a held sandbox, whichever comes first."""

    def __init__(self, relay: Relay, sandbox: Sandbox, idle_s: float | None) -> None:
        self.relay = relay
        self.over = anyio.Event()
        self.end: HoldEnd | None = None
        self.death: SandboxDied | None = None
        self._sandbox = sandbox
        self._idle_s = idle_s

    async def watch(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._die)
            tasks.start_soon(self._obey)
            if self._idle_s is not None:
                tasks.start_soon(self._idle, self._idle_s)
            await self.over.wait()
            tasks.cancel_scope.cancel()

    def _finish(self, end: HoldEnd) -> None:
        self.end = self.end or end
        self.over.set()

    async def _die(self) -> None:
        error = await self._sandbox.session.death()
        if not self.over.is_set() and isinstance(error, SandboxDied):
            self.death = error
        self.over.set()

    async def _obey(self) -> None:
        await self.relay.end_asked.wait()
        self._finish(HoldEnd("removed", "it was removed"))

    async def _idle(self, limit_s: float) -> None:
        while True:
            left_s = limit_s
            if self.relay.is_quiet:
                left_s = self.relay.quiet_since + limit_s - time.monotonic()
            if left_s <= 0:
                self._finish(HoldEnd("idle", f"nobody was attached for {format_duration(limit_s)}"))
                return
            await anyio.sleep(left_s)


async def _accept(listening: socket.socket, relay: Relay, tasks: anyio.abc.TaskGroup) -> None:
    while True:
        try:
            connection, _address = listening.accept()
        except BlockingIOError:
            await anyio.wait_readable(listening)
            continue
        except OSError:  # out of descriptors for now; those who wait are let in later
            await anyio.sleep(_ACCEPT_AGAIN_S)
            continue
        connection.setblocking(False)
        tasks.start_soon(relay.serve, Peer(connection))


def _note_death(place: HolderPlace, state: HolderState, death: SandboxDied) -> None:
    # For whoever asks later; where the disk is full, they are told that it is gone and not why.
    with suppress(InfrastructureFault):
        write_state(place, state.ended(death.reason, str(death)))

"""Attaching to a held sandbox: its socket is a fence whose guest was greeted by the holder."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio

from ringfence.errors import DeathReason, SandboxDied, SandboxStartFailed
from ringfence.sandbox.base import EndReason, Fence
from ringfence.sandbox.guest import frames
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.peer import END
from ringfence.sandbox.supervisor.place import HolderPlace
from ringfence.sandbox.supervisor.state import HolderState, read_state

_END_S = 60.0
_WORD_S = 2.0
_STEP_S = 0.01
_CHUNK = 65536


class HeldFence(Fence):
    """A fence somebody else holds. Killing it only lets go of the connection."""

    def __init__(self, connection: socket.socket, place: HolderPlace, state: HolderState) -> None:
        self.facts = state.facts
        self.read_fd = self.write_fd = connection.fileno()
        self._connection = connection
        self._place = place
        self._sandbox_id = state.sandbox_id

    async def wait(self) -> EndReason:
        """Why it is gone, as far as the holder could say. It may let go of us first, and write that down then."""
        deadline = anyio.current_time() + _WORD_S
        while True:
            may_say_more = self._place.is_alive() and anyio.current_time() < deadline
            state = read_state(self._place)  # only now: what it said last is read, too
            if state is not None and state.end is not None:
                return EndReason(cast("DeathReason", state.end[0]), state.end[1])
            if not may_say_more:
                return EndReason("killed", "its holder has ended it, or is gone")
            await anyio.sleep(_STEP_S)

    async def kill(self) -> None:
        """Let go of the connection; what was run over it is killed by the holder."""
        self._connection.close()


@asynccontextmanager
async def attach(
    place: HolderPlace, state: HolderState, *, env: Mapping[str, str] | None = None
) -> AsyncIterator[Sandbox]:
    """A held sandbox, to be used like one's own; leaving the context kills what was started through it.

    Args:
        place: Where its holder is.
        state: What that has written there.
        env: Further variables of every command.

    Raises:
        SandboxDied: Nobody listens there any more.
        SandboxStartFailed: The holder does not let us in.
    """
    try:
        connection = place.connect()
    except OSError as exc:
        raise gone(state) from exc
    spec = state.spec.model_copy(update={"setup": (), "env": {**state.spec.env, **(env or {})}})
    fence = HeldFence(connection, place, state)
    async with Sandbox.from_fence(
        fence,
        spec,
        state.placement,
        sandbox_id=state.sandbox_id,
        chosen_because=state.chosen_because,
        peer="supervisor",
    ) as sandbox:
        yield sandbox


def gone(state: HolderState) -> SandboxDied:
    """That a held sandbox is no more, and why if that is known."""
    reason, detail = state.end or ("killed", f"sandbox {state.sandbox_id} is gone: its holder has died")
    return SandboxDied(detail, sandbox_id=state.sandbox_id, reason=cast("DeathReason", reason))


async def ask_to_end(place: HolderPlace) -> bool:
    """Ask a holder to end its sandbox; wait until it has done all that is to be done and is gone.

    Returns:
        Whether it is gone now.
    """
    is_asked = False
    with anyio.move_on_after(_END_S):
        while place.is_alive():
            if not is_asked:
                # One that is still coming up does not listen yet.
                with suppress(OSError), place.connect() as connection:
                    is_asked = True
                    await _say_end(connection)
            await anyio.sleep(_STEP_S)
        return True
    return not place.is_alive()


async def _say_end(connection: socket.socket) -> None:
    connection.send(frames.HEADER.pack(0, 0, END))
    while True:
        await anyio.wait_readable(connection)
        try:
            if not connection.recv(_CHUNK):
                return
        except BlockingIOError:
            continue
        except OSError:
            return


def attachable(place: HolderPlace) -> HolderState:
    """What the holder at a place says, if it lives.

    Raises:
        SandboxStartFailed: It is not ready yet.
        SandboxDied: It is dead.
    """
    state = read_state(place)
    if not place.is_alive():
        if state is None:
            raise SandboxStartFailed(f"sandbox {place.name!r} never came up; remove it and create it again")
        raise gone(state)
    if state is None:
        raise SandboxStartFailed(f"sandbox {place.name!r} is still being made; wait a moment")
    return state

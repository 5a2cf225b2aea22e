"""Taking a warm sandbox over: marked as somebody's once and for all, then spoken with as one's own."""

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from ringfence.errors import InfrastructureFault, RingfenceError, SandboxError
from ringfence.sandbox.base import Placement, Usage
from ringfence.sandbox.guest import frames
from ringfence.sandbox.registry import get_backend
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.supervisor.client import SupervisedFence
from ringfence.sandbox.supervisor.connection import ADOPT, USAGE, encode_frame
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState

_USE_S = 5.0
_LEAVE_S = 15.0
_STEP_S = 0.002
_REPLY_BYTES = 4096
_TAKEN = "taken"


class PooledFence(SupervisedFence):
    """A fence that a member of a pool holds; the adopter speaks with the guest itself."""

    def __init__(self, connection: socket.socket, place: SandboxDirectory, state: SupervisorState) -> None:
        super().__init__(connection, place, state)
        self._holder_pid = state.pid

    async def kill(self) -> None:
        """Let go of the connection and wait until everything inside is dead and its holder gone.

        Raises:
            InfrastructureFault: The holder does not go.
        """
        await super().kill()
        if await self._is_gone():
            return
        # Whatever holds it up: nothing survives the holder.
        with suppress(ProcessLookupError):
            os.kill(self._holder_pid, signal.SIGKILL)
        if not await self._is_gone():
            raise InfrastructureFault(
                f"sandbox {self._sandbox_id} does not end: its holder, process {self._holder_pid}, lives on"
            )
        await get_backend(self.facts.backend).remove_leftovers(frozenset({self._sandbox_id}))

    async def _is_gone(self) -> bool:
        with anyio.move_on_after(_LEAVE_S):
            while self._directory.is_alive():  # noqa: ASYNC110 -- another process's lock gives no event
                await anyio.sleep(_STEP_S)
            return True
        return False

    async def usage(self) -> Usage:
        """By the account of the fence, which the holder asks."""
        try:
            connection = self._directory.connect()
        except OSError:
            return Usage()
        with connection, suppress(OSError, ValueError), anyio.move_on_after(_USE_S):
            connection.send(encode_frame(USAGE))
            await anyio.wait_readable(connection)
            said = dict(frames.decode_record(connection.recv(_REPLY_BYTES)[frames.HEADER.size :]))
            return Usage(
                memory_bytes=_number(said.get("memory")),
                cpu_s=float(said["cpu_s"]) if "cpu_s" in said else None,
                pids=_number(said.get("pids")),
                oom_kills=_number(said.get("oom_kills")),
                forks_refused=_number(said.get("forks_refused")),
            )
        return Usage()


@asynccontextmanager
async def adopted(
    place: SandboxDirectory, state: SupervisorState, spec: SandboxSpec, placement: Placement
) -> AsyncIterator[Sandbox]:
    """A warm sandbox as the run's own; when the context is left, it is dead.

    Args:
        place: Where its holder is; taken by us.
        state: What that has written there.
        spec: The run's.
        placement: The run's.

    Raises:
        SandboxError: It is not to be had any more.
    """
    try:
        connection = place.connect()
        connection.send(encode_frame(ADOPT))
    except OSError as exc:
        raise SandboxError(f"nobody answers in {str(place.path)!r}: {exc.strerror}") from exc
    fence = PooledFence(connection, place, state)
    age_s = state.age_s
    why = f"{state.chosen_because}; warm from the pool, {age_s:.0f} s old"
    async with Sandbox.from_fence(
        fence,
        spec.model_copy(update={"setup": ()}),
        placement,
        sandbox_id=state.sandbox_id,
        chosen_because=why,
        peer="running guest",
    ) as sandbox:
        yield sandbox


def adoptable(place: SandboxDirectory) -> SupervisorState | None:
    """What a sandbox says that is ready and now ours alone; None if it is not to be had."""
    state = state_at(place) if place.is_alive() else None
    return state if state is not None and state.end is None and take(place) else None


def take(place: SandboxDirectory) -> bool:
    """Mark a sandbox as somebody's; of several who try, one succeeds, ever."""
    try:
        os.close(os.open(place.path / _TAKEN, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def is_taken(place: SandboxDirectory) -> bool:
    """Whether it is somebody's."""
    return (place.path / _TAKEN).exists()


def state_at(place: SandboxDirectory) -> SupervisorState | None:
    """What a holder says; None if it has not come so far, or is of another version."""
    try:
        return place.read_state()
    except RingfenceError:
        return None  # of another version: it lapses by itself


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)

"""Client of a supervisor: attach to its sandbox, end it, change its network access, forward a port.

The socket is a fence whose guest the supervisor has started, so that an attached sandbox is a `Sandbox` like any other.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
from anyio.abc import ByteStream

from ringfence.descriptor_stream import DescriptorStream
from ringfence.errors import (
    DeathReason,
    ExitCode,
    InfrastructureFault,
    PolicyRefused,
    SandboxDied,
    SandboxStartFailed,
    UsageError,
)
from ringfence.sandbox.base import EndReason, Fence, Placement
from ringfence.sandbox.guest import frames
from ringfence.sandbox.registry import get_backend
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.connection import (
    CHANGE_EGRESS,
    END,
    FORWARD_PORT,
    LOST,
    RESPONSE,
    read_frames,
)
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState

_END_S = 60.0
_RESPONSE_S = 60.0
_STEP_S = 0.01
_EXIT_S = 15.0
_EXIT_STEP_S = 0.002


class SupervisedFence(Fence):
    """A fence that a supervisor holds. Killing it only closes the connection."""

    def __init__(self, stream: ByteStream, directory: SandboxDirectory, state: SupervisorState) -> None:
        self.facts = state.facts
        self.stream = stream
        self.directory = directory
        self.state = state

    async def wait(self) -> EndReason:
        """Return why the sandbox is gone: a supervisor stores the reason before it closes the connection."""
        state = self.directory.read_state()
        if state is not None and state.end is not None:
            return EndReason(cast("DeathReason", state.end[0]), state.end[1])
        return EndReason("killed", "its supervisor has ended it, or is gone")

    async def kill(self) -> str | None:
        """Close the connection; the supervisor then kills the commands that were started over it."""
        await self.stream.aclose()
        return None


@asynccontextmanager
async def attach(
    directory: SandboxDirectory, *, env: Mapping[str, str] | None = None
) -> AsyncIterator[Sandbox]:
    """Attach to a supervised sandbox; leaving the context kills the commands that were started through it.

    Args:
        directory: The sandbox's directory.
        env: Further variables of every command.

    Raises:
        SandboxDied: The sandbox is gone.
        SandboxStartFailed: It is not ready, or the supervisor accepts no more clients.
    """
    state, stream = await _connect(directory)
    source = None if state.source is None else Path(state.source)
    # Only a backend, which the supervisor holds, uses the ids: here they are the caller's.
    placement = Placement(os.geteuid(), os.getegid(), Path(state.directory_inside), source)
    spec = state.spec.model_copy(update={"env": {**state.spec.env, **(env or {})}})
    sandbox = Sandbox(
        SupervisedFence(stream, directory, state),
        spec,
        placement,
        sandbox_id=state.sandbox_id,
        chosen_because=state.chosen_because,
        peer="supervisor",
    )
    async with sandbox.running():
        yield sandbox


async def _connect(directory: SandboxDirectory) -> tuple[SupervisorState, DescriptorStream]:
    state = read_living_state(directory)
    try:
        return state, await directory.connect()
    except OSError as exc:
        raise death_of(state) from exc


def read_living_state(directory: SandboxDirectory) -> SupervisorState:
    """Return the state of a sandbox whose supervisor lives.

    Raises:
        SandboxStartFailed: It is not ready yet.
        SandboxDied: It is gone.
    """
    state = directory.read_state()
    if not directory.is_alive():
        if state is None:
            raise SandboxStartFailed(
                f"sandbox {directory.name!r} never came up; remove it and create it again"
            )
        raise death_of(state)
    if state is None:
        raise SandboxStartFailed(f"sandbox {directory.name!r} is still being made; wait a moment")
    return state


def death_of(state: SupervisorState) -> SandboxDied:
    """The error for a sandbox that is gone, with the reason if that is known."""
    reason, detail = state.end or (
        "killed",
        f"sandbox {state.sandbox_id} is gone: its supervisor has died",
    )
    return SandboxDied(detail, sandbox_id=state.sandbox_id, reason=cast("DeathReason", reason))


async def end_sandbox(directory: SandboxDirectory) -> bool:
    """Request a supervisor to end its sandbox, and wait until it has delivered the work and exited.

    Returns:
        Whether the supervisor has exited.
    """
    has_asked = False
    with anyio.move_on_after(_END_S):
        while directory.is_alive():
            if not has_asked:
                with suppress(OSError, *LOST):  # a supervisor that is still coming up does not listen yet
                    stream = await directory.connect()
                    has_asked = True
                    async with stream:
                        await stream.send(frames.encode_frame(END))
                        while True:
                            await stream.receive()
            await anyio.sleep(_STEP_S)
        return True
    return not directory.is_alive()


async def ensure_exit(directory: SandboxDirectory, state: SupervisorState) -> None:
    """Wait until a supervisor has exited, which ends its sandbox once nobody is connected; kill one that does not.

    Raises:
        InfrastructureFault: It cannot be killed.
    """
    if await _has_exited(directory):
        return
    with suppress(ProcessLookupError):
        os.kill(state.pid, signal.SIGKILL)  # no process inside survives the supervisor
    if not await _has_exited(directory):
        raise InfrastructureFault(
            f"sandbox {state.sandbox_id} does not end: its supervisor, process {state.pid}, lives on"
        )
    await get_backend(state.facts.backend).remove_leftovers(frozenset({state.sandbox_id}))


async def _has_exited(directory: SandboxDirectory) -> bool:
    with anyio.move_on_after(_EXIT_S):
        while directory.is_alive():  # noqa: ASYNC110 -- another process's lock gives no event
            await anyio.sleep(_EXIT_STEP_S)
        return True
    return False


async def change_egress(directory: SandboxDirectory, *, action: str, rule: str) -> None:
    """Change which hosts can be reached from inside.

    Raises:
        UsageError, PolicyRefused: The supervisor refuses it.
        SandboxDied: The sandbox is gone.
    """
    async with _request(directory, CHANGE_EGRESS, [("action", action), ("rule", rule)]):
        pass


@asynccontextmanager
async def forward_port(
    directory: SandboxDirectory, port: int, *, host_port: int
) -> AsyncIterator[tuple[int, Callable[[], Awaitable[None]]]]:
    """Forward a port inside to the host's loopback until the context is left.

    Args:
        directory: The sandbox's directory.
        port: The port inside.
        host_port: The port on the host; 0 picks a free one.

    Yields:
        The port on the host, and a function that waits until the sandbox is gone and raises `SandboxDied`.

    Raises:
        UsageError: The host's port is taken.
        SandboxDied: The sandbox is gone.
    """
    request = _request(directory, FORWARD_PORT, [("port", port), ("host_port", host_port)])
    async with request as (fields, wait_for_death):
        yield int(fields.get("host_port", "0")), wait_for_death


@asynccontextmanager
async def _request(
    directory: SandboxDirectory, kind: int, fields: Iterable[tuple[str, object]]
) -> AsyncIterator[tuple[dict[str, str], Callable[[], Awaitable[None]]]]:
    """Send a request; yield the supervisor's response and a function that waits for the death of the sandbox."""
    state, stream = await _connect(directory)
    async with stream:
        incoming = read_frames(stream)
        response: dict[str, str] | None = None
        with anyio.move_on_after(_RESPONSE_S), suppress(*LOST):
            await stream.send(frames.encode_frame(kind, 0, frames.encode_record(fields)))
            async for one, _channel, payload in incoming:
                if one == RESPONSE:
                    response = dict(frames.decode_record(payload))
                    break
        if response is None:
            raise death_of(state)
        _raise_error(response)

        async def wait_for_death() -> None:
            async for _frame in incoming:
                pass
            raise death_of(directory.read_state() or state)

        yield response, wait_for_death


def _raise_error(response: Mapping[str, str]) -> None:
    message = response.get("error")
    if message is None:
        return
    if response.get("exit_code") == str(int(ExitCode.REFUSED)):
        raise PolicyRefused(message, rule="egress-target")
    raise UsageError(message)

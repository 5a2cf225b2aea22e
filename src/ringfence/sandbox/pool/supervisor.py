"""Supervises a warm sandbox: greets the guest, waits for one run, then forwards bytes both ways.

The run that adopts the sandbox talks to the guest directly, and the supervisor does not read those bytes. It stays
because only it can query the usage of the fence. When it ends, or the run leaves, the sandbox ends.
"""

import json
import math
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import SocketStream, UNIXSocketStream

from ringfence.config.paths import state_dir
from ringfence.descriptor_stream import DescriptorStream, descriptor_stream
from ringfence.errors import RingfenceError
from ringfence.sandbox.base import Backend, EndReason, Fence, Launch, Volume
from ringfence.sandbox.guest import frames
from ringfence.sandbox.policy import Surroundings, check_spec
from ringfence.sandbox.pool.counts import count
from ringfence.sandbox.pool.volume import serve_volume
from ringfence.sandbox.protocol.loader import guest_arguments
from ringfence.sandbox.protocol.session import GuestSession
from ringfence.sandbox.registry import choose_backend
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.supervisor.connection import (
    ADOPT,
    END,
    LOST,
    RESPONSE,
    USAGE,
    VOLUME,
    may_connect,
    peer_uid,
)
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState
from ringfence.sandbox.supervisor.launcher import Order

_CHUNK = 256 * 1024
_REQUEST_S = 5.0
_END_REASON_S = 10.0
_KILL_S = 30.0


def main() -> None:
    """The supervisor process."""
    order = Order()
    pool = order.directory.path.parent
    try:
        anyio.run(_supervise, order.fields, order.directory)
    except RingfenceError as exc:
        count(pool, "failed", str(exc))
    except BaseExceptionGroup as group:
        count(pool, "failed", repr(group.exceptions[0]))
        raise
    finally:
        order.directory.remove()


async def _supervise(order: Mapping[str, Any], directory: SandboxDirectory) -> None:
    spec, placement, sandbox_id = order["spec"], order["placement"], order["sandbox_id"]
    check_spec(spec, Surroundings(Path.home().resolve(), state_dir().resolve()))
    backend, why = await choose_backend(spec)
    launch = Launch(sandbox_id, spec, placement, guest_arguments())
    volume = None if placement.upload == "none" else await backend.make_volume(launch)
    try:
        await _serve(backend, replace(launch, volume=volume), why, directory, order["max_age_s"])
    finally:
        if volume is not None:
            with anyio.move_on_after(_KILL_S, shield=True):
                await volume.remove()


async def _serve(
    backend: Backend, launch: Launch, why: str, directory: SandboxDirectory, max_age_s: float
) -> None:
    """Start the sandbox, and serve it until the run that has taken it leaves, or it reaches its age limit."""
    sandbox_id, spec, placement = launch.sandbox_id, launch.spec, launch.placement
    fence = await backend.start(launch)
    try:
        hello = await _greet(fence, spec, sandbox_id)
        state = SupervisorState(
            sandbox_id=sandbox_id,
            pid=os.getpid(),
            spec=spec,
            facts=fence.facts,
            chosen_because=why,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            started_s=time.monotonic(),
            directory_inside=str(placement.workspace or fence.facts.home),
            workspace=None if placement.workspace is None else str(placement.workspace),
        )
        await _WarmSandbox(directory, state, fence, hello, launch.volume).serve(max_age_s)
    finally:
        with anyio.move_on_after(_KILL_S, shield=True):
            await fence.kill()


async def _greet(fence: Fence, spec: SandboxSpec, sandbox_id: str) -> bytes:
    """Send the guest its modules; return its first frame, for the run. Nothing else is sent to it."""
    session = GuestSession(fence, spec, sandbox_id=sandbox_id, directory="/")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.serve)
        await session.greet()
        tasks.cancel_scope.cancel()
    return frames.encode_frame(frames.HELLO, 0, frames.encode_record(session.link.hello.items()))


class _WarmSandbox:
    """A sandbox that waits for a run, and then belongs to it."""

    def __init__(
        self,
        directory: SandboxDirectory,
        state: SupervisorState,
        fence: Fence,
        hello: bytes,
        volume: Volume | None,
    ) -> None:
        self._directory = directory
        self._state = state
        self._fence = fence
        self._hello = hello
        self._volume = volume
        self._run: DescriptorStream | None = None
        self._adopted = anyio.Event()
        self._waiting = anyio.CancelScope()
        self._serving = anyio.CancelScope()
        self._is_volume_used = False
        self._dead = anyio.Event()
        self._left: str | None = None

    async def serve(self, max_age_s: float) -> None:
        """Wait for a run, and serve it until either side ends; give up after `max_age_s` without a run.

        A run that uses the volume is served until it leaves that, too, as it downloads the workspace afterwards.
        """
        listener = await self._directory.listen()
        self._directory.write_state(self._state)  # from now on a run may adopt it
        with self._serving:
            async with listener, anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, self._respond)
                tasks.start_soon(self._follow_signals)
                self._waiting.deadline = anyio.current_time() + max_age_s
                with self._waiting:
                    await self._wait_for_run()
                if self._run is not None:
                    async with self._run:
                        await self._pass_bytes(self._run)
                if self._is_volume_used:
                    self._left = await self._fence.kill()
                    self._dead.set()
                    await anyio.sleep_forever()
                self._serving.cancel()

    async def _wait_for_run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_guest)
            if self._volume is not None:
                tasks.start_soon(self._volume.keep_alive)
            await self._adopted.wait()
            tasks.cancel_scope.cancel()

    async def _watch_guest(self) -> None:
        """End if the guest sends anything, or exits, before it was sent anything: it is of no use then."""
        with suppress(*LOST):
            await self._fence.stream.receive()
        self._serving.cancel()

    async def _follow_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
            async for _number in numbers:
                self._serving.cancel()

    # --- requests

    async def _respond(self, client: SocketStream) -> None:
        async with client:
            with suppress(*LOST):
                kind = await _receive_request(client)
                if kind == ADOPT and not self._adopted.is_set():
                    self._adopted.set()
                    self._run = descriptor_stream(client)
                elif kind == USAGE:
                    usage = json.dumps(asdict(await self._fence.usage()))
                    await client.send(frames.encode_frame(RESPONSE, 0, usage.encode()))
                elif kind == VOLUME and self._volume is not None and not self._is_volume_used:
                    await self._lend(self._volume, cast("UNIXSocketStream", client))
                elif kind == END:
                    self._serving.cancel()

    async def _lend(self, volume: Volume, run: UNIXSocketStream) -> None:
        """Let a run fill and read the volume; the sandbox ends when it leaves."""
        self._is_volume_used = True
        self._waiting.deadline = math.inf
        try:
            await serve_volume(run, volume, self._end_of_sandbox)
        finally:
            self._serving.cancel()

    async def _end_of_sandbox(self) -> str | None:
        await self._dead.wait()
        return self._left

    # --- the run that has adopted the sandbox

    async def _pass_bytes(self, run: DescriptorStream) -> None:
        """Greet the run in the guest's name, then forward bytes both ways until either end is gone."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_to_guest, run, tasks.cancel_scope)
            with suppress(*LOST):
                await run.send(self._hello)
                while data := await self._receive():
                    await run.send(data)
                await self._note_end()
            tasks.cancel_scope.cancel()

    async def _pass_to_guest(self, run: DescriptorStream, passing: anyio.CancelScope) -> None:
        """Forward bytes from the run to the guest, and end the forwarding when the run leaves."""
        with suppress(*LOST):
            while True:
                data = await run.receive(_CHUNK)
                try:
                    await self._fence.stream.send(data)
                except LOST:
                    return  # the guest is gone, and the other direction notices it, too
        passing.cancel()

    async def _receive(self) -> bytes:
        """Return the guest's next bytes; empty if it has ended, in whatever way."""
        with suppress(*LOST):
            return await self._fence.stream.receive(_CHUNK)
        return b""

    async def _note_end(self) -> None:
        """Store why the guest is gone, before the run can read the reason."""
        end = EndReason("protocol", "the guest closed the stream and did not go")
        with anyio.move_on_after(_END_REASON_S):
            end = await self._fence.wait()
        detail = f"sandbox {self._state.sandbox_id} is gone: {end}"
        self._directory.note_end(self._state, end.reason, detail)


async def _receive_request(client: SocketStream) -> int | None:
    """The kind of the single empty frame that a client sends; None if none comes, or for another user's client."""
    if not may_connect(peer_uid(client)):
        return None
    data = b""
    with anyio.move_on_after(_REQUEST_S):
        while len(data) < frames.HEADER.size:
            data += await client.receive(frames.HEADER.size - len(data))
        length, _channel, kind = frames.HEADER.unpack(data)
        return int(kind) if length == 0 else None
    return None

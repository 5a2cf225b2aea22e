"""The holder of a sandbox started ahead: greets the guest, waits for one run, then passes bytes both ways.

Whoever adopts it speaks with the guest itself; the holder reads nothing of that. It stays as the one who can
ask the fence what it uses, and whose end, like the adopter's leaving, is the sandbox's.
"""

import os
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError
from ringfence.sandbox.base import EndReason, Fence, Launch
from ringfence.sandbox.guest import frames
from ringfence.sandbox.policy import Surroundings, check_spec
from ringfence.sandbox.pool.counts import count
from ringfence.sandbox.protocol.loader import guest_arguments
from ringfence.sandbox.protocol.session import GuestSession
from ringfence.sandbox.registry import choose_backend
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.supervisor.connection import ADOPT, END, USAGE, may_connect, peer_uid
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState
from ringfence.sandbox.supervisor.launcher import Order

_CHUNK = 256 * 1024
_ASK_S = 5.0
_DEATH_S = 10.0
_END_S = 30.0


def main() -> None:
    """The holder process."""
    order = Order()
    place = order.directory
    try:
        anyio.run(_keep, order.fields, place)
    except RingfenceError as exc:
        count(place.path.parent, "failed", str(exc))
    except BaseExceptionGroup as group:
        count(place.path.parent, "failed", repr(group.exceptions[0]))
        raise
    finally:
        place.remove()


async def _keep(order: Mapping[str, Any], place: SandboxDirectory) -> None:
    spec = order["spec"]
    placement = order["placement"]
    check_spec(spec, Surroundings(Path.home().resolve(), state_dir().resolve()))
    backend, why = await choose_backend(spec)
    sandbox_id = order["sandbox_id"]
    fence = await backend.start(Launch(sandbox_id, spec, placement, guest_arguments()))
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
        await _Member(place, state, fence, hello).live(order["max_age_s"])
    finally:
        with anyio.move_on_after(_END_S, shield=True):
            await fence.kill()


async def _greet(fence: Fence, spec: SandboxSpec, sandbox_id: str) -> bytes:
    """Send the guest its modules; returns its first frame, for the adopter. Nothing is asked of it after that."""
    session = GuestSession(fence, spec, sandbox_id=sandbox_id, directory="/")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.serve)
        await session.greet()
        tasks.cancel_scope.cancel()
    record = frames.encode_record(session.hello.items())
    return frames.HEADER.pack(len(record), 0, frames.HELLO) + record


class _Member:
    """A sandbox that waits for a run, and then belongs to it."""

    def __init__(self, place: SandboxDirectory, state: SupervisorState, fence: Fence, hello: bytes) -> None:
        self._place = place
        self._state = state
        self._fence = fence
        self._hello = hello
        self._adopter: socket.socket | None = None
        self._adopted = anyio.Event()
        self._over = anyio.Event()

    async def live(self, max_age_s: float) -> None:
        listening = self._place.listen()
        try:
            # From now on it may be adopted.
            self._place.write_state(self._state)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._accept, listening, tasks)
                tasks.start_soon(self._follow_signals)
                tasks.start_soon(self._wait_for_end, max_age_s)
                await self._over.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._place.remove_socket()
            listening.close()
            if self._adopter is not None:
                self._adopter.close()

    async def _wait_for_end(self, max_age_s: float) -> None:
        with anyio.move_on_after(max_age_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._notice_unasked, tasks.cancel_scope)
                await self._adopted.wait()
                tasks.cancel_scope.cancel()
        if self._adopter is not None:
            await self._pass_bytes(self._adopter)
        self._over.set()

    async def _notice_unasked(self, scope: anyio.CancelScope) -> None:
        """A guest that says anything before it is asked, its own end included, is of no use."""
        await anyio.wait_readable(self._fence.read_fd)
        scope.cancel()
        self._over.set()

    async def _follow_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as numbers:
            async for _number in numbers:
                self._over.set()

    # --- who comes

    async def _accept(self, listening: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            try:
                connection, _address = listening.accept()
            except BlockingIOError:
                await anyio.wait_readable(listening)
                continue
            connection.setblocking(False)
            tasks.start_soon(self._answer, connection)

    async def _answer(self, connection: socket.socket) -> None:
        kind = None
        with anyio.move_on_after(_ASK_S):
            if may_connect(peer_uid(connection)):
                kind = await _question(connection)
        if kind == ADOPT and self._adopter is None:
            self._adopter = connection
            connection.send(self._hello)
            self._adopted.set()
            return
        with connection:
            if kind == USAGE:
                await self._tell_use(connection)
            elif kind == END:
                self._over.set()

    async def _tell_use(self, connection: socket.socket) -> None:
        use = await self._fence.usage()
        told = {
            "memory_bytes": use.memory_bytes,
            "cpu_s": use.cpu_s,
            "pids": use.pids,
            "oom_kills": use.oom_kills,
            "forks_refused": use.forks_refused,
        }
        record = frames.encode_record((name, value) for name, value in told.items() if value is not None)
        with suppress(OSError):
            connection.send(frames.HEADER.pack(len(record), 0, frames.STATS_REPLY) + record)

    # --- its run

    async def _pass_bytes(self, adopter: socket.socket) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._inwards, adopter, tasks.cancel_scope)
            tasks.start_soon(self._outwards, adopter, tasks.cancel_scope)

    async def _inwards(self, adopter: socket.socket, scope: anyio.CancelScope) -> None:
        """From the run to the guest; when the run leaves, that is the end."""
        while data := await _receive(adopter):
            view = memoryview(self._fence.wrap(data))
            while view:
                try:
                    view = view[os.write(self._fence.write_fd, view) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._fence.write_fd)
                except OSError:  # the guest is gone, and the other direction sees it too
                    return
        scope.cancel()

    async def _outwards(self, adopter: socket.socket, scope: anyio.CancelScope) -> None:
        """From the guest to the run, as fast as that reads; when the guest leaves, why is written down first."""
        while data := await self._read():
            view = memoryview(self._fence.unwrap(data))
            while view:
                try:
                    view = view[adopter.send(view) :]
                except BlockingIOError:
                    await anyio.wait_writable(adopter)
                except OSError:
                    scope.cancel()
                    return
        death = EndReason("protocol", "the guest closed the stream and did not go")
        with anyio.move_on_after(_DEATH_S):
            death = await self._fence.wait()
        detail = f"sandbox {self._state.sandbox_id} is gone: {death.detail}"
        self._place.note_end(self._state, death.reason, detail)
        scope.cancel()

    async def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._fence.read_fd, _CHUNK)
            except BlockingIOError:
                await anyio.wait_readable(self._fence.read_fd)
            except OSError:
                return b""


async def _question(connection: socket.socket) -> int | None:
    """The kind of the one frame, without a payload, that says what a client wants."""
    data = b""
    while len(data) < frames.HEADER.size:
        piece = await _receive(connection, frames.HEADER.size - len(data))
        if not piece:
            return None
        data += piece
    length, _channel, kind = frames.HEADER.unpack(data)
    return int(kind) if length == 0 else None


async def _receive(connection: socket.socket, count: int = _CHUNK) -> bytes:
    while True:
        try:
            return connection.recv(count)
        except BlockingIOError:
            await anyio.wait_readable(connection)
        except OSError:
            return b""

"""Serves one guest to many clients: each speaks the guest's frames, and its channels get numbers of their own."""

import time
from collections.abc import Awaitable, Callable

import anyio

from ringfence.errors import SandboxDied, UsageError
from ringfence.events import Event
from ringfence.sandbox.guest import frames
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.asking import ChangeEgress, answer
from ringfence.sandbox.supervisor.peer import CHANGE, END, PUBLISH, Peer, PeerError
from ringfence.sandbox.supervisor.relayed import RelayedCommand

_MAX_PEERS = 64
_EAGAIN = 11


class Relay:
    """What is common to all clients of one held sandbox.

    Args:
        sandbox: The sandbox that is held.
        record: Is given an event before a client is told of what it says.
        change: Changes what may be reached from inside; None if that cannot be changed.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        record: Callable[[Event], Awaitable[None]],
        *,
        change: ChangeEgress | None = None,
    ) -> None:
        self.sandbox_id = sandbox.id
        self.session = sandbox.session
        self.refusals = sandbox.refusals
        self.record = record
        self.end_asked = anyio.Event()
        self.quiet_since = time.monotonic()
        """When the last client left; counts while there is none."""
        self._sandbox = sandbox
        self._change = change
        self._peers: dict[Peer, dict[int, RelayedCommand]] = {}
        self._less = anyio.Event()

    @property
    def is_quiet(self) -> bool:
        """Whether nobody is attached."""
        return not self._peers

    def forget(self, peer: Peer, number: int) -> None:
        """A command is over."""
        self._peers.get(peer, {}).pop(number, None)
        self._less.set()
        self._less = anyio.Event()

    async def wind_down(self, *, timeout_s: float) -> None:
        """Kill what runs, and wait until its end is recorded."""
        for commands in self._peers.values():
            for command in commands.values():
                command.kill()
        with anyio.move_on_after(timeout_s):
            while any(self._peers.values()):
                await self._less.wait()

    def tell_death(self, reason: str) -> None:
        """Send every client the last frame of all."""
        for peer in self._peers:
            peer.send(frames.BYE, 0, frames.encode_record([("reason", reason)]))

    async def serve(self, peer: Peer) -> None:
        """Serve a client until it goes; what it left running is killed."""
        if not peer.is_allowed() or len(self._peers) >= _MAX_PEERS:
            peer.close()
            return
        self._peers[peer] = {}
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.write_forever)
                peer.send(frames.HELLO, 0, frames.encode_record(self.session.hello.items()))
                async with anyio.create_task_group() as asks:
                    await self._listen(peer, tasks, asks)
                    asks.cancel_scope.cancel()
                peer.cut_off()
                # What it left is killed; the end of each command is recorded before the client is forgotten.
                for command in list(self._peers[peer].values()):
                    command.kill()
        finally:
            del self._peers[peer]
            self.quiet_since = time.monotonic()
            peer.close()

    async def _listen(self, peer: Peer, tasks: anyio.abc.TaskGroup, asks: anyio.abc.TaskGroup) -> None:
        try:
            async for kind, channel, payload in peer.frames():
                if channel == 0 and kind in (CHANGE, PUBLISH):
                    asks.start_soon(self._answer, peer, kind, payload)
                elif channel == 0:
                    self._on_control(peer, kind, tasks)
                elif kind == frames.OPEN:
                    self._open(peer, channel, payload, tasks)
                elif kind in (frames.LISTEN, frames.CONNECT):
                    self._refuse(peer, channel, "a standing sandbox carries no connections to the host")
                elif channel in self._peers[peer]:
                    self._peers[peer][channel].on_frame(kind, payload)
                # Else it is over: the client's last frames crossed its end on the way.
        except (PeerError, ValueError):
            return  # it is cut off; a mended client attaches anew
        except SandboxDied:
            return

    def _on_control(self, peer: Peer, kind: int, tasks: anyio.abc.TaskGroup) -> None:
        if kind == frames.PING:
            tasks.start_soon(self._ping, peer)
        elif kind == frames.STATS:
            tasks.start_soon(self._measure, peer)
        elif kind == END:
            self.end_asked.set()
        elif kind != frames.CONFIG:  # the holder itself has set the limits
            raise PeerError(f"sent frame kind {kind} on channel 0")

    async def _answer(self, peer: Peer, kind: int, payload: bytes) -> None:
        await answer(peer, kind, payload, sandbox=self._sandbox, record=self.record, change=self._change)

    async def _ping(self, peer: Peer) -> None:
        try:
            await self._sandbox.ping()
        except SandboxDied:
            return
        peer.send(frames.PONG, 0)

    async def _measure(self, peer: Peer) -> None:
        try:
            use = await self._sandbox.stats()
        except SandboxDied:
            return
        told = {"memory": use.memory_bytes or 0, "cpu_s": use.cpu_s or 0.0, "pids": use.pids or 0}
        peer.send(frames.STATS_REPLY, 0, frames.encode_record(told.items()))

    def _refuse(self, peer: Peer, number: int, why: str) -> None:
        fields = [("errno", _EAGAIN), ("message", why)]
        peer.send(frames.FAIL, number, frames.encode_record(fields))

    def _open(self, peer: Peer, number: int, payload: bytes, tasks: anyio.abc.TaskGroup) -> None:
        commands = self._peers[peer]
        if number in commands:
            raise PeerError("opened a channel twice")
        try:
            command = RelayedCommand(self, peer, number, frames.decode_record(payload))
        except UsageError as exc:
            self._refuse(peer, number, str(exc))
            return
        commands[number] = command
        tasks.start_soon(command.see_through)

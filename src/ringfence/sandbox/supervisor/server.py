"""Serves one sandbox to many clients on a socket, until it is removed, idle for too long, or dead.

Each client speaks the guest's own frames; its channels get numbers of their own on the guest's stream. Beside commands,
a client can ask for the end of the sandbox, for a change of what may be reached from inside, and for a forwarded port.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, cast

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup

from ringfence.config.units import format_duration
from ringfence.egress.publishing import published
from ringfence.errors import RingfenceError, SandboxDied, UsageError
from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.stream import descriptor_stream
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.connection import (
    CHANGE_EGRESS,
    END,
    FORWARD_PORT,
    RESPONSE,
    ClientError,
    FrameConnection,
    may_connect,
    peer_uid,
    read_frames,
)
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState
from ringfence.sandbox.supervisor.relay import CommandRelay

Record = Callable[[Event], Awaitable[None]]
ChangeEgress = Callable[[str, str, str], Awaitable[None]]
"""Takes `allow` or `deny`, the rule, and the client's user."""

_MAX_CLIENTS = 64
_EAGAIN = 11
_HIGHEST_PORT = 65_535
_ACCEPT_AGAIN_S = 0.1
_WIND_DOWN_S = 5.0


@frozen
class ServiceEnd:
    """Why a sandbox that lives is served no longer."""

    reason: Literal["removed", "idle"]
    detail: str


async def serve_sandbox(
    sandbox: Sandbox,
    directory: SandboxDirectory,
    state: SupervisorState,
    *,
    idle_s: float | None,
    record: Record,
    on_ready: Callable[[], Awaitable[None]],
    change_egress: ChangeEgress | None = None,
) -> ServiceEnd:
    """Serve a sandbox on the socket of its directory until it shall end.

    Args:
        sandbox: Open; the caller closes it afterwards.
        directory: Locked by this process.
        state: Written before any client can attach, and again when the sandbox has died.
        idle_s: How long it is served while no client is attached; None is no limit.
        record: Is given an event before a client is sent what it says.
        on_ready: Called once when clients can attach.
        change_egress: Changes what may be reached from inside; None if that cannot be changed.

    Raises:
        SandboxDied: The guest is gone.
        InfrastructureFault: The state directory cannot be written.
    """
    server = SandboxServer(sandbox, record, change_egress)
    directory.write_state(state)
    listener = await directory.listen()
    try:
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(server.accept_forever, listener, tasks)
            tasks.start_soon(server.watch_sandbox)
            if idle_s is not None:
                tasks.start_soon(server.watch_idleness, idle_s)
            await on_ready()
            end = await server.wait_for_end()
            directory.remove_socket()
            if isinstance(end, SandboxDied):
                directory.note_end(state, end.reason, str(end))
                await server.broadcast_death(end.reason)
            else:
                await server.wind_down()
            tasks.cancel_scope.cancel()
    finally:
        directory.remove_socket()
    if isinstance(end, SandboxDied):
        raise end
    return end


class SandboxServer:
    """What is common to all clients of one sandbox."""

    def __init__(self, sandbox: Sandbox, record: Record, change_egress: ChangeEgress | None) -> None:
        self.sandbox_id = sandbox.id
        self.session = sandbox.session
        self.refusals = sandbox.refusals
        self.record = record
        self._sandbox = sandbox
        self._change_egress = change_egress
        self._clients: dict[FrameConnection, dict[int, CommandRelay]] = {}
        self._idle_since = time.monotonic()
        """When the last client left; counts while there is none."""
        self._command_ended = anyio.Event()
        self._end: ServiceEnd | SandboxDied | None = None
        self._ended = anyio.Event()

    # --- what ends it, whichever comes first

    async def wait_for_end(self) -> ServiceEnd | SandboxDied:
        """Wait until the sandbox has died or shall end."""
        await self._ended.wait()
        assert self._end is not None
        return self._end

    def _finish(self, end: ServiceEnd | SandboxDied) -> None:
        self._end = self._end or end
        self._ended.set()

    async def watch_sandbox(self) -> None:
        """End the service when the sandbox dies."""
        self._finish(cast("SandboxDied", await self.session.link.death()))

    async def watch_idleness(self, limit_s: float) -> None:
        """End the service when no client was attached for `limit_s`."""
        while True:
            left_s = limit_s if self._clients else self._idle_since + limit_s - time.monotonic()
            if left_s <= 0:
                self._finish(ServiceEnd("idle", f"nobody was attached for {format_duration(limit_s)}"))
                return
            await anyio.sleep(left_s)

    async def broadcast_death(self, reason: str) -> None:
        """Send every client the last frame of all; those that do not read it are not waited for."""
        for client in self._clients:
            client.send(frames.BYE, 0, frames.encode_record([("reason", reason)]))
        await self._wait_until_sent()

    async def wind_down(self) -> None:
        """Kill all commands, and wait until the end of each is recorded."""
        for commands in self._clients.values():
            for command in commands.values():
                command.kill()
        with anyio.move_on_after(_WIND_DOWN_S):
            while any(self._clients.values()):
                await self._command_ended.wait()
        await self._wait_until_sent()

    async def _wait_until_sent(self) -> None:
        with anyio.move_on_after(_WIND_DOWN_S):
            for client in list(self._clients):
                await client.wait_until_sent()

    def forget(self, client: FrameConnection, number: int) -> None:
        """A command has ended."""
        self._clients.get(client, {}).pop(number, None)
        self._command_ended.set()
        self._command_ended = anyio.Event()

    # --- clients

    async def accept_forever(self, listener: SocketListener, tasks: TaskGroup) -> None:
        """Serve each client that connects."""
        while True:
            try:
                stream = await listener.accept()
            except OSError:  # out of descriptors for now; clients that wait are accepted later
                await anyio.sleep(_ACCEPT_AGAIN_S)
                continue
            tasks.start_soon(self._serve, stream)

    async def _serve(self, stream: SocketStream) -> None:
        """Serve a client until it goes; what it left running is killed."""
        uid = peer_uid(stream)
        if not may_connect(uid) or len(self._clients) >= _MAX_CLIENTS:
            await stream.aclose()
            return
        client = FrameConnection(descriptor_stream(stream), uid=uid)
        commands = self._clients[client] = {}
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.write_forever)
                client.send(frames.HELLO, 0, frames.encode_record(self.session.link.hello.items()))
                async with anyio.create_task_group() as requests:
                    await self._read_frames(client, tasks, requests)
                    requests.cancel_scope.cancel()
                client.disconnect()
                # The end of each command is recorded before the client is forgotten.
                for command in list(commands.values()):
                    command.kill()
        finally:
            del self._clients[client]
            self._idle_since = time.monotonic()
            with anyio.CancelScope(shield=True):
                await client.aclose()

    async def _read_frames(self, client: FrameConnection, tasks: TaskGroup, requests: TaskGroup) -> None:
        commands = self._clients[client]
        try:
            async for kind, channel, payload in read_frames(client.stream):
                if channel == 0 and kind in (CHANGE_EGRESS, FORWARD_PORT):
                    requests.start_soon(self._respond, client, kind, payload)
                elif channel == 0:
                    self._on_control(client, kind, tasks)
                elif kind == frames.OPEN:
                    self._open(client, channel, payload, tasks)
                elif kind in (frames.LISTEN, frames.CONNECT):
                    _refuse(client, channel, "a standing sandbox carries no connections to the host")
                elif channel in commands:
                    commands[channel].on_frame(kind, payload)
                # Else the command has ended: the client's last frames crossed its end on the way.
        except (ClientError, ValueError, SandboxDied):
            return  # the client is disconnected; one that is mended attaches anew

    def _on_control(self, client: FrameConnection, kind: int, tasks: TaskGroup) -> None:
        if kind == frames.PING:
            tasks.start_soon(self._ping, client)
        elif kind == frames.STATS:
            tasks.start_soon(self._measure, client)
        elif kind == END:
            self._finish(ServiceEnd("removed", "it was removed"))
        elif kind != frames.CONFIG:  # the supervisor itself has set the limits
            raise ClientError(f"sent frame kind {kind} on channel 0")

    async def _ping(self, client: FrameConnection) -> None:
        try:
            await self._sandbox.ping()
        except SandboxDied:
            return
        client.send(frames.PONG, 0)

    async def _measure(self, client: FrameConnection) -> None:
        try:
            use = await self._sandbox.stats()
        except SandboxDied:
            return
        fields = {"memory": use.memory_bytes or 0, "cpu_s": use.cpu_s or 0.0, "pids": use.pids or 0}
        client.send(frames.STATS_REPLY, 0, frames.encode_record(fields.items()))

    def _open(self, client: FrameConnection, number: int, payload: bytes, tasks: TaskGroup) -> None:
        commands = self._clients[client]
        if number in commands:
            raise ClientError("opened a channel twice")
        try:
            command = CommandRelay(self, client, number, frames.decode_record(payload))
        except UsageError as exc:
            _refuse(client, number, str(exc))
            return
        commands[number] = command
        tasks.start_soon(command.run)

    # --- requests

    async def _respond(self, client: FrameConnection, kind: int, payload: bytes) -> None:
        """Carry out a request, and send its result. A port is forwarded until this is cancelled."""

        def respond(fields: Iterable[tuple[str, Any]]) -> None:
            client.send(RESPONSE, 0, frames.encode_record(fields))

        try:
            fields = dict(frames.decode_record(payload))
            if kind == CHANGE_EGRESS:
                if self._change_egress is None:
                    raise UsageError("this sandbox has no gate that could be changed")
                with anyio.CancelScope(shield=True):
                    await self._change_egress(
                        fields.get("action", ""), fields.get("rule", ""), f"uid {client.uid}"
                    )
                respond([("done", "1")])
                return
            port, host_port = _port(fields, "port", least=1), _port(fields, "host_port", least=0)
            async with published(self._sandbox, port, self.record, host_port=host_port) as chosen:
                respond([("host_port", chosen)])
                await anyio.sleep_forever()
        except SandboxDied:
            return  # every client learns of it
        except RingfenceError as exc:
            respond([("error", str(exc)), ("exit_code", int(exc.exit_code))])


def _refuse(client: FrameConnection, number: int, why: str) -> None:
    fields = [("errno", _EAGAIN), ("message", why)]
    client.send(frames.FAIL, number, frames.encode_record(fields))


def _port(fields: Mapping[str, str], name: str, *, least: int) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and least <= int(text[:6]) <= _HIGHEST_PORT):
        raise UsageError(f"{text!r} is no port; a port is a number from {least} to {_HIGHEST_PORT}")
    return int(text)

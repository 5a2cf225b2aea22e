"""Serves one sandbox to many clients on a socket, until it is removed, idle for too long, or dead.

Each client speaks the guest's own frames; its channels get other numbers on the guest's stream. Besides commands, a
client can request the end of the sandbox, a change of the hosts that can be reached from inside, or a forwarded port.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal, cast

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup

from ringfence.config.units import format_duration
from ringfence.descriptor_stream import DescriptorStream, descriptor_stream
from ringfence.egress.publication import publish_port
from ringfence.errors import RingfenceError, SandboxDied, UsageError
from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.stream import SendQueue
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.supervisor.connection import (
    CHANGE_EGRESS,
    END,
    FORWARD_PORT,
    RESPONSE,
    ClientError,
    may_connect,
    peer_uid,
    read_frames,
)
from ringfence.sandbox.supervisor.directory import SandboxDirectory, SupervisorState
from ringfence.sandbox.supervisor.relay import CommandRelay

Record = Callable[[Event], Awaitable[None]]
ChangeEgress = Callable[[str, str, str], Awaitable[None]]
"""Called with `allow` or `deny`, the rule, and the client's user."""

_MAX_CLIENTS = 64
_EAGAIN = 11
_HIGHEST_PORT = 65_535
_ACCEPT_AGAIN_S = 0.1
_WIND_DOWN_S = 5.0
_LAST_FRAMES_S = 2.0
_QUEUE_LIMIT_BYTES = 64 * 1024**2
_REQUESTS = frozenset({frames.PING, frames.STATS, CHANGE_EGRESS, FORWARD_PORT})


@frozen
class ServiceEnd:
    """Why the service of a living sandbox ends."""

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
    """Serve a sandbox on the socket of its directory until a client removes it, it is idle too long, or it dies.

    Args:
        sandbox: The open sandbox; the caller closes it afterwards.
        directory: Its directory, locked by this process.
        state: Its state, written before any client can attach, and again when the sandbox has died.
        idle_s: How long it is served while no client is attached; None is no limit.
        record: Writes an event to the record; awaited before clients are notified of what it reports.
        on_ready: Called once when clients can attach.
        change_egress: Changes which hosts can be reached from inside; None if that cannot be changed.

    Raises:
        SandboxDied: The guest is gone.
        InfrastructureFault: The state directory cannot be written.
    """
    server = SandboxServer(sandbox, record, change_egress)
    directory.write_state(state)
    listener = await directory.listen()
    try:
        with anyio.CancelScope() as serving:
            async with anyio.create_task_group() as clients:
                async with listener, anyio.create_task_group() as watches:
                    watches.start_soon(server.accept_forever, listener, clients)
                    watches.start_soon(server.watch_sandbox)
                    if idle_s is not None:
                        watches.start_soon(server.watch_idleness, idle_s)
                    await on_ready()
                    end = await server.wait_for_end()
                    directory.remove_socket()
                    watches.cancel_scope.cancel()
                if isinstance(end, SandboxDied):
                    directory.note_end(state, end.reason, str(end))
                server.disconnect_clients(end)
                serving.deadline = anyio.current_time() + _WIND_DOWN_S
    finally:
        directory.remove_socket()
    if isinstance(end, SandboxDied):
        raise end
    return end


class SandboxServer:
    """Accepts the clients of one sandbox, and decides when its service ends."""

    def __init__(self, sandbox: Sandbox, record: Record, change_egress: ChangeEgress | None) -> None:
        self.sandbox = sandbox
        self.record = record
        self.change_egress = change_egress
        self._clients: set[AttachedClient] = set()
        self._idle_since = time.monotonic()
        """When the last client left; read only while none is attached."""
        self._end: ServiceEnd | SandboxDied | None = None
        self._ended = anyio.Event()

    # --- the end of the service, by the first cause

    async def wait_for_end(self) -> ServiceEnd | SandboxDied:
        """Wait until the sandbox has died or its service has ended."""
        await self._ended.wait()
        assert self._end is not None
        return self._end

    def finish(self, end: ServiceEnd | SandboxDied) -> None:
        """End the service."""
        self._end = self._end or end
        self._ended.set()

    async def watch_sandbox(self) -> None:
        """End the service when the sandbox dies."""
        self.finish(cast("SandboxDied", await self.sandbox.session.link.death()))

    async def watch_idleness(self, limit_s: float) -> None:
        """End the service when no client has been attached for `limit_s`."""
        while True:
            left_s = limit_s if self._clients else self._idle_since + limit_s - time.monotonic()
            if left_s <= 0:
                self.finish(ServiceEnd("idle", f"nobody was attached for {format_duration(limit_s)}"))
                return
            await anyio.sleep(left_s)

    def disconnect_clients(self, end: ServiceEnd | SandboxDied) -> None:
        """Disconnect all clients; if the sandbox has died, the last frame of each says why."""
        for client in self._clients:
            if isinstance(end, SandboxDied):
                client.send(frames.BYE, 0, frames.encode_record([("reason", end.reason)]))
            client.disconnect()

    # --- clients

    async def accept_forever(self, listener: SocketListener, clients: TaskGroup) -> None:
        """Serve each client that connects."""
        while True:
            try:
                stream = await listener.accept()
            except OSError:  # out of descriptors for now; waiting clients are accepted later
                await anyio.sleep(_ACCEPT_AGAIN_S)
                continue
            clients.start_soon(self._serve, stream)

    async def _serve(self, stream: SocketStream) -> None:
        uid = peer_uid(stream)
        if not may_connect(uid) or len(self._clients) >= _MAX_CLIENTS:
            await stream.aclose()
            return
        client = AttachedClient(self, descriptor_stream(stream), uid)
        self._clients.add(client)
        try:
            await client.serve()
        finally:
            self._clients.remove(client)
            self._idle_since = time.monotonic()


class AttachedClient:
    """A client: its connection, and the commands that it runs.

    The queue of unread frames is bounded; a client that does not read them is disconnected.

    Args:
        server: The server of the sandbox.
        stream: The connection; `serve` closes it.
        uid: The user of the process at the other end.
    """

    def __init__(self, server: SandboxServer, stream: DescriptorStream, uid: int) -> None:
        self.commands: dict[int, CommandRelay] = {}
        self._server = server
        self._stream = stream
        self._uid = uid
        self._outgoing = SendQueue(stream)
        self._is_cut_off = False
        self._reading = anyio.CancelScope()

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame for the client."""
        if self._is_cut_off:
            return
        self._outgoing.append(frames.encode_frame(kind, channel, payload))
        if self._outgoing.size > _QUEUE_LIMIT_BYTES:
            self._is_cut_off = True
            self._outgoing.clear()
            self.disconnect()

    def disconnect(self) -> None:
        """Stop reading from the client, and make `serve` kill its commands and close the connection."""
        self._reading.cancel()

    async def serve(self) -> None:
        """Serve the client until it disconnects or breaks the protocol.

        Its running commands are then killed; the end of each is recorded, and sent to a client that still reads.
        """
        async with self._stream, anyio.create_task_group() as sending:
            sending.start_soon(self._outgoing.run)
            self.send(frames.HELLO, 0, frames.encode_record(self._server.sandbox.session.link.hello.items()))
            async with anyio.create_task_group() as commands:
                async with anyio.create_task_group() as requests:
                    with self._reading:
                        await self._read(commands, requests)
                    requests.cancel_scope.cancel()
                for command in self.commands.values():
                    command.kill()
            with anyio.move_on_after(_LAST_FRAMES_S):
                await self._outgoing.wait_until_sent()
            sending.cancel_scope.cancel()

    async def _read(self, commands: TaskGroup, requests: TaskGroup) -> None:
        try:
            async for kind, channel, payload in read_frames(self._stream):
                self._on_frame(kind, channel, payload, commands, requests)
        except (ClientError, ValueError):
            return  # disconnects the client, which may attach again
        except SandboxDied:
            await anyio.sleep_forever()  # the server disconnects all clients once it has stored the reason

    def _on_frame(
        self, kind: int, channel: int, payload: bytes, commands: TaskGroup, requests: TaskGroup
    ) -> None:
        if channel == 0 and kind in _REQUESTS:
            requests.start_soon(self._handle_request, kind, dict(frames.decode_record(payload)))
        elif channel == 0 and kind == END:
            self._server.finish(ServiceEnd("removed", "it was removed"))
        elif channel == 0 and kind != frames.CONFIG:  # the supervisor itself has set the limits
            raise ClientError(f"sent frame kind {kind} on channel 0")
        elif kind == frames.OPEN:
            self._open(channel, payload, commands)
        elif kind in (frames.LISTEN, frames.CONNECT):
            self._refuse(channel, "a standing sandbox carries no connections to the host")
        elif channel in self.commands:
            self.commands[channel].on_frame(kind, payload)
        # Otherwise the command has ended, and the client sent these frames before it read the last frame.

    def _open(self, number: int, payload: bytes, commands: TaskGroup) -> None:
        if number in self.commands:
            raise ClientError("opened a channel twice")
        try:
            command = CommandRelay(self._server, self, number, frames.decode_record(payload))
        except UsageError as exc:
            self._refuse(number, str(exc))
            return
        self.commands[number] = command
        commands.start_soon(command.run)

    def _refuse(self, number: int, why: str) -> None:
        self.send(frames.FAIL, number, frames.encode_record([("errno", _EAGAIN), ("message", why)]))

    # --- requests

    async def _handle_request(self, kind: int, fields: Mapping[str, str]) -> None:
        """Carry out a request, and send its result. A port is forwarded until this is cancelled."""
        sandbox = self._server.sandbox
        try:
            if kind == frames.PING:
                await sandbox.ping()
                self.send(frames.PONG, 0)
            elif kind == frames.STATS:
                use = await sandbox.stats()
                numbers = {"memory": use.memory_bytes or 0, "cpu_s": use.cpu_s or 0.0, "pids": use.pids or 0}
                self.send(frames.STATS_REPLY, 0, frames.encode_record(numbers.items()))
            elif kind == CHANGE_EGRESS:
                await self._change_egress(fields)
                self._respond([("done", "1")])
            else:
                port, host_port = _port(fields, "port", minimum=1), _port(fields, "host_port", minimum=0)
                async with publish_port(sandbox, port, self._server.record, host_port=host_port) as chosen:
                    self._respond([("host_port", chosen)])
                    await anyio.sleep_forever()
        except SandboxDied:
            return  # every client is notified of it
        except RingfenceError as exc:
            self._respond([("error", str(exc)), ("exit_code", int(exc.exit_code))])

    def _respond(self, fields: Iterable[tuple[str, object]]) -> None:
        self.send(RESPONSE, 0, frames.encode_record(fields))

    async def _change_egress(self, fields: Mapping[str, str]) -> None:
        if self._server.change_egress is None:
            raise UsageError("this sandbox has no gate that could be changed")
        with anyio.CancelScope(shield=True):
            await self._server.change_egress(
                fields.get("action", ""), fields.get("rule", ""), f"uid {self._uid}"
            )


def _port(fields: Mapping[str, str], name: str, *, minimum: int) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and minimum <= int(text[:6]) <= _HIGHEST_PORT):
        raise UsageError(f"{text!r} is no port; a port is a number from {minimum} to {_HIGHEST_PORT}")
    return int(text)

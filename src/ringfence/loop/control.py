"""Connects `loop cancel` and `loop logs --follow` to the process that works on a loop, over a Unix socket.

The worker sends a byte to each client whenever an event was added, and closes the connection when it ends; clients read
the events from the loop's database. A client sends `cancel` to stop the worker. Whether a process works on the loop is
decided by the loop's lock alone: a socket file can outlive a process that was killed.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import SocketStream, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ringfence.filesystem import short_path
from ringfence.loop.directory import LoopDirectory

_SOCKET = "worker.sock"
_CANCEL = b"cancel"
_START_S = 5.0
"""Time limit for a process that holds the loop's lock to start listening."""
_RETRY_S = 0.1


class ControlServer:
    """Serves the socket of a loop.

    Args:
        directory: The loop's directories.
        cancel: Called when a client requests the loop's cancellation.
    """

    def __init__(self, directory: LoopDirectory, *, cancel: Callable[[], None]) -> None:
        self._directory = directory
        self._cancel = cancel
        self._clients: set[MemoryObjectSendStream[None]] = set()

    def notify(self) -> None:
        """Notify each client that an event was added. A slow client receives one byte for several events."""
        for client in self._clients:
            with suppress(anyio.WouldBlock):
                client.send_nowait(None)

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        """Serve until cancelled.

        Raises:
            OSError: The socket cannot be created.
        """
        with short_path(_socket_of(self._directory)) as path:
            listener = await anyio.create_unix_listener(path, mode=0o600)
        async with listener:
            task_status.started()
            await listener.serve(self._serve_client)

    async def _serve_client(self, stream: SocketStream) -> None:
        sender, receiver = anyio.create_memory_object_stream[None](1)
        self._clients.add(sender)
        try:
            async with stream, receiver, anyio.create_task_group() as tasks:
                tasks.start_soon(_forward, receiver, stream)
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        if await stream.receive(len(_CANCEL)) == _CANCEL:
                            self._cancel()
                tasks.cancel_scope.cancel()
        finally:
            self._clients.discard(sender)
            sender.close()


async def _forward(receiver: MemoryObjectReceiveStream[None], stream: SocketStream) -> None:
    with suppress(anyio.BrokenResourceError):
        async for _ in receiver:
            await stream.send(b"\n")


async def send_cancel(directory: LoopDirectory) -> bool:
    """Request the process that works on a loop to stop. Return False if no process does."""
    with anyio.move_on_after(_START_S):
        while directory.is_worked_on:
            stream = await _connect(directory)
            if stream is not None:
                async with stream:
                    await stream.send(_CANCEL)
                    return True
            await anyio.sleep(_RETRY_S)
    return False


async def follow_worker(directory: LoopDirectory, read_new: Callable[[], None]) -> None:
    """Call a function now and after each event, until no process works on the loop."""
    while True:
        is_worked_on, stream = directory.is_worked_on, await _connect(directory)
        read_new()
        if stream is not None:
            async with stream:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        await stream.receive()
                        read_new()
        elif is_worked_on:  # the process is starting or ending, or holds the lock only for a moment
            await anyio.sleep(_RETRY_S)
        else:
            return


async def _connect(directory: LoopDirectory) -> SocketStream | None:
    try:
        with short_path(_socket_of(directory)) as path:
            return await anyio.connect_unix(path)
    except OSError:
        return None


def _socket_of(directory: LoopDirectory) -> Path:
    return directory.path / _SOCKET

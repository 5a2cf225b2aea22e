"""Newline-delimited JSON-RPC over a process in the sandbox, as the stream pair that the MCP SDK takes.

Only what a client needs goes through: answers to its requests, and a bounded number of requests of the server
(the SDK answers those). The SDK starts a task for each notification it gets, so those are dropped here.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from ringfence.errors import SandboxDied

MAX_LINE_BYTES = 8 * 1024**2
MAX_BYTES_PER_CALL = 32 * 1024**2
MAX_SERVER_REQUESTS = 1000

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class _Hostile(Exception):
    """The server broke a bound."""


class Wire:
    """The connection to one server; `transport` may be entered once."""

    def __init__(self) -> None:
        self.closed = anyio.Event()
        """Set when the server's output ended, by itself or because it broke a bound."""
        self.broken: str | None = None
        """Which bound it broke."""
        self._bytes_left = MAX_BYTES_PER_CALL
        self._requests_left = MAX_SERVER_REQUESTS

    def expect(self) -> None:
        """A call begins: the server may write as much again."""
        self._bytes_left = MAX_BYTES_PER_CALL

    def broken_text(self, server: str) -> str | None:
        """What to tell the agent if the connection is gone; None while it is not."""
        if not self.closed.is_set():
            return None
        return f"the MCP server {server!r} is gone: {self.broken or 'it closed its output'}"

    def transport(self, process: Any) -> AbstractAsyncContextManager[Streams]:
        """The stream pair over the process's stdin and stdout."""
        return self._transport(process)

    @asynccontextmanager
    async def _transport(self, process: Any) -> AsyncIterator[Streams]:
        to_session, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, process, to_session)
            group.start_soon(self._write, process, from_session)
            group.start_soon(_drain, process)
            try:
                yield read_stream, write_stream
            finally:
                group.cancel_scope.cancel()
                for stream in (to_session, read_stream, write_stream, from_session):
                    stream.close()

    async def _read(
        self, process: Any, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        try:
            async with to_session:
                buffer = bytearray()
                async for chunk in process.stdout:
                    for line in self._lines(buffer, chunk):
                        message = self._message(line)
                        if message is not None:
                            await to_session.send(message)
        except _Hostile as error:
            self.broken = str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
            self.broken = self.broken or "the connection broke"
        finally:
            self.closed.set()

    def _lines(self, buffer: bytearray, chunk: bytes) -> list[bytes]:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise _Hostile(f"it wrote more than {MAX_BYTES_PER_CALL} bytes for one call")
        buffer += chunk
        lines: list[bytes] = []
        if b"\n" in chunk:
            *complete, rest = bytes(buffer).split(b"\n")
            lines += complete
            buffer[:] = rest
        if len(buffer) > MAX_LINE_BYTES or any(len(line) > MAX_LINE_BYTES for line in lines):
            raise _Hostile(f"it wrote a line of more than {MAX_LINE_BYTES} bytes")
        return lines

    def _message(self, line: bytes) -> SessionMessage | None:
        """The message, if it is one that goes through; servers also print logs and worse to stdout."""
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return None
        if isinstance(message, mcp_types.JSONRPCNotification):
            return None
        if isinstance(message, mcp_types.JSONRPCRequest):
            self._requests_left -= 1
            if self._requests_left < 0:
                raise _Hostile(f"it sent more than {MAX_SERVER_REQUESTS} requests of its own")
        return SessionMessage(message)

    async def _write(self, process: Any, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
            async with from_session:
                async for item in from_session:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(text.encode() + b"\n")


async def _drain(process: Any) -> None:
    """Read stderr away, so that a server that logs much does not block."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
        async for _ in process.stderr:
            pass

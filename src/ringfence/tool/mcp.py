"""Tools of MCP servers that run inside the sandbox.

All output of a server comes from inside the sandbox and is treated as hostile: the length of a line, the number of
bytes between two calls, the number of tools and the size of their schemas are bounded, its notifications are
dropped, and its output schemas are ignored. Calls to a server that died, hangs or exceeded a bound return error
results.
"""

import json
import math
import re
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ringfence.background_tasks import background_tasks
from ringfence.errors import ConfigurationError, RingfenceError, SandboxDied, SandboxFileError, UsageError
from ringfence.events import JSONObject
from ringfence.sandbox import Sandbox, SandboxProcess
from ringfence.tool.base import McpServer, Tool, ToolContext, ToolResult, ToolSpec

try:
    import mcp_types
    from mcp.client import Client
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
except ImportError as missing:  # pragma: no cover - the tests' environment has the extra
    raise UsageError(
        "MCP servers need the package mcp; install it with: pip install 'ringfence[mcp]'"
    ) from missing

MAX_LINE_BYTES = 8 * 1024**2
MAX_BYTES_PER_CALL = 32 * 1024**2
MAX_SERVER_REQUESTS = 1000
_MAX_TOOLS = 128
_MAX_PAGES = 20
_MAX_DESCRIPTION_CHARS = 4000
_MAX_SCHEMA_BYTES = 64 * 1024
_MAX_NAME_CHARS = 64
_GRACE_S = 2.0

_Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def open_mcp_servers(servers: Sequence[McpServer], sandbox: Sandbox) -> AsyncIterator[list[Tool]]:
    """Start `servers` in `sandbox` and yield their tools; end the servers when the context is left.

    Raises:
        ConfigurationError: A server did not start or offers something that cannot be used.
        SandboxDied: The sandbox died while the servers were started.
    """
    async with background_tasks() as group:
        tools: list[Tool] = []
        for server in servers:
            client = _ServerClient(server)
            await group.start(client.serve, sandbox)
            tools += client.tools
        yield tools


class _ServerClient:
    """The client of one running server."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.tools: list[Tool] = []
        self._connection = _Connection()
        self._client: Client | None = None
        self._process: SandboxProcess | None = None

    async def serve(
        self, sandbox: Sandbox, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the server until it ends or the task is cancelled; report `started` when its tools are known."""
        started = False
        problem = f"it did not answer within {self.server.start_timeout_s:g} s"
        try:
            with anyio.move_on_after(self.server.start_timeout_s) as scope:
                argv = list(self.server.command)
                async with (
                    sandbox.spawn(argv, cwd=self.server.cwd, env=self.server.env) as process,
                    Client(self._connection.transport(process), cache=None) as client,
                ):
                    self.tools = [self._tool(listed) for listed in await _list_tools(client)]
                    self._process, self._client = process, client
                    started = True
                    scope.deadline = math.inf
                    task_status.started()
                    await self._connection.closed.wait()
        except Exception as error:  # noqa: BLE001 - task boundary: recorded or converted
            root = _root(error)
            if isinstance(root, SandboxDied) and not started:
                raise root from None
            problem = self._connection.broken or _text(root)
        finally:
            self._client = None
        if not started:
            raise ConfigurationError(
                f"MCP server {self.server.name!r} cannot be used: {problem}; try its command with: "
                f"ringfence exec -- {shlex.join(self.server.command)}"
            )

    async def call(self, name: str, arguments: JSONObject) -> ToolResult:
        """Call a tool of the server."""
        self._connection.expect()
        with anyio.move_on_after(self.server.call_timeout_s):
            try:
                return _as_result(await self._request(name, arguments))
            except MCPError as error:
                await self._raise_if_sandbox_died()
                return ToolResult(
                    self._connection.broken_text(self.server.name) or f"{name}: {error}", is_error=True
                )
        return ToolResult(
            f"the MCP server {self.server.name!r} did not answer within {self.server.call_timeout_s:g} s",
            is_error=True,
        )

    async def _raise_if_sandbox_died(self) -> None:
        """Raise `SandboxDied` if the server is gone because its sandbox died."""
        if self._connection.closed.is_set() and self._process is not None:
            with anyio.move_on_after(_GRACE_S), suppress(SandboxFileError):
                await self._process.wait()

    async def _request(self, name: str, arguments: JSONObject) -> Any:
        if self._client is None:
            raise MCPError(code=mcp_types.CONNECTION_CLOSED, message="the server is gone")
        params = mcp_types.CallToolRequestParams(name=name, arguments=arguments)
        # session.call_tool would validate the result on the host against the server's own output schema.
        return await self._client.session.send_request(
            mcp_types.CallToolRequest(params=params), mcp_types.CallToolResult
        )

    def _tool(self, listed: Any) -> Tool:
        name = f"{self.server.name}__{re.sub(r'[^A-Za-z0-9_-]', '_', listed.name)}"
        schema = {**listed.input_schema, "type": "object"}
        size = len(json.dumps(schema))
        if len(name) > _MAX_NAME_CHARS:
            raise ConfigurationError(
                f"the name of its tool {name[:200]!r} is longer than {_MAX_NAME_CHARS} characters"
            )
        if size > _MAX_SCHEMA_BYTES:
            raise ConfigurationError(
                f"the schema of its tool {name!r} has {size} bytes; the limit is {_MAX_SCHEMA_BYTES}"
            )
        description = (listed.description or listed.title or name)[:_MAX_DESCRIPTION_CHARS]
        return _McpTool(self, listed.name, ToolSpec(name=name, description=description, input_schema=schema))


class _McpTool(Tool):
    trusts_schema = False

    def __init__(self, client: _ServerClient, name: str, spec: ToolSpec) -> None:
        self._client = client
        self._name = name
        self.spec = spec

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:  # noqa: ARG002 - contract
        return await self._client.call(self._name, arguments)


async def _list_tools(client: Client) -> list[Any]:
    tools: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    if len(tools) > _MAX_TOOLS or cursor is not None:
        raise ConfigurationError(f"it offers more than {_MAX_TOOLS} tools")
    return tools


def _as_result(result: Any) -> ToolResult:
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    return ToolResult("\n".join(parts) or "[no result]", is_error=result.is_error)


def _part(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    if block.type == "resource_link":
        return f"[link to {block.uri}]"
    kind = getattr(block, "mime_type", None) or "binary"
    return f"[{block.type} of type {kind}, not shown]"


def _root(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, RingfenceError | MCPError) else f"{type(error).__name__}: {error}"


# --- newline-delimited JSON-RPC over a process in the sandbox, as the stream pair that the MCP SDK takes


class _BoundExceeded(Exception):
    """The server exceeded a bound."""


class _Connection:
    """The connection to one server; `transport` may be entered once."""

    def __init__(self) -> None:
        self.closed = anyio.Event()
        """Set when the server's output ended, or was cut off because it exceeded a bound."""
        self.broken: str | None = None
        """Why the connection was cut off; None if it was not."""
        self._bytes_left = MAX_BYTES_PER_CALL
        self._requests_left = MAX_SERVER_REQUESTS

    def expect(self) -> None:
        """Reset the limit on output, because a call begins."""
        self._bytes_left = MAX_BYTES_PER_CALL

    def broken_text(self, server: str) -> str | None:
        """Return the message for the agent if the connection has ended; None if it is open."""
        if not self.closed.is_set():
            return None
        return f"the MCP server {server!r} is gone: {self.broken or 'it closed its output'}"

    def transport(self, process: Any) -> AbstractAsyncContextManager[_Streams]:
        """Return the stream pair over the process's stdin and stdout."""
        return self._transport(process)

    @asynccontextmanager
    async def _transport(self, process: Any) -> AsyncIterator[_Streams]:
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
        except _BoundExceeded as error:
            self.broken = str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
            self.broken = self.broken or "the connection broke"
        finally:
            self.closed.set()

    def _lines(self, buffer: bytearray, chunk: bytes) -> list[bytes]:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise _BoundExceeded(f"it wrote more than {MAX_BYTES_PER_CALL} bytes for one call")
        buffer += chunk
        lines: list[bytes] = []
        if b"\n" in chunk:
            *complete, rest = bytes(buffer).split(b"\n")
            lines += complete
            buffer[:] = rest
        if len(buffer) > MAX_LINE_BYTES or any(len(line) > MAX_LINE_BYTES for line in lines):
            raise _BoundExceeded(f"it wrote a line of more than {MAX_LINE_BYTES} bytes")
        return lines

    def _message(self, line: bytes) -> SessionMessage | None:
        """Parse a line; None if it is not forwarded, such as a notification or a log line on stdout."""
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return None
        if isinstance(message, mcp_types.JSONRPCNotification):
            return None
        if isinstance(message, mcp_types.JSONRPCRequest):
            self._requests_left -= 1
            if self._requests_left < 0:
                raise _BoundExceeded(f"it sent more than {MAX_SERVER_REQUESTS} requests of its own")
        return SessionMessage(message)

    async def _write(self, process: Any, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
            async with from_session:
                async for item in from_session:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(text.encode() + b"\n")


async def _drain(process: Any) -> None:
    """Discard stderr, so that a server that logs much does not block."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
        async for _ in process.stderr:
            pass

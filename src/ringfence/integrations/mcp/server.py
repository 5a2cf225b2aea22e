"""Speaks the protocol, with the official library: the tools of this package over stdio.

The library serves all revisions it knows: those with a handshake, and those without. It reads messages of any size,
so the transport over stdio is here, where their size is bounded; it moves the descriptors of the protocol away from 0
and 1, so that nothing else in this process can read from or write to them.
"""

import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ringfence import __version__
from ringfence.descriptor_stream import DescriptorStream
from ringfence.errors import RingfenceError, UsageError
from ringfence.escape import safe_json
from ringfence.frozen import frozen
from ringfence.integrations.mcp.registry import SandboxRegistry, log
from ringfence.integrations.mcp.tools import TOOLS, Caller, call_tool

try:
    import mcp_types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
except ImportError as missing:  # pragma: no cover - the tests' environment has the extra
    raise UsageError(
        "the MCP server needs the package mcp; install it with: pip install 'ringfence[mcp]'"
    ) from missing

NAME = "ringfence"
OWNER = "ringfence.owner"
"""The key of a request's session in its ASGI scope."""
MAX_MESSAGE_BYTES = 32 * 1024**2
"""The largest message of a client."""
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_EDGE_BYTES = 300
_ID = rb'"id"\s*:\s*(?:(\d{1,15})|"([A-Za-z0-9_.:-]{1,100})")\s*'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"[,}]")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"\}\s*\Z")
_MAX_CALLS = 64
"""Calls under way at once; further ones are refused."""
_INSTRUCTIONS = (
    "Sandboxes for commands and files that must not touch this machine. Open one with sandbox_open and give its handle "
    "to the other tools. Changes stay in the sandbox's private copy of the workspace until a person applies them; "
    "changes_apply asks for that."
)
_Messages = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


def create_server(registry: SandboxRegistry, *, owner: str | None) -> "Server[Any]":
    """Create the protocol's server.

    Args:
        registry: Whose sandboxes the tools use.
        owner: The session of all requests; None: that of the request's token.
    """
    under_way = 0

    async def list_tools(_context: "ServerRequestContext[Any]", _params: Any) -> "mcp_types.ListToolsResult":
        return mcp_types.ListToolsResult(
            tools=[
                mcp_types.Tool(
                    name=name,
                    description=entry.description,
                    input_schema=entry.arguments.model_json_schema(),
                    annotations=mcp_types.ToolAnnotations(read_only_hint=entry.is_read_only),
                )
                for name, entry in TOOLS.items()
            ]
        )

    async def call(
        context: "ServerRequestContext[Any]", params: "mcp_types.CallToolRequestParams"
    ) -> "mcp_types.CallToolResult":
        nonlocal under_way
        entry = TOOLS.get(params.name)
        if entry is None:
            known = ", ".join(TOOLS)
            raise MCPError(
                code=mcp_types.INVALID_PARAMS,
                message=f"there is no tool {params.name[:100]!r}; there are: {known}",
            )
        if under_way >= _MAX_CALLS:
            return _refusal(f"{_MAX_CALLS} calls are under way; wait for one to end")
        under_way += 1
        try:
            caller = Caller(owner if owner is not None else _token_owner(context), _client_name(context))
            result = await call_tool(entry, params.name, registry, caller, params.arguments)
        except RingfenceError as exc:
            return _refusal(str(exc))
        finally:
            under_way -= 1
        return mcp_types.CallToolResult(
            content=[mcp_types.TextContent(type="text", text=safe_json(result))], structured_content=result
        )

    return Server(
        NAME,
        version=__version__,
        title="Ringfence sandboxes",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call,
    )


def _refusal(text: str) -> "mcp_types.CallToolResult":
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)], is_error=True)


def _token_owner(context: "ServerRequestContext[Any]") -> str:
    """The session that `http.Guard` found for a request."""
    assert context.request is not None
    return str(context.request.scope[OWNER])


def _client_name(context: "ServerRequestContext[Any]") -> str:
    params = context.session.client_params
    return "of unknown name" if params is None else f"{params.client_info.name} {params.client_info.version}"


async def serve_stdio(registry: SandboxRegistry) -> None:
    """Serve one session on the standard streams until the client ends it.

    Raises:
        UsageError: No client can be at the standard streams.
    """
    _check_streams()
    server = create_server(registry, owner="stdio")
    async with _messages_on_stdio() as (received, to_send):
        await server.run(received, to_send, server.create_initialization_options())


def _check_streams() -> None:
    """Check that an MCP client can be at the standard streams.

    Raises:
        UsageError: They are closed, or stdin is a file.
    """
    advice = "an MCP client starts `ringfence mcp` with a pipe; --http serves clients that do not start it"
    if sys.stdin is None or sys.stdout is None:
        raise UsageError(f"stdin or stdout is closed; {advice}")
    mode = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)):
        raise UsageError(f"stdin is a file; {advice}")
    if os.isatty(0):
        log(f"waiting for messages on this terminal; {advice}")


@asynccontextmanager
async def _messages_on_stdio() -> AsyncIterator[_Messages]:
    """The messages on descriptors 0 and 1, which lead to /dev/null and to stderr meanwhile."""
    stream = DescriptorStream(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    to_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_send, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def refuse(line: "_Unread", code: int, message: str) -> None:
        """Answer a message that could not be read."""
        error = mcp_types.JSONRPCError(
            jsonrpc="2.0", id=line.request_id, error=mcp_types.ErrorData(code=code, message=message)
        )
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await to_send.send(SessionMessage(error))

    async def read() -> None:
        async with to_server:
            async for line in _lines(stream):
                if isinstance(line, _Unread):
                    problem = f"the message is larger than {MAX_MESSAGE_BYTES} bytes; nothing was done"
                    log(problem)
                    await refuse(line, mcp_types.INVALID_REQUEST, problem)
                    continue
                try:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    unread = _Unread(line[:_EDGE_BYTES], line[-_EDGE_BYTES:])
                    await refuse(unread, mcp_types.PARSE_ERROR, "the line is no message of JSON-RPC 2.0")
                    continue
                with suppress(anyio.BrokenResourceError):
                    await to_server.send(SessionMessage(message))

    async def write() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await stream.send(text.encode() + b"\n")
                except anyio.BrokenResourceError:  # the client no longer reads, which ends the session
                    tasks.cancel_scope.cancel()

    async with stream, anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield received, to_send
        tasks.cancel_scope.cancel()


@frozen
class _Unread:
    """The edges of a line that was not read as a message."""

    head: bytes
    tail: bytes

    @property
    def request_id(self) -> int | str | None:
        """The id of the request, if it is where the clients that are known write it; None: it is not found.

        At these places it belongs to the message itself, and not to something within its parameters.
        """
        found = _ID_FIRST.match(self.head) or _ID_LAST.search(self.tail)
        if found is None:
            return None
        number, text = found.groups()
        return int(number) if number is not None else str(text.decode("ascii"))


async def _lines(stream: DescriptorStream) -> AsyncIterator[bytes | _Unread]:
    """The lines of the client; of one that is too long, only the edges."""
    line = bytearray()
    head: bytes | None = None
    """The beginning of a line that is too long."""
    while True:
        try:
            piece = await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return
        for part in _LINE.findall(piece):
            line += part
            if head is None and len(line) > MAX_MESSAGE_BYTES:
                head = bytes(line[:_EDGE_BYTES])
            if head is not None:
                del line[:-_EDGE_BYTES]
            if not part.endswith(b"\n"):
                continue
            if head is not None:
                yield _Unread(head, bytes(line))
            elif line.strip():
                yield bytes(line)
            line, head = bytearray(), None

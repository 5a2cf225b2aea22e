"""The user's functions as an MCP server in the host's process. Imported only after `installed.check_sdk`."""

from collections.abc import Sequence
from typing import Any

from mcp.server import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent
from mcp_types import Tool as McpTool

from ringfence import __version__
from ringfence.errors import SandboxDied
from ringfence.runtime.claude_sdk.asked import CALL_ID
from ringfence.runtime.transcript.base import dict_of, short
from ringfence.sandbox import Sandbox
from ringfence.tool.base import Tool, ToolCall, ToolResult
from ringfence.tool.toolset import Toolset


def server_of(tools: Sequence[Tool], name: str, sandbox: Sandbox) -> "Server[Any]":
    """A server whose tools are `tools`; a call that fails, and input that does not fit, are results.

    Args:
        tools: They run here, outside of the fence.
        name: Of the server.
        sandbox: What the tools are given as their context.

    Raises:
        ConfigurationError: Two tools have one name, or a schema is not a JSON Schema.
    """
    toolset = Toolset(tools)
    listed = ListToolsResult(
        tools=[
            McpTool(name=spec.name, description=spec.description, input_schema=spec.input_schema)
            for spec in toolset.specs
        ]
    )

    async def list_tools(_context: object, _params: object) -> ListToolsResult:
        return listed

    async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
        call_id = short(dict_of(params.meta).get(CALL_ID))
        result = await _acted(toolset, ToolCall(call_id, params.name, params.arguments or {}), sandbox)
        return CallToolResult(content=[TextContent(text=result.content)], is_error=result.is_error)

    return Server(name, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


async def _acted(toolset: Toolset, call: ToolCall, sandbox: Sandbox) -> ToolResult:
    try:
        return await toolset.act(call, sandbox)
    except SandboxDied as exc:  # the run ends by it elsewhere
        return ToolResult(f"the sandbox died: {exc}", is_error=True)

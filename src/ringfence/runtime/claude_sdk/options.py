"""What of the SDK's own options a user may give, and what is given elsewhere. Imported only after `check_sdk`."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions
from mcp.server import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent
from mcp_types import Tool as McpTool

from ringfence import __version__
from ringfence.errors import SandboxDied, UsageError
from ringfence.runtime.claude_sdk.asked import CALL_ID
from ringfence.runtime.transcript.base import dict_of, short
from ringfence.sandbox import Sandbox
from ringfence.tool.base import Tool, ToolCall, ToolResult
from ringfence.tool.toolset import Toolset

SERVER = "host"
"""Of the user's functions: the client names them `mcp__host__NAME`."""

_HONOURED = frozenset(
    {"hooks", "can_use_tool", "mcp_servers", "agents", "forward_subagent_text", "verbatim_prompts"}
)
_ELSEWHERE = {
    "system_prompt": "system_prompt or system_append of the task's options",
    "allowed_tools": "tools_allowed of the task's options",
    "disallowed_tools": "tools_denied of the task's options",
    "permission_mode": "permission_mode of the task's options",
    "setting_sources": "settings_sources of the task's options",
    "plugins": "plugins of the task's options",
    "output_format": "output_schema of the task's options",
    "cli_path": "cli_path of the task's options",
    "model": "the task's model",
    "max_turns": "the run's limits",
    "max_budget_usd": "the run's limits",
    "resume": "the task's session",
    "session_id": "the task's session",
    "fork_session": "the task's session",
    "continue_conversation": "the task's session",
    "env": "the sandbox's `env`",
    "cwd": "the sandbox's workspace",
    "add_dirs": "the sandbox's mounts",
    "sandbox": "the sandbox's spec",
}


def check_options(given: Any) -> None:
    """See that all that `given` asks for is honoured.

    Raises:
        UsageError: Something is not, or is no such options.
    """
    if not isinstance(given, ClaudeAgentOptions):
        raise UsageError(f"the SDK's options are a ClaudeAgentOptions, not {given!r}")
    usual = ClaudeAgentOptions()
    for each in fields(given):
        if each.name not in _HONOURED and getattr(given, each.name) != getattr(usual, each.name):
            instead = _ELSEWHERE.get(each.name)
            raise UsageError(
                f"the option {each.name!r} of the SDK has no effect in a sandbox; "
                + (f"use {instead}" if instead else "leave it out")
            )
    servers = given.mcp_servers if isinstance(given.mcp_servers, dict) else {"": given.mcp_servers}
    for name, server in servers.items():
        if not isinstance(server, dict) or server.get("type") != "sdk":
            raise UsageError(
                f"the MCP server {name!r} does not run in this process; give it as mcp_servers of the task's options, "
                "which are started inside"
            )


def options_for(given: Any | None, tools: Sequence[Tool], sandbox: Sandbox) -> Any:
    """Options for the SDK's client: the user's, with a server for the user's functions.

    Raises:
        UsageError: A server of the user's has the name that ours has.
        ConfigurationError: A function cannot be a tool.
    """
    given = ClaudeAgentOptions() if given is None else given
    if not tools:
        return given
    if SERVER in given.mcp_servers:
        raise UsageError(f"the MCP server {SERVER!r} is that of tools.python; name yours otherwise")
    ours = {"type": "sdk", "name": SERVER, "instance": server_of(tools, SERVER, sandbox)}
    return replace(given, mcp_servers={**given.mcp_servers, SERVER: ours})


def server_of(tools: Sequence[Tool], name: str, sandbox: Sandbox) -> "Server[Any]":
    """An MCP server in the host's process for the user's functions; a call that fails is a result, not an error.

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

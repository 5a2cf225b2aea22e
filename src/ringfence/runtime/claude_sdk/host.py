"""The SDK's side of a run, on the host: its options, the server for the user's functions, and the CLI's process.

Imported only after `check_sdk`, since it imports the SDK.
"""

import json
import math
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields, replace
from typing import Any

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, Transport
from mcp.server import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent
from mcp_types import Tool as McpTool

from ringfence import __version__
from ringfence.errors import InfrastructureFault, SandboxDied, UsageError
from ringfence.events import Emit, Event, ToolCalled, ToolReturned
from ringfence.runtime.agent_cli.base import Launch, Output
from ringfence.runtime.agent_cli.process import Bounds, CliProcess
from ringfence.runtime.claude_sdk.control import CALL_ID, Exchange, is_control
from ringfence.runtime.transcript.record import Item, Line, Record
from ringfence.runtime.transcript.translator import dict_of, short
from ringfence.sandbox import Sandbox, SandboxProcess
from ringfence.tool.base import Tool, ToolCall, ToolResult
from ringfence.tool.toolset import Toolset

SERVER = "host"
"""The MCP server of the user's functions: the CLI names them `mcp__host__NAME`."""

_SUPPORTED = frozenset(
    {"hooks", "can_use_tool", "mcp_servers", "agents", "forward_subagent_text", "verbatim_prompts"}
)
_REPLACEMENTS = {
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
_INTERRUPT_S = 2.0


def check_options(given: Any) -> None:
    """Check that all of the SDK's options that are set have an effect.

    Raises:
        UsageError: An option has no effect, or `given` is not a `ClaudeAgentOptions`.
    """
    if not isinstance(given, ClaudeAgentOptions):
        raise UsageError(f"the SDK's options are a ClaudeAgentOptions, not {given!r}")
    default = ClaudeAgentOptions()
    for each in fields(given):
        if each.name not in _SUPPORTED and getattr(given, each.name) != getattr(default, each.name):
            replacement = _REPLACEMENTS.get(each.name)
            raise UsageError(
                f"the option {each.name!r} of the SDK has no effect in a sandbox; "
                + (f"use {replacement}" if replacement else "leave it out")
            )
    servers = given.mcp_servers if isinstance(given.mcp_servers, dict) else {"": given.mcp_servers}
    for name, server in servers.items():
        if not isinstance(server, dict) or server.get("type") != "sdk":
            raise UsageError(
                f"the MCP server {name!r} does not run in this process; name it in mcp_servers of the task's options, "
                "and it is started in the sandbox"
            )


def options_for(given: Any | None, tools: Sequence[Tool], sandbox: Sandbox) -> Any:
    """Return the user's options for the SDK, with an MCP server for the user's functions.

    Raises:
        UsageError: One of the user's own servers has the name `SERVER`.
        ConfigurationError: A function cannot be used as a tool.
    """
    given = ClaudeAgentOptions() if given is None else given
    if not tools:
        return given
    if SERVER in given.mcp_servers:
        raise UsageError(
            f"the name {SERVER!r} is taken by the MCP server of tools.python; choose another name for yours"
        )
    own_server = {"type": "sdk", "name": SERVER, "instance": build_server(tools, sandbox)}
    return replace(given, mcp_servers={**given.mcp_servers, SERVER: own_server})


def build_server(tools: Sequence[Tool], sandbox: Sandbox) -> "Server[Any]":
    """Return an MCP server in this process for the user's functions; a call that fails is a result, not an error.

    Args:
        tools: The functions. They run in this process, outside of the sandbox.
        sandbox: The sandbox that the functions receive.

    Raises:
        ConfigurationError: Two tools have one name, or a schema is not a JSON Schema.
    """
    toolset = Toolset(tools)
    tool_list = ListToolsResult(
        tools=[
            McpTool(name=spec.name, description=spec.description, input_schema=spec.input_schema)
            for spec in toolset.specs
        ]
    )

    async def list_tools(_context: object, _params: object) -> ListToolsResult:
        return tool_list

    async def call_tool(_context: object, params: CallToolRequestParams) -> CallToolResult:
        call_id = short(dict_of(params.meta).get(CALL_ID))
        result = await _call(toolset, ToolCall(call_id, params.name, params.arguments or {}), sandbox)
        return CallToolResult(content=[TextContent(text=result.content)], is_error=result.is_error)

    return Server(SERVER, version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


async def _call(toolset: Toolset, call: ToolCall, sandbox: Sandbox) -> ToolResult:
    try:
        return await toolset.act(call, sandbox)
    except SandboxDied as exc:  # another task ends the run
        return ToolResult(f"the sandbox died: {exc}", is_error=True)


class ExchangeTransport(Transport):
    """The SDK's connection to the CLI. The process is in the sandbox, and the transport does not start or end it.

    Args:
        exchange: The run's control messages.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def connect(self) -> None:
        """Do nothing: the process is already running."""

    async def write(self, data: str) -> None:
        """Forward a message, which is a line of JSON."""
        await self._exchange.write(json.loads(data))

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the CLI's control messages."""
        async for message in self._exchange.messages():
            yield message

    async def close(self) -> None:
        """Do nothing: the code that started the process ends it."""

    def is_ready(self) -> bool:
        """Return True."""
        return True

    async def end_input(self) -> None:
        """Signal the CLI that no more input follows."""
        await self._exchange.end_input()


class SdkProcess(CliProcess):
    """A process of the CLI whose prompt and control messages pass through the SDK. Use once.

    Args:
        output: Reads the messages that are not control messages.
        launch: How the process is started.
        bounds: The limits of the process.
        emit: Records an event.
        prompt: The task.
        options: The SDK's options. Its MCP servers run in this process, so calls of their tools are recorded here and
            not from the CLI's output.
    """

    def __init__(
        self,
        output: Output,
        launch: Launch,
        bounds: Bounds,
        emit: Emit,
        *,
        prompt: str,
        options: Any,
    ) -> None:
        super().__init__(output, launch, bounds, emit)
        self._prompt = prompt
        self._exchange = Exchange(self._record_own, self._reset_silence)
        self._sdk = ClaudeSDKClient(options, ExchangeTransport(self._exchange))
        self._recorded_here = tuple(f"mcp__{name}__" for name in options.mcp_servers)
        self._has_result = False
        self._state: object = None
        self._is_done = anyio.Event()

    async def run(self, sandbox: Sandbox) -> None:
        """Start the process and wait for its end; see `CliProcess.run`.

        Raises:
            InfrastructureFault: In addition: the CLI does not answer the SDK.
        """
        try:
            await super().run(sandbox)
        finally:
            self._exchange.close()

    async def _feed(self, process: SandboxProcess) -> None:
        """Serve the SDK's side of the conversation while the process runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._exchange.serve, process.stdin)
            try:
                await self._converse()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._sdk.disconnect()
                tasks.cancel_scope.cancel()

    async def _converse(self) -> None:
        try:
            await self._sdk.connect()
            await self._sdk.query(self._prompt)
        except Exception as exc:
            if self._exchange.is_over:
                return  # the process has ended, and its exit status is classified elsewhere
            raise InfrastructureFault(f"claude did not answer the SDK's first message: {exc}") from exc
        await self._is_done.wait()
        await self._exchange.end_input()

    async def _read(self, process: SandboxProcess) -> None:
        try:
            await super()._read(process)
        finally:
            await self._exchange.finish()

    async def _take(self, line: Line, items: Sequence[Item]) -> None:
        value = next((item.value for item in items if isinstance(item, Record)), {})
        if is_control(value):
            await self._exchange.take(value)
            return
        if value.get("type") == "system" and value.get("subtype") == "session_state_changed":
            self._state = value.get("state")
        else:
            await super()._take(line, items)
            self._has_result = self._has_result or value.get("type") == "result"
        self._check_done()

    def _check_done(self) -> None:
        if self._has_result and self._state in (None, "idle"):
            self._is_done.set()

    async def _record(self, events: list[Event]) -> None:
        await super()._record([event for event in events if not self._is_recorded_here(event)])

    def _is_recorded_here(self, event: Event) -> bool:
        return isinstance(event, ToolCalled | ToolReturned) and event.tool.startswith(self._recorded_here)

    async def _record_own(self, event: Event) -> None:
        """Record an event of the host, which counts against the limits like those in the output."""
        await super()._record([event])

    def _reset_silence(self) -> None:
        """Restart the silence timeout; a CLI that waits for the host is not silent."""
        if self._exchange.is_busy:
            self._silence.deadline = math.inf
        else:
            super()._reset_silence()

    async def _terminate(self, process: SandboxProcess) -> None:
        await self._must_end.wait()
        self._signals.append(signal.SIGINT)  # the control message below has the same effect
        with anyio.move_on_after(_INTERRUPT_S):
            await self._exchange.interrupt()
            await anyio.sleep_forever()
        await super()._terminate(process)

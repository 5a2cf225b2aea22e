"""The tools of one agent, and the execution of one turn's calls."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby

import anyio
import anyio.lowlevel

from ringfence.config.names import nearest
from ringfence.errors import ConfigurationError, InfrastructureFault, RingfenceError, SandboxDied, UsageError
from ringfence.events import Emit, JSONObject, PermissionDecided, ToolCalled, ToolReturned
from ringfence.sandbox import Sandbox
from ringfence.tool.ask import AskPersonTool
from ringfence.tool.base import (
    McpServer,
    Tool,
    ToolCall,
    ToolContext,
    ToolKey,
    ToolResult,
    ToolSpec,
    UnknownTool,
)
from ringfence.tool.files import EditFileTool, ReadFileTool, WriteFileTool
from ringfence.tool.schema import InputChecker
from ringfence.tool.search import ListFilesTool, SearchTool
from ringfence.tool.shell import ShellTool
from ringfence.tool.text import cut_text, is_unicode, replace_surrogates

RESULT_LIMIT_CHARS = 100_000
"""The limit for the result of any tool; the built-in tools have smaller limits of their own."""

_MAX_CONCURRENT = 8
_EMIT_DEADLINE_S = 30.0
_CANCELLED = ToolResult("cancelled: the run was stopped before this call was over", is_error=True)


class Toolset:
    """The tools of one agent by name. `open_toolset` creates one and starts its MCP servers.

    Args:
        tools: The tools, in the order in which they are listed for the model.
        withheld: The names of tools that exist and that the agent may not use; a call is recorded as refused.

    Raises:
        ConfigurationError: Two tools have the same name, or a schema is not a JSON Schema.
    """

    def __init__(self, tools: Sequence[Tool], *, withheld: Collection[str] = ()) -> None:
        self._withheld = frozenset(withheld)
        self._tools: dict[str, Tool] = {}
        self._checkers: dict[str, InputChecker] = {}
        for tool in tools:
            name = tool.spec.name
            if name in self._tools:
                raise ConfigurationError(f"two tools are named {name!r}; rename one of them")
            self._tools[name] = tool
            self._checkers[name] = InputChecker(tool)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them."""
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def definitions(self) -> tuple[JSONObject, ...]:
        """The tools in the format of the Messages API."""
        return tuple(
            {"name": spec.name, "description": spec.description, "input_schema": spec.input_schema}
            for spec in self.specs
        )

    async def call_all(self, calls: Sequence[ToolCall], sandbox: Sandbox, emit: Emit) -> list[ToolResult]:
        """Carry out the calls of one turn.

        Adjacent read-only calls run concurrently; any other call runs alone, after all calls before it.
        `ToolCalled` is emitted before a call is carried out and `ToolReturned` when it has ended, also for calls
        that are refused or cancelled. A failing tool, an unknown tool and invalid input lead to results with
        `is_error`, not to exceptions.

        Returns:
            The results, in the order of the calls.

        Raises:
            SandboxDied: The sandbox is gone. Exceptions of `emit` are raised, too.
        """
        results: list[ToolResult] = []
        for is_read_only, group in groupby(calls, key=self._is_read_only):
            batch = list(group)
            if is_read_only and len(batch) > 1:
                results += await self._call_concurrently(batch, sandbox, emit)
            else:
                results += [await self._call(call, sandbox, emit) for call in batch]
        return results

    def _is_read_only(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is None or tool.is_read_only

    async def _call_concurrently(
        self, calls: Sequence[ToolCall], sandbox: Sandbox, emit: Emit
    ) -> list[ToolResult]:
        results: list[ToolResult | None] = [None] * len(calls)
        failures: list[Exception] = []
        slots = anyio.CapacityLimiter(_MAX_CONCURRENT)

        async def run(index: int) -> None:
            try:
                async with slots:
                    results[index] = await self._call(calls[index], sandbox, emit)
            except Exception as error:  # noqa: BLE001 - task boundary: raised below, outside of a group
                failures.append(error)
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for index in range(len(calls)):
                group.start_soon(run, index)
        if failures:
            raise failures[0]
        return [result for result in results if result is not None]

    async def _call(self, call: ToolCall, sandbox: Sandbox, emit: Emit) -> ToolResult:
        await anyio.lowlevel.checkpoint()
        await _emit_shielded(emit, _call_event(call))
        started = time.monotonic()
        result = _CANCELLED
        if call.name in self._withheld:
            await _emit_shielded(emit, _refusal_of(call))
        try:
            result = await self.act(call, sandbox, emit)
        except SandboxDied as error:
            result = ToolResult(f"the sandbox died: {error}", is_error=True)
            raise
        finally:
            # This also runs on cancellation, so that the journal holds the end of every call that was started.
            event = ToolReturned(
                call_id=call.id,
                tool=call.name,
                is_error=result.is_error,
                content=result.content,
                duration_ms=round((time.monotonic() - started) * 1000, 3),
            )
            await _emit_shielded(emit, event)
        return result

    async def act(self, call: ToolCall, sandbox: Sandbox, emit: Emit | None = None) -> ToolResult:
        """Carry out one call without emitting its events; the caller does that.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return ToolResult(f"there is no tool {call.name!r}; there are: {known}", is_error=True)
        try:
            problem = self._problem(call)
            if problem is not None:
                return ToolResult(f"the input does not fit {call.name!r}: {problem}", is_error=True)
            result = await tool.call(call.arguments, ToolContext(sandbox, call.id, emit))
        except SandboxDied:
            raise
        except RingfenceError as error:
            result = ToolResult(str(error), is_error=True)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            # A tool may also call `sys.exit` or cancel a task of its own; both count as its failure.
            if isinstance(error, anyio.get_cancelled_exc_class()) and _is_being_cancelled():
                raise
            result = ToolResult(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)
        return ToolResult(
            replace_surrogates(cut_text(result.content, RESULT_LIMIT_CHARS)), is_error=result.is_error
        )

    def _problem(self, call: ToolCall) -> str | None:
        """Describe why the input of a call is invalid; None if it is valid."""
        if not is_unicode(call.arguments):
            return "it holds half of a surrogate pair (such as \\ud83d); write the character"
        return self._checkers[call.name].problem(call.arguments)


@asynccontextmanager
async def open_toolset(
    name: str,
    *,
    sandbox: Sandbox,
    functions: Sequence[Tool] = (),
    mcp_servers: Sequence[McpServer] = (),
    allowed: Sequence[str] = (),
    denied: Sequence[str] = (),
    permitted: Sequence[str] = (),
    asks: bool = False,
) -> AsyncIterator[Toolset]:
    """Open the toolset `name` with the user's own tools; its MCP servers run until the context is left.

    Args:
        name: The toolset's name, `coder` or `operator`.
        sandbox: The sandbox in which MCP servers run.
        functions: Tools made with `@tool`; they run in the host's process.
        mcp_servers: The servers to start; their tools are named `server__tool`.
        allowed: The names of the only tools to offer; empty: all.
        denied: The names of tools to leave out.
        permitted: The names of tools to offer besides those in `allowed`.
        asks: Whether the agent has the tool `ask_person`.

    Raises:
        UsageError: There is no such toolset or tool, or there are MCP servers and MCP is not installed.
        ConfigurationError: Two tools have the same name, or a server cannot be used.
        SandboxDied: The sandbox died while servers were started.
    """
    check_tool_names(
        name,
        functions=functions,
        mcp_servers=mcp_servers,
        allowed=allowed,
        denied=denied,
        permitted=permitted,
    )
    tools = [*toolset_tools(name), *functions]
    async with AsyncExitStack() as stack:
        if mcp_servers:
            from ringfence.tool.mcp import open_mcp_servers

            tools += await stack.enter_async_context(open_mcp_servers(mcp_servers, sandbox))
        _refuse_unknown({tool.spec.name for tool in tools}, allowed, denied, permitted)
        selected = _select_tools(tools, (*allowed, *permitted) if allowed else (), denied)
        withheld = {tool.spec.name for tool in tools} - {tool.spec.name for tool in selected}
        yield Toolset([*selected, AskPersonTool()] if asks else selected, withheld=withheld)


def check_tool_names(
    toolset: str,
    *,
    functions: Sequence[Tool] = (),
    mcp_servers: Sequence[McpServer] = (),
    allowed: Sequence[str] = (),
    denied: Sequence[str] = (),
    permitted: Sequence[str] = (),
) -> None:
    """Check names of tools, as far as that is possible before MCP servers have listed theirs.

    Args:
        toolset: The toolset's name.
        functions: The user's own tools.
        mcp_servers: The servers to start.
        allowed: The names of the only tools to offer.
        denied: The names of tools to leave out.
        permitted: The names of tools to offer besides those in `allowed`.

    Raises:
        UsageError: There is no such toolset.
        UnknownTool: A name is neither that of a tool nor begins with that of a server.
    """
    known = {tool.spec.name for tool in (*toolset_tools(toolset), *functions)}
    servers = tuple(f"{server.name}__" for server in mcp_servers)
    _refuse_unknown(known, allowed, denied, permitted, unlisted=servers)


def _select_tools(tools: Sequence[Tool], allowed: Sequence[str], denied: Sequence[str]) -> list[Tool]:
    """Return the tools that may be used, in their order."""
    left = set(allowed or (tool.spec.name for tool in tools)) - set(denied)
    return [tool for tool in tools if tool.spec.name in left]


def _refuse_unknown(
    known: Collection[str],
    allowed: Sequence[str],
    denied: Sequence[str],
    permitted: Sequence[str],
    *,
    unlisted: tuple[str, ...] = (),
) -> None:
    """Refuse a name that is not known, unless it has a prefix whose tools are not listed yet."""
    lists: tuple[tuple[ToolKey, Sequence[str]], ...] = (
        ("tools.allow", allowed),
        ("tools.deny", denied),
        ("tools.permit", permitted),
    )
    for key, names in lists:
        for name in names:
            if name not in known and not name.startswith(unlisted or "\0"):
                guess = nearest(name, known)
                hint = f" (did you mean {guess!r}?)" if guess else ""
                raise UnknownTool(
                    f"the agent has no tool {name!r}{hint}; it has: {', '.join(sorted(known))}", key=key
                )


async def _emit_shielded(emit: Emit, event: ToolCalled | ToolReturned | PermissionDecided) -> None:
    with anyio.move_on_after(_EMIT_DEADLINE_S, shield=True) as scope:
        await emit(event)
    if scope.cancelled_caught:
        raise InfrastructureFault(
            f"{event.name!r} could not be recorded within {_EMIT_DEADLINE_S:g} s; is the disk full?"
        )


def _is_being_cancelled() -> bool:
    """Whether this task is cancelled, rather than that the tool raised the same exception by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _call_event(call: ToolCall) -> ToolCalled:
    arguments = call.arguments if isinstance(call.arguments, dict) else {"not_an_object": call.arguments}
    reasoning = arguments.get("reasoning")
    return ToolCalled(
        call_id=call.id,
        tool=call.name,
        arguments=arguments,
        reasoning=reasoning if isinstance(reasoning, str) else None,
    )


def _refusal_of(call: ToolCall) -> PermissionDecided:
    return PermissionDecided(
        call_id=call.id,
        tool=call.name,
        allowed=False,
        reason="tools.allow or tools.deny leaves the tool out",
        arguments=_call_event(call).arguments,
    )


_TOOLSETS: Mapping[str, tuple[type[Tool], ...]] = {
    "coder": (ShellTool, ReadFileTool, WriteFileTool, EditFileTool, ListFilesTool, SearchTool),
    "operator": (ShellTool,),
}


def toolset_names() -> tuple[str, ...]:
    """Return the names of all toolsets."""
    return tuple(sorted(_TOOLSETS))


def toolset_tools(name: str) -> tuple[Tool, ...]:
    """Create the tools of the toolset `name`.

    Raises:
        UsageError: There is no such toolset.
    """
    kinds = _TOOLSETS.get(name)
    if kinds is None:
        raise UsageError(f"there is no toolset {name!r}; there are: {', '.join(toolset_names())}")
    return tuple(kind() for kind in kinds)

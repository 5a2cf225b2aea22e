"""A real sandbox, and what was emitted."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from ringfence.events import Event, ToolCalled, ToolReturned
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.tool import Tool, ToolCall, ToolContext, ToolResult, Toolset

CallTool = Callable[..., Awaitable[ToolResult]]


class Recorder:
    """Keeps what is emitted."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def returned(self) -> list[ToolReturned]:
        """The ends of calls."""
        return [event for event in self.events if isinstance(event, ToolReturned)]

    @property
    def told(self) -> list[tuple[str, str]]:
        """(`called` or `returned`, call) in order."""
        return [
            (event.name.removeprefix("tool."), event.call_id)
            for event in self.events
            if isinstance(event, ToolCalled | ToolReturned)
        ]


@pytest.fixture
def recorder() -> Recorder:
    """An `emit` that keeps what it is given."""
    return Recorder()


@pytest.fixture
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    """A bubblewrap sandbox with an empty workspace."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as opened:
        yield opened


@pytest.fixture
def call(sandbox: Sandbox, recorder: Recorder) -> CallTool:
    """Calls one tool as a turn of one call."""

    async def call_tool(tool: Tool, **arguments: Any) -> ToolResult:
        calls = [ToolCall("call-1", tool.spec.name, arguments)]
        return (await Toolset([tool]).call_all(calls, sandbox, recorder))[0]

    return call_tool


@pytest.fixture
def context(sandbox: Sandbox) -> ToolContext:
    """The context of a call."""
    return ToolContext(sandbox=sandbox, call_id="call-1")

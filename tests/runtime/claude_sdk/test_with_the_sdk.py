"""The SDK itself over an exchange, with nobody inside but the test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ringfence.errors import UsageError
from ringfence.events import HookAnswered, PermissionDecided, ToolReturned
from ringfence.sandbox import Sandbox
from ringfence.tool import ToolContext, tool

from .conftest import Inside, request, tool_call

pytestmark = pytest.mark.anyio


@tool
def add(a: int, b: int, context: ToolContext) -> str:
    """Add two numbers."""
    return f"{context.call_id}: {a + b}"


class Talk(Inside):
    """An exchange with the SDK above it; below, the test says what the client says."""

    def __init__(self) -> None:
        super().__init__()
        self.came = anyio.Event()

    async def send(self, data: bytes) -> None:
        await super().send(data)
        if self.sent[-1]["type"] == "control_request":
            greeted = {"subtype": "success", "request_id": self.sent[-1]["request_id"], "response": {}}
            await self.exchange.take({"type": "control_response", "response": greeted})
        else:
            self.came.set()

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """What the host answers to a question."""
        self.came = anyio.Event()
        await self.exchange.take(question)
        with anyio.fail_after(20):
            await self.came.wait()
        response: dict[str, Any] = self.sent[-1]["response"]
        return response


_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
GREETING = request(
    "g",
    subtype="mcp_message",
    server_name="host",
    message={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HELLO},
)

Opened = Callable[..., Any]


@pytest.fixture
def talk(sdk: Any, sandbox: Sandbox) -> Opened:
    """Opens a talk with the options of the SDK that are given, and functions."""

    @asynccontextmanager
    async def opened(*functions: Any, **options: Any) -> AsyncIterator[Talk]:
        from ringfence.runtime.claude_sdk.host import ExchangeTransport, options_for

        wanted = options_for(sdk.ClaudeAgentOptions(**options), functions, sandbox)
        made = Talk()
        client = sdk.ClaudeSDKClient(wanted, ExchangeTransport(made.exchange))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.exchange.serve, made)
            await client.connect()
            try:
                if functions:
                    await made.ask(GREETING)
                yield made
            finally:
                await client.disconnect()
                tasks.cancel_scope.cancel()
        made.exchange.close()

    return opened


async def test_a_function_of_the_users_is_a_tool(talk: Opened):
    """Called with what the client says, and told for which of the model's calls."""
    async with talk(add) as inside:
        answered = await inside.ask(tool_call(a=2, b=3))
        result = answered["response"]["mcp_response"]["result"]
        assert result["content"] == [{"type": "text", "text": "toolu_1: 5"}]


async def test_input_that_does_not_fit_is_a_result(talk: Opened):
    """The model can mend it; the function is not called."""
    async with talk(add) as inside:
        await inside.ask(tool_call(a="two"))
        returned = inside.told[-1]
        assert isinstance(returned, ToolReturned)
        assert returned.is_error
        assert "does not fit" in returned.content


@pytest.mark.slow
async def test_the_host_is_asked_for_permission(talk: Opened, sdk: Any):
    """By the SDK's own callback, with its own types."""

    async def can_use_tool(name: str, asked: dict[str, Any], context: Any) -> Any:
        return sdk.PermissionResultDeny(message=f"no {name} {asked['command']} {context.tool_use_id}")

    async with talk(can_use_tool=can_use_tool) as inside:
        asked = request(subtype="can_use_tool", tool_name="Bash", input={"command": "rm"}, tool_use_id="t1")
        answered = await inside.ask(asked)
        assert answered["response"] == {"behavior": "deny", "message": "no Bash rm t1"}
        [decided] = inside.told
        assert isinstance(decided, PermissionDecided)
        assert decided.reason == "no Bash rm t1"


async def test_a_hook_runs_on_the_host(talk: Opened, sdk: Any):
    """And what it says is told under its occasion."""

    async def stop(asked: dict[str, Any], _call_id: str | None, _context: Any) -> Any:
        return {"decision": "block", "reason": asked["why"]}

    async with talk(hooks={"Stop": [sdk.HookMatcher(hooks=[stop])]}) as inside:
        answered = await inside.ask(
            request(subtype="hook_callback", callback_id="hook_0", input={"why": "w"})
        )
        assert answered["response"] == {"decision": "block", "reason": "w"}
        [told] = inside.told
        assert isinstance(told, HookAnswered)
        assert (told.hook, told.answer["reason"]) == ("Stop", "w")


HOSTILE: tuple[dict[str, Any], ...] = (
    {"type": "control_request"},
    {"type": "control_request", "request_id": [], "request": []},
    {"type": "control_request", "request_id": "h1", "request": {"subtype": []}},
    {"type": "control_response", "response": []},
    {"type": "control_response", "response": {"request_id": {}, "response": []}},
    {"type": "control_cancel_request", "request_id": {}},
    {"type": "control_cancel_request", "request_id": "nobody"},
    request("h2", subtype="can_use_tool", tool_name={}, input=[]),
    request(
        "h3", subtype="can_use_tool", tool_name="Bash", input={}, permission_suggestions=[{"type": []}, 7]
    ),
    request("h4", subtype="hook_callback", callback_id=[], input="x"),
    request("h5", subtype="mcp_message", server_name="host", message={"method": "tools/call", "params": []}),
    request("h6", subtype="mcp_message", server_name="host", message={"method": "nothing", "id": 1.5}),
    request("h7", subtype="mcp_message", server_name="nobody", message={"method": "tools/list", "id": 3}),
    request("h8", subtype="mcp_message", server_name="host", message={"method": "", "id": True}),
    {"type": "transcript_mirror"},
)


async def test_whatever_comes_from_inside_the_sdk_goes_on(talk: Opened):
    """After every odd message it still answers a question in its shape."""
    async with talk(add) as inside:
        for message in HOSTILE:
            await inside.exchange.take(message)
        answered = await inside.ask(tool_call(request_id="good", a=2, b=3))
        while answered["request_id"] != "good":
            inside.came = anyio.Event()
            with anyio.fail_after(20):
                await inside.came.wait()
            answered = inside.sent[-1]["response"]
        assert answered["response"]["mcp_response"]["result"]["content"][0]["text"] == "toolu_1: 5"


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"system_prompt": "x"}, "system_append"),
        ({"env": {"A": "b"}}, "`env`"),
        ({"cwd": "/"}, "workspace"),
        ({"mcp_servers": {"files": {"command": "files"}}}, "does not run in this process"),
        ({"mcp_servers": "servers.json"}, "does not run in this process"),
        ({"include_partial_messages": True}, "leave it out"),
    ],
    ids=str,
)
async def test_an_option_without_effect_is_refused(sdk: Any, given: dict[str, Any], instead: str):
    """It names what has the effect instead."""
    from ringfence.runtime.claude_sdk.host import check_options

    with pytest.raises(UsageError) as told:
        check_options(sdk.ClaudeAgentOptions(**given))
    assert instead in str(told.value)


async def test_a_server_of_the_users_does_not_hide_behind_ours(talk: Opened, sdk: Any):
    """Two servers of one name cannot both be called."""
    servers = {"host": sdk.create_sdk_mcp_server("host")}
    with pytest.raises(UsageError, match="choose another name for yours"):
        async with talk(add, mcp_servers=servers):
            pass

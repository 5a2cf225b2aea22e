from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence.errors import ConfigurationError, LimitReached, SandboxDied
from ringfence.events import Event, ToolCalled
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.tool import McpServer, ToolCall, ToolResult, Toolset, open_toolset

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

EXAMPLE = Path(__file__).with_name("mcp_example.py")
Serve = Callable[..., AbstractAsyncContextManager[Toolset]]


@pytest.fixture
def serve(sandbox: Sandbox) -> Serve:
    """Opens a toolset with the example server in one of its modes."""

    @asynccontextmanager
    async def open_server(mode: str, **more: Any) -> AsyncIterator[Toolset]:
        await sandbox.write_file("server.py", EXAMPLE.read_bytes())
        server = McpServer(name="ex", command=("python3", "server.py", mode), **more)
        async with open_toolset("operator", sandbox=sandbox, mcp_servers=[server]) as toolset:
            yield toolset

    return open_server


async def echo(toolset: Toolset, sandbox: Sandbox, emit: Any, **arguments: Any) -> ToolResult:
    """One call of the server's tool."""
    with anyio.fail_after(30):
        return (await toolset.call_all([ToolCall("c", "ex__echo", arguments)], sandbox, emit))[0]


async def test_its_tools_are_named_after_the_server(serve: Serve) -> None:
    """Beside the toolset's own, with the server's description and schema."""
    async with serve("good") as toolset:
        assert [spec.name for spec in toolset.specs] == ["shell", "ex__echo"]
        assert toolset.specs[1].description == "Say it."
        assert toolset.specs[1].input_schema["required"] == ["text"]


async def test_structured_content_stands_in_for_text(serve: Serve, sandbox: Sandbox, recorder: Any) -> None:
    """Also where it breaks the server's own schema: that is not run on the host."""
    async with serve("structured") as toolset:
        assert (await echo(toolset, sandbox, recorder, text="x")).content == '{"not": "promised"}'


@pytest.mark.parametrize("mode", ["good", "junk"])
async def test_a_call(serve: Serve, sandbox: Sandbox, recorder: Any, mode: str) -> None:
    """What it prints besides does not matter."""
    async with serve(mode) as toolset:
        for text in ("a", "b"):
            assert await echo(toolset, sandbox, recorder, text=text) == ToolResult(f"echo {text}")


async def test_input_that_lacks_a_required_name_is_refused_on_the_host(
    serve: Serve, sandbox: Sandbox, recorder: Any
) -> None:
    """Without asking the server."""
    async with serve("die") as toolset:
        result = await echo(toolset, sandbox, recorder)
    assert result == ToolResult(
        "the input does not fit 'ex__echo': $: 'text' is a required property", is_error=True
    )


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("die", "'ex' is gone: it closed its output"),
        ("hang", "'ex' did not answer within 0.5 s"),
        ("huge-line", "'ex' is gone: it wrote a line of more than"),
        ("flood", "'ex' is gone: it wrote more than"),
        ("requests", "'ex' is gone: it sent more than 1000 requests"),
        ("wrong-shape", "ex__echo failed"),
        ("error", "cannot"),
    ],
)
async def test_a_server_that_fails_gives_error_results(
    serve: Serve, sandbox: Sandbox, recorder: Any, mode: str, expected: str
) -> None:
    """The run goes on; a second call does not hang either."""
    timeout_s = 0.5 if mode == "hang" else 20.0
    async with serve(mode, call_timeout_s=timeout_s) as toolset:
        first = await echo(toolset, sandbox, recorder, text="x")
        second = await echo(toolset, sandbox, recorder, text="x")
    assert first.is_error
    assert expected in first.content
    assert second.is_error


async def test_what_is_no_text_is_named(serve: Serve, sandbox: Sandbox, recorder: Any) -> None:
    """A picture is not pasted into the conversation as base64."""
    async with serve("image") as toolset:
        result = await echo(toolset, sandbox, recorder, text="x")
    assert result.content == "[image of type image/png, not shown]"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("silent", "did not answer within 0.5 s"),
        ("many", "more than 128 tools"),
        ("big-schema", "bytes; the limit is 65536"),
        ("long-name", "longer than 64 characters"),
        ("twice", "two tools are named 'ex__e_o'"),
    ],
)
async def test_a_server_that_cannot_be_used_is_refused(serve: Serve, mode: str, expected: str) -> None:
    """At the start, with what is wrong."""
    with pytest.raises(ConfigurationError, match=expected):
        async with serve(mode, start_timeout_s=0.5 if mode == "silent" else 30.0):
            pass


async def test_a_server_that_is_not_there_is_refused(sandbox: Sandbox) -> None:
    """With the way to try its command."""
    server = McpServer(name="ex", command=("no-such-server", "two words"))
    with pytest.raises(ConfigurationError, match="ringfence exec -- no-such-server 'two words'"):
        async with open_toolset("operator", sandbox=sandbox, mcp_servers=[server]):
            pass


async def test_errors_inside_come_out_as_themselves(serve: Serve) -> None:
    """Not wrapped in groups by the tasks that serve the connection."""
    with pytest.raises(LimitReached):
        async with serve("good"):
            raise LimitReached("turns", allowed=1, used=1)


async def test_a_dead_sandbox_is_told_as_such(recorder: Any) -> None:
    """It is not the server's failure."""
    server = McpServer(name="ex", command=("python3", "-c", EXAMPLE.read_text(), "hang"))
    with pytest.raises(SandboxDied, match="SIGKILL"):
        await call_until_dead(server, recorder)


async def call_until_dead(server: McpServer, emit: Any) -> None:
    """A call whose sandbox is killed from outside, once it is recorded as called."""

    async def kill(event: Event) -> None:
        await emit(event)
        if isinstance(event, ToolCalled):
            sandbox.session.fence.process.kill()  # type: ignore[attr-defined]

    async with (
        Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
        open_toolset("operator", sandbox=sandbox, mcp_servers=[server]) as toolset,
    ):
        await echo(toolset, sandbox, kill, text="x")


async def test_leaving_ends_the_server(serve: Serve, sandbox: Sandbox) -> None:
    """No process of it is left."""
    async with serve("good"):
        assert (await sandbox.run(["pgrep", "-f", "server.py"])).ok
    assert not (await sandbox.run(["pgrep", "-f", "server.py"])).ok


@pytest.mark.parametrize("name", ["", "a__b", "a b", "_a", "x" * 40])
def test_names_that_would_blur_are_refused(name: str) -> None:
    """`server__tool` must be readable one way only."""
    with pytest.raises(ValueError, match="cannot name an MCP server"):
        McpServer(name=name, command=("x",))

from typing import Any

import anyio
import pytest

from ringfence.errors import ConfigurationError, InfrastructureFault, PolicyRefused, SandboxDied, UsageError
from ringfence.events import Event, ToolCalled
from ringfence.sandbox import Sandbox
from ringfence.tool import Tool, ToolCall, ToolContext, ToolResult, Toolset, ToolSpec, open_toolset, tool
from ringfence.tool.toolset import RESULT_LIMIT_CHARS

pytestmark = pytest.mark.anyio


@tool
async def fails(how: str) -> str:
    """Fail."""
    raise {"value": ValueError("bad luck"), "policy": PolicyRefused("not that", rule="r")}[how]


@tool(read_only=True)
async def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


async def one(toolset: Toolset, sandbox: Sandbox, emit: Any, name: str, arguments: Any) -> ToolResult:
    """A turn of one call."""
    return (await toolset.call_all([ToolCall("c1", name, arguments)], sandbox, emit))[0]


async def test_results_come_in_the_order_of_the_calls(sandbox: Sandbox, recorder: Any) -> None:
    """Also where the first call is over last."""
    second_done = anyio.Event()

    @tool(read_only=True)
    async def wait() -> str:
        """Wait for the other."""
        await second_done.wait()
        return "waited"

    @tool(read_only=True)
    async def release() -> str:
        """Let the other go."""
        second_done.set()
        return "released"

    calls = [ToolCall("a", "wait", {}), ToolCall("b", "release", {}), ToolCall("c", "look", {"what": "x"})]
    with anyio.fail_after(10):
        results = await Toolset([wait, release, look]).call_all(calls, sandbox, recorder)
    assert [result.content for result in results] == ["waited", "released", "saw x"]


async def test_calls_that_change_things_run_alone_and_in_order(sandbox: Sandbox, recorder: Any) -> None:
    """The second begins when the first is over; a read after a write sees what was written."""
    async with open_toolset("coder", sandbox=sandbox) as toolset:
        calls = [
            ToolCall("1", "shell", {"command": "echo one > f; sleep 0.1", "reasoning": "test"}),
            ToolCall("2", "shell", {"command": "echo two >> f", "reasoning": "test"}),
            ToolCall("3", "read_file", {"path": "f"}),
        ]
        results = await toolset.call_all(calls, sandbox, recorder)
    assert results[2].content == "     1\tone\n     2\ttwo"
    assert recorder.told == [(what, call) for call in "123" for what in ("called", "returned")]


async def test_the_call_is_told_before_it_acts(sandbox: Sandbox) -> None:
    """When the tool runs, `tool.called` has been recorded; `tool.returned` comes after."""
    order: list[str] = []

    @tool
    async def act() -> str:
        """Act."""
        order.append("act")
        return ""

    async def emit(event: Event) -> None:
        order.append(event.name)

    await one(Toolset([act]), sandbox, emit, "act", {})
    assert order == ["tool.called", "act", "tool.returned"]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("nothing", {}, "there is no tool 'nothing'; there are: fails, look"),
        ("look", {"what": 3}, "the input does not fit 'look': $.what: 3 is not of type 'string'"),
        ("look", "text", "the input does not fit 'look': the input must be a JSON object, not str"),
        ("fails", {"how": "value"}, "fails failed: ValueError: bad luck"),
        ("fails", {"how": "policy"}, "not that"),
    ],
    ids=["unknown tool", "wrong type", "no object", "exception", "our own error"],
)
async def test_what_goes_wrong_is_an_error_result_and_recorded(
    sandbox: Sandbox, recorder: Any, name: str, arguments: Any, expected: str
) -> None:
    """The run goes on, and the record has both ends of the call."""
    assert await one(Toolset([fails, look]), sandbox, recorder, name, arguments) == ToolResult(
        expected, is_error=True
    )
    assert recorder.told == [("called", "c1"), ("returned", "c1")]
    assert recorder.returned[0].content == expected


async def test_a_failure_beside_others_does_not_stop_them(sandbox: Sandbox, recorder: Any) -> None:
    """Each call of a turn has its own result."""
    calls = [ToolCall("a", "nothing", {}), ToolCall("b", "look", {"what": "x"})]
    results = await Toolset([look]).call_all(calls, sandbox, recorder)
    assert [result.is_error for result in results] == [True, False]


async def test_results_are_cut_whatever_the_tool(sandbox: Sandbox, recorder: Any) -> None:
    """A user's function cannot fill the window by accident."""

    @tool
    def flood() -> str:
        """Flood."""
        return "x" * 1_000_000

    result = await one(Toolset([flood]), sandbox, recorder, "flood", {})
    assert "\n[... 900000 bytes cut ...]\n" in result.content
    assert len(result.content) < RESULT_LIMIT_CHARS + 50


@pytest.mark.parametrize("tools", [1, 3], ids=["alone", "beside others"])
async def test_a_cancelled_call_is_ended_in_the_record(sandbox: Sandbox, recorder: Any, tools: int) -> None:
    """Every call that was begun has its end, also in the middle of a cancellation."""
    begun = anyio.Event()

    @tool(read_only=True)
    async def hang() -> str:
        """Hang."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async with anyio.create_task_group() as group:
        calls = [ToolCall(str(number), "hang", {}) for number in range(tools)]
        group.start_soon(Toolset([hang]).call_all, calls, sandbox, recorder)
        await begun.wait()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    called = [event.call_id for event in recorder.events if isinstance(event, ToolCalled)]
    assert sorted(event.call_id for event in recorder.returned) == sorted(called)
    assert all(event.is_error and event.content.startswith("cancelled") for event in recorder.returned)


async def test_a_cancelled_shell_call_leaves_no_process(sandbox: Sandbox, recorder: Any) -> None:
    """Cancelling in the middle of a command kills it."""
    begun = anyio.Event()

    async def emit(event: Event) -> None:
        await recorder(event)
        begun.set()

    async with open_toolset("operator", sandbox=sandbox) as toolset, anyio.create_task_group() as group:
        calls = [ToolCall("a", "shell", {"command": "touch began; sleep 1234", "reasoning": "test"})]
        group.start_soon(toolset.call_all, calls, sandbox, emit)
        await begun.wait()
        seen = await sandbox.run(["sh", "-c", "until [ -e began ]; do sleep 0.01; done"], timeout_s=10)
        assert seen.ok
        group.cancel_scope.cancel()
    assert (await sandbox.run(["pgrep", "-f", "sleep 1234"])).exit_code == 1
    assert recorder.told == [("called", "a"), ("returned", "a")]


@pytest.mark.parametrize("beside", [0, 2])
async def test_a_dead_sandbox_goes_through(sandbox: Sandbox, recorder: Any, beside: int) -> None:
    """As itself, not wrapped in a group, and the call has its end in the record."""

    @tool(read_only=True)
    async def die() -> str:
        """Die."""
        raise SandboxDied("gone", sandbox_id="s", reason="killed")

    calls = [ToolCall("d", "die", {}), *(ToolCall(f"l{n}", "look", {"what": "x"}) for n in range(beside))]
    with pytest.raises(SandboxDied, match="gone"):
        await Toolset([die, look]).call_all(calls, sandbox, recorder)
    assert ("returned", "d") in recorder.told


async def test_a_record_that_fails_goes_through(sandbox: Sandbox) -> None:
    """An act that cannot be recorded is not done."""

    async def emit(event: Event) -> None:
        raise InfrastructureFault("disk full")

    with pytest.raises(InfrastructureFault, match="disk full"):
        await one(Toolset([look]), sandbox, emit, "look", {"what": "x"})


async def test_two_tools_of_one_name_are_refused(sandbox: Sandbox) -> None:
    """A user's function cannot take the place of `shell`."""

    @tool(name="shell")
    def mine() -> str:
        """Mine."""
        return ""

    with pytest.raises(ConfigurationError, match="two tools are named 'shell'"):
        async with open_toolset("operator", sandbox=sandbox, functions=[mine]):
            pass


async def test_an_unknown_toolset_is_refused_with_the_known_ones(sandbox: Sandbox) -> None:
    """The next step is in the text."""
    with pytest.raises(UsageError, match="'nope'; there are: coder, operator"):
        async with open_toolset("nope", sandbox=sandbox):
            pass


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("operator", ["shell"]),
        ("coder", ["shell", "read_file", "write_file", "edit_file", "list_files", "search"]),
    ],
)
async def test_what_a_toolset_offers(sandbox: Sandbox, name: str, tools: list[str]) -> None:
    """The definitions are in the Messages API's shape."""
    async with open_toolset(name, sandbox=sandbox) as toolset:
        assert [definition["name"] for definition in toolset.definitions] == tools
        assert all(set(each) == {"name", "description", "input_schema"} for each in toolset.definitions)


class Raw(Tool):
    spec = ToolSpec("raw", "", {"type": "object"})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("half \ud83d")


async def test_a_result_that_is_no_text_is_mended(sandbox: Sandbox, recorder: Any) -> None:
    """No journal and no request could hold it."""
    assert (await one(Toolset([Raw()]), sandbox, recorder, "raw", {})).content == "half \ufffd"


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({"allowed": ["look"]}, ["look"]),
        ({"denied": ["shell"]}, ["look"]),
        ({"allowed": ["look", "shell"], "denied": ["look"]}, ["shell"]),
        ({}, ["shell", "look"]),
    ],
    ids=["allowed", "denied", "both", "neither"],
)
async def test_only_chosen_tools_are_there(
    sandbox: Sandbox, chosen: dict[str, Any], names: list[str]
) -> None:
    """The model is not even told of the others."""
    async with open_toolset("operator", sandbox=sandbox, functions=[look], **chosen) as toolset:
        assert [spec.name for spec in toolset.specs] == names


@pytest.mark.parametrize("how", ["allowed", "denied"])
async def test_a_tool_that_is_not_there_cannot_be_chosen(sandbox: Sandbox, how: str) -> None:
    """A name with a mistake in it would leave something open, or all shut."""
    chosen: dict[str, Any] = {how: ["Bash"]}
    with pytest.raises(UsageError, match="the agent has no tool 'Bash'; it has: shell"):
        async with open_toolset("operator", sandbox=sandbox, **chosen):
            pass

"""A client under the SDK, good or bad: a real process in a real sandbox."""

from typing import Any

import anyio
import pytest
from tests.runtime.agent_cli.fake import SOURCE, asked

from ringfence.egress.gateway.gateway import Gateway
from ringfence.errors import ConfigurationError, InfrastructureFault, LimitReached, RingfenceError, UsageError
from ringfence.events import Event, ModelReplied, ToolCalled, ToolReturned, TranscriptNoted
from ringfence.runtime import Limits, Task
from ringfence.runtime.agent_cli.base import Program
from ringfence.runtime.base import RuntimeResult
from ringfence.runtime.claude_sdk import ClaudeSdkRuntime
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox
from ringfence.tool import FunctionTool, tool

from .double import call, greet, program

pytestmark = pytest.mark.anyio

Step = list[Any]
HOST_CALLS: list[Step] = [
    ["ask", "r0", greet()],
    ["hear", "r0"],
    ["ask", "r1", call(a=2, b=3)],
    ["hear", "r1"],
]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Bench:
    """Runs the double."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.path = f"{sandbox.workspace}/claude"
        self.events: list[Event] = []
        self.told = anyio.Event()

    async def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        self.told.set()

    async def run(
        self,
        *steps: Step,
        source: bytes = program(SOURCE),
        functions: tuple[FunctionTool, ...] = (),
        limits: Limits | None = None,
        sdk_options: Any = None,
        **options: Any,
    ) -> RuntimeResult:
        """Run to the end."""
        await self.sandbox.write_file(self.path, source, mode=0o755)
        runtime = ClaudeSdkRuntime(
            Program(self.path, "1"), Gateway([]), options=sdk_options, functions=functions, limits=limits
        )
        task = Task(prompt=asked(*steps), model="fake", options=Options(**options))
        with anyio.fail_after(60):
            return await runtime.run(task, self.sandbox, self.emit)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def noted(self, kind: str) -> Any:
        """What a line of the double's own says."""
        [found] = [event.record for event in self.of(TranscriptNoted) if event.kind == kind]
        return found


@pytest.fixture
def bench(sdk: Any, sandbox: Sandbox) -> Bench:
    """A place to run the double."""
    return Bench(sandbox)


async def test_a_client_is_followed_to_its_end(bench: Bench):
    """Its replies are events with their line, as of the command line client; its input is closed at its result."""
    result = await bench.run(["reply", "m1", "I look."], ["result", "all done"], ["sleep", 0])
    assert (result.ended_by, result.final_text) == ("done", "all done")
    [replied] = bench.of(ModelReplied)
    assert replied.origin.file == "claude:stdout"


async def test_nothing_of_the_hosts_environment_is_inside(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """The SDK by itself would hand the client all of it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "zqzq-key")
    monkeypatch.setenv("SOMETHING_OF_THE_HOST", "zqzq-marker")
    await bench.run(["surroundings"], ["result"])
    found = bench.noted("surroundings")
    assert found["environment"]["CLAUDE_CODE_ENTRYPOINT"] == "sdk-py"
    assert "zqzq" not in str(found)
    assert "SOMETHING_OF_THE_HOST" not in found["environment"]


async def test_a_function_called_from_inside_is_told_by_the_host(bench: Bench):
    """Also where no model asked for it: whoever is inside may call what is offered there."""
    await bench.run(*HOST_CALLS, ["result"], functions=(add,))
    [called], [returned] = bench.of(ToolCalled), bench.of(ToolReturned)
    assert (called.tool, called.arguments) == ("mcp__host__add", {"a": 2, "b": 3})
    assert (returned.content, returned.call_id) == ("5", called.call_id)


async def test_what_the_client_says_of_the_hosts_tools_is_not_told_again(bench: Bench):
    """Of what ran here, the record is the host's own; of everything else, the client's."""
    calls = [["c1", "mcp__host__add", {"a": 2}], ["c2", "Bash", {"command": "true"}]]
    await bench.run(["reply", "m1", "", *calls], ["result"], functions=(add,))
    assert [event.tool for event in bench.of(ToolCalled)] == ["Bash"]


@pytest.mark.slow
async def test_calls_of_the_hosts_tools_count(bench: Bench):
    """A limit on tool calls holds for them, too."""
    with pytest.raises(LimitReached) as told:
        await bench.run(*HOST_CALLS, ["until_interrupted"], functions=(add,), limits=Limits(tool_calls=0))
    assert told.value.limit == "tool_calls"


async def test_a_client_that_refuses_its_arguments_is_told_by_its_words(bench: Bench):
    """It ends before the SDK is greeted; the reason is what it printed."""
    with pytest.raises(ConfigurationError, match="no such flag"):
        await bench.run(source=b"#!/bin/sh\necho no such flag >&2\nexit 1\n")


@pytest.mark.slow
async def test_a_client_that_never_answers_is_ended(bench: Bench):
    """Silence is a fault of its own."""
    with pytest.raises(InfrastructureFault, match="printed nothing for"):
        await bench.run(source=b"#!/bin/sh\nexec sleep 1000\n", idle_timeout_s=1)


@pytest.mark.slow
async def test_a_client_that_waits_for_the_host_is_not_silent(bench: Bench):
    """However long the host's function takes."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers, at leisure."""
        await anyio.sleep(6)  # longer than the silence that is allowed
        return a + b

    result = await bench.run(*HOST_CALLS, ["result"], functions=(add,), idle_timeout_s=5)
    assert result.ended_by == "done"


@pytest.mark.slow
async def test_a_client_is_interrupted_before_it_is_sent_a_signal(bench: Bench):
    """It can end in order, and what it says last is in the record."""
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await bench.run(["reply", "m1", "I wait."], ["line", {"type": "waits"}], ["until_interrupted"])

        tasks.start_soon(run)
        while not bench.of(TranscriptNoted):
            bench.told = anyio.Event()
            await bench.told.wait()
        tasks.cancel_scope.cancel()
    assert bench.of(TranscriptNoted)[-1].record["result"] == "interrupted"


async def test_a_client_that_prints_anything_is_followed(bench: Bench):
    """Half a line, no JSON, control messages of other shapes: noted or refused, and the run goes on."""
    lines: list[Step] = [
        ["raw", "no json\n"],
        ["line", ["control_request"]],
        ["line", {"type": "control_request", "request": 7}],
        ["line", {"type": "control_response", "response": {"request_id": {}}}],
        ["line", {"type": "system", "subtype": "session_state_changed", "state": {}}],
        ["line", {"type": "system", "subtype": "task_started", "task_id": [], "task_type": {}}],
        ["line", {"type": "system", "subtype": "session_state_changed", "state": "idle"}],
        ["ask", "r9", {"subtype": "unheard of"}],
        ["hear", "r9"],
    ]
    result = await bench.run(*lines, *HOST_CALLS, ["result"], ["raw", '{"type": "assi'], functions=(add,))
    assert result.ended_by == "done"
    answers = [event.record["answer"] for event in bench.of(TranscriptNoted) if event.kind == "answered"]
    assert [answer["subtype"] for answer in answers] == ["error", "success", "success"]


async def test_a_flood_of_questions_is_bounded(bench: Bench):
    """What is beyond the bound is refused, and the client still comes to its end."""
    flood: list[Step] = [["ask", f"f{number}", call(a=number, b=1)] for number in range(300)]
    result = await bench.run(
        HOST_CALLS[0],
        HOST_CALLS[1],
        *flood,
        *(["hear", f"f{n}"] for n in range(300)),
        ["result"],
        functions=(add,),
    )
    assert result.ended_by == "done"
    assert len(bench.of(ToolCalled)) == len(bench.of(ToolReturned)) <= 300


async def test_a_callback_that_could_never_be_asked_is_refused(bench: Bench, sdk: Any):
    """Rather than being silent about it."""

    async def can_use_tool(*_: Any) -> Any:
        return sdk.PermissionResultAllow()

    options = sdk.ClaudeAgentOptions(can_use_tool=can_use_tool)
    with pytest.raises(UsageError, match="never asks the host"):
        await bench.run(["result"], sdk_options=options, permission_mode="bypass")


async def test_a_record_that_cannot_be_written_ends_the_run(bench: Bench):
    """A function whose call cannot be recorded is not called."""
    called = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        called.append(a)
        return a + b

    async def full(event: Event) -> None:
        if isinstance(event, ToolCalled):
            raise InfrastructureFault("the disk is full")

    bench.emit = full  # type: ignore[method-assign]
    with pytest.raises(RingfenceError, match="disk is full"):
        await bench.run(*HOST_CALLS, ["result"], functions=(add,))
    assert called == []

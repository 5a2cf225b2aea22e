"""A client run by its runtime: a real process in a real sandbox, good or bad."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from tests.runtime.client.fake import FakeClient, asked

from ringfence.errors import (
    ConfigurationError,
    InfrastructureFault,
    LimitReached,
)
from ringfence.events import Event, ModelReplied, ToolCalled, ToolReturned, TranscriptNoted
from ringfence.runtime import Limits, RuntimeResult, Task
from ringfence.runtime.client.base import Program
from ringfence.runtime.client.runtime import ClientRuntime
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox

pytestmark = pytest.mark.anyio

Step = list[Any]


class Bench:
    """Runs the fake client."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.events: list[Event] = []
        self.on_event: Callable[[Event], None] = lambda _: None

    async def emit(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        self.on_event(event)

    async def run(
        self,
        *steps: Step,
        limits: Limits | None = None,
        options: Options | None = None,
        program: str = "python3",
        stopped: Callable[[], Awaitable[Exception]] | None = None,
        client: FakeClient | None = None,
    ) -> RuntimeResult:
        """Run to the end."""
        runtime = ClientRuntime(client or FakeClient(), Program(program, "1"), limits=limits, stopped=stopped)
        task = Task(prompt=asked(*steps), model="fake", options=options or Options())
        with anyio.fail_after(60):
            return await runtime.run(task, self.sandbox, self.emit)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def bench(sandbox: Sandbox) -> Bench:
    """A place to run clients."""
    return Bench(sandbox)


async def test_a_client_is_followed_to_its_end(bench: Bench) -> None:
    """Replies, calls and results are events with their line; the last word is the result."""
    result = await bench.run(
        ["reply", "m1", "I look.", ["c1", "Bash", {"command": "ls"}]],
        ["returned", "c1", "a.py"],
        ["reply", "m2", "All is well."],
        ["result", "All is well."],
    )
    assert (result.ended_by, result.final_text, result.turns) == ("done", "All is well.", 2)
    assert result.session_id == "s-1"
    [first, second] = bench.of(ModelReplied)
    assert (first.origin.line, second.origin.line) == (1, 3)
    assert bench.of(ToolCalled)[0].arguments == {"command": "ls"}
    assert bench.of(ToolReturned)[0].content == "a.py"


async def test_what_a_client_says_it_used_is_not_believed(bench: Bench) -> None:
    """The gateway counts; the runtime's own result has none."""
    result = await bench.run(["reply", "m1", "x"], ["result"])
    assert (result.usage.total, result.cost_usd) == (0, None)


async def test_a_prompt_of_a_megabyte_arrives(bench: Bench) -> None:
    """It goes by stdin, where nothing limits it."""
    text = "ä" * 1024 * 1024
    await bench.run(["digest", text], ["result"])
    noted = next(event for event in bench.of(TranscriptNoted) if event.kind == "digest")
    assert noted.record["sha256"] == hashlib.sha256(text.encode()).hexdigest()


async def test_files_of_a_client_are_there_before_it_starts(bench: Bench) -> None:
    """Its configuration, say; nobody else may read it."""
    await bench.run(["result"], client=FakeClient(**{"one.json": b"1", "two.json": b"22"}))
    for name, data in (("one.json", b"1"), ("two.json", b"22")):
        assert await bench.sandbox.read_file(f"{bench.sandbox.facts.home}/{name}") == data


async def test_a_program_that_is_not_there_is_a_wrong_configuration(bench: Bench) -> None:
    """And no fault of the agent's."""
    with pytest.raises(ConfigurationError, match="cannot be started inside"):
        await bench.run(["result"], program="/opt/none/claude")


async def test_the_turn_after_the_last_is_not_waited_for(bench: Bench) -> None:
    """A reply that calls a tool will be followed by another: at the limit the client is ended."""
    with pytest.raises(LimitReached) as caught:
        await bench.run(
            ["reply", "m1", "", ["c1", "Bash", {}]],
            ["reply", "m2", "", ["c2", "Bash", {}]],
            ["sleep", 3600],
            limits=Limits(turns=2),
        )
    assert (caught.value.limit, caught.value.used) == ("turns", 2)


async def test_the_last_turn_may_be_used(bench: Bench) -> None:
    """A bound is not reached by coming to it."""
    result = await bench.run(
        ["reply", "m1", "", ["c1", "Bash", {}]],
        ["reply", "m2", "fine"],
        ["result"],
        limits=Limits(turns=2, tool_calls=1),
    )
    assert result.ended_by == "done"


async def test_tool_calls_are_bounded(bench: Bench) -> None:
    """By what the client tells of them."""
    with pytest.raises(LimitReached) as caught:
        await bench.run(
            ["reply", "m1", "", ["c1", "Bash", {}], ["c2", "Bash", {}]],
            ["sleep", 3600],
            limits=Limits(tool_calls=1),
        )
    assert (caught.value.limit, caught.value.used) == ("tool_calls", 2)


async def test_silence_ends_a_client(bench: Bench) -> None:
    """Where a bound on it is asked for."""
    with pytest.raises(InfrastructureFault, match=r"said nothing for 0\.2 s"):
        await bench.run(
            ["reply", "m1", "x"],
            ["heed", "SIGINT", "x"],
            ["sleep", 3600],
            options=Options(idle_timeout_s=0.2),
        )

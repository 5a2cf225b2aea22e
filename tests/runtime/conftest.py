"""A model of our own behind the contract (the real one costs money), a real sandbox, and what was emitted."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from ringfence.events import Emit, Event, Usage
from ringfence.model.base import Model, ModelReply, ModelRequest
from ringfence.runtime import Limits, Task
from ringfence.runtime.api import ApiRuntime
from ringfence.runtime.base import RuntimeResult
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.tool import FunctionTool, Toolset, open_toolset, tool

Answer = ModelReply | Exception


def reply(
    *blocks: dict[str, Any] | str, stop: str | None = None, usage: Usage | None = None, model: str = "fake"
) -> ModelReply:
    """A reply: texts and blocks; it stops for tool_use if a tool is called."""
    content = tuple({"type": "text", "text": block} if isinstance(block, str) else block for block in blocks)
    calls = any(block["type"] == "tool_use" for block in content)
    return ModelReply(
        content=content,
        stop_reason=stop or ("tool_use" if calls else "end_turn"),
        usage=usage or Usage(input_tokens=10, output_tokens=5),
        model=model,
        message_id="msg",
    )


def use(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


class ListedModel(Model):
    """Answers from a list and keeps the requests."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    """Runs a task against listed answers."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.events: list[Event] = []
        self.model: Any = ListedModel([])
        self.runtime: ApiRuntime | None = None

    async def emit(self, event: Event) -> None:
        self.events.append(event)

    async def run(
        self,
        *answers: Answer,
        model: Model | None = None,
        functions: Sequence[FunctionTool] = (),
        limits: Limits | None = None,
        task: Task | None = None,
        **more: Any,
    ) -> RuntimeResult:
        """Run to the end."""
        self.model = model or ListedModel(answers)
        async with open_toolset("operator", sandbox=self.sandbox, functions=functions) as toolset:
            self.runtime = ApiRuntime(model=self.model, toolset=toolset, limits=limits, **more)
            task = task or Task(prompt="do it", model="fake", system="Work.")
            return await self.runtime.run(task, self.sandbox, self.emit)

    @staticmethod
    def task_after(result: RuntimeResult) -> Task:
        """A task that goes on with a conversation."""
        return Task(prompt="go on", model="fake", system="Work.", conversation=result.conversation)

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def names(self) -> list[str]:
        """The names of the events."""
        return [event.name for event in self.events]


@pytest.fixture
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    """A bubblewrap sandbox with an empty workspace."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as opened:
        yield opened


@pytest.fixture
def bench(sandbox: Sandbox) -> Bench:
    """A place to run tasks."""
    return Bench(sandbox)


@pytest.fixture
def make_reply() -> Callable[..., ModelReply]:
    """Makes a reply; see `reply`."""
    return reply


@pytest.fixture
def make_use() -> Callable[..., dict[str, Any]]:
    """Makes a call of a tool; see `use`."""
    return use


@pytest.fixture
def say() -> FunctionTool:
    """A tool that gives back its text."""

    @tool(name="say")
    async def function(text: str) -> str:
        """Say it."""
        return text

    return function


@pytest.fixture
def toolset(say: FunctionTool) -> Toolset:
    """The toolset of `say` alone."""
    return Toolset([say])

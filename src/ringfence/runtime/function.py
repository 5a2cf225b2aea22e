"""A plain async function as a runtime: for agents that are a few lines of Python, and for tests."""

from collections.abc import Awaitable, Callable

from ringfence.events import Usage
from ringfence.runtime.base import Emit, Runtime, RuntimeResult, Task
from ringfence.sandbox import Sandbox

AgentFunction = Callable[[Task, Sandbox, Emit], Awaitable[RuntimeResult | str]]


class FunctionRuntime(Runtime):
    """Runs `function(task, sandbox, emit)`.

    Args:
        function: Gives a `RuntimeResult`, or just the final text. What it raises goes through.
    """

    def __init__(self, function: AgentFunction) -> None:
        self._function = function

    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Call the function."""
        result = await self._function(task, sandbox, emit)
        if isinstance(result, RuntimeResult):
            return result
        return RuntimeResult(
            ended_by="done",
            final_text=result,
            conversation=task.conversation,
            usage=Usage(),
            turns=0,
            cost_usd=None,
        )

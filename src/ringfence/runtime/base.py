"""Defines the contract of a runtime, which runs an agent on a task. A runtime does not know which sandbox it is in."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Any, ClassVar

from ringfence.events import Emit, Usage
from ringfence.frozen import frozen
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox


@frozen
class Session:
    """The session that an agent CLI saves, and the one that it resumes. The ids are the CLI's own."""

    new_id: str
    """A UUID for a session that is started or forked; a CLI that chooses its own ids reports them (`RuntimeResult`)."""
    resumed_id: str | None = None
    """The session to resume, whose files are already inside."""
    is_forked: bool = False
    """Whether that session stays unchanged, and a new one continues from it."""


@frozen
class Task:
    """An agent's task."""

    prompt: str
    model: str
    system: str = ""
    """The system prompt, for the runtime `api`; agent CLIs get theirs by the options."""
    conversation: tuple[dict[str, Any], ...] = ()
    """The earlier messages, for `run --continue`."""
    options: Options = field(default_factory=Options)
    """The options; `check_options` refuses options that a runtime does not support before it starts."""
    session: Session | None = None
    """The agent CLI's own session, for runtimes that run one."""


@frozen
class RuntimeResult:
    """How the agent's own part ended, which does not say whether its work is correct."""

    ended_by: str
    """`done`, `refused` (the model declined), `context` (window full), `max_tokens` (reply cut); for agent CLIs also
    `denied` (done, but not permitted everything that it wanted), `limit` (one of its own), `no_structured_output`,
    `unasked` (it made no request to a model)."""
    final_text: str
    conversation: tuple[dict[str, Any], ...]
    usage: Usage
    turns: int
    cost_usd: float | None
    """None if the price of the model is unknown."""
    session_id: str | None = None
    """The agent CLI's own session, for runtimes that run one."""
    structured_output: Any = None
    """The agent's answer in the form of the task's output schema; None without a schema."""
    denied: tuple[str, ...] = ()
    """The tools that it requested but was not permitted to use."""
    reason: str = ""
    """How it ended, as text for the user; empty if `ended_by` is sufficient."""


class Runtime(ABC):
    """Runs one task to its end."""

    records_replies: ClassVar[bool] = False
    """Whether it records each reply of the model, so that its final answer needs no separate event."""

    @abstractmethod
    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Work on `task` in `sandbox`. Cancellable at every await.

        Raises:
            LimitReached: A limit on turns, tool calls, tokens or cost.
            AuthenticationFailed, InfrastructureFault, UsageError: From the model.
            SandboxDied: The sandbox is gone.
        """


AgentFunction = Callable[[Task, Sandbox, Emit], Awaitable[RuntimeResult | str]]


class FunctionRuntime(Runtime):
    """Runs an async function as an agent.

    Args:
        function: Returns a `RuntimeResult`, or only the final text. Its exceptions are raised unchanged.
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

"""The contract of a runtime: who thinks. A runtime does not know which fence it is in."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ringfence.events import Event, Usage
from ringfence.sandbox import Sandbox

Emit = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True)
class Task:
    """What an agent is asked to do."""

    prompt: str
    model: str
    system: str | None = None
    toolset: str = "coder"
    conversation: tuple[dict[str, Any], ...] = ()
    """Earlier messages, for `run --continue`."""


@dataclass(frozen=True)
class RuntimeResult:
    """How the agent's own part ended. Says nothing about whether the work is right."""

    ended_by: str
    """`done`, `refused` (the model declined), `context` (window full), `max_tokens` (reply cut)."""
    final_text: str
    conversation: tuple[dict[str, Any], ...]
    usage: Usage
    turns: int
    cost_usd: float | None
    """None where the price of the model is unknown."""


class Runtime(ABC):
    """Runs one task to its end."""

    @abstractmethod
    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Work on `task` in `sandbox`. Cancellable at every await.

        Raises:
            LimitReached: A bound on turns, tool calls, tokens or cost.
            AuthenticationFailed, InfrastructureFault, UsageError: From the model.
            SandboxDied: The sandbox is gone.
        """

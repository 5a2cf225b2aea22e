"""The contract of a runtime: who thinks. A runtime does not know which fence it is in."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Any, ClassVar

from ringfence.events import Event, Usage
from ringfence.frozen import frozen
from ringfence.runtime.options import Options
from ringfence.sandbox import Sandbox

Emit = Callable[[Event], Awaitable[None]]


@frozen
class Task:
    """What an agent is asked to do."""

    prompt: str
    model: str
    system: str | None = None
    toolset: str = "coder"
    conversation: tuple[dict[str, Any], ...] = ()
    """Earlier messages, for `run --continue`."""
    options: Options = field(default_factory=Options)
    """How to work. What a runtime cannot honour is refused by `check_options` before it starts."""
    session: "Session | None" = None
    """The client's own session, for runtimes that are programs with a memory of their own."""


@frozen
class Session:
    """Which session of its own a client is to keep, and which one it goes on with. The ids are the client's."""

    new_id: str
    """A UUID for a session that is begun or forked; a client that makes its own ids tells them (`RuntimeResult`)."""
    resumed_id: str | None = None
    """The session that is gone on with; its files are inside already."""
    is_forked: bool = False
    """Whether that one stays as it is, and what follows is another."""


@frozen
class RuntimeResult:
    """How the agent's own part ended. Says nothing about whether the work is right."""

    ended_by: str
    """`done`, `refused` (the model declined), `context` (window full), `max_tokens` (reply cut); of clients also
    `denied` (done, but not permitted all that it wanted), `limit` (one of its own), `no_structured_output`, `unasked`
    (it asked no model)."""
    final_text: str
    conversation: tuple[dict[str, Any], ...]
    usage: Usage
    turns: int
    cost_usd: float | None
    """None where the price of the model is unknown."""
    session_id: str | None = None
    """The client's own session, for runtimes that have one."""
    structured_output: Any = None
    """What the agent gave by the output schema of the task's options; None if none was asked for."""
    denied: tuple[str, ...] = ()
    """Tools that it wanted to use and was not permitted to."""
    reason: str = ""
    """How it ended, for people; empty where `ended_by` says all."""


class Runtime(ABC):
    """Runs one task to its end."""

    has_own_words: ClassVar[bool] = True
    """Whether what it answers is to be recorded, as its replies are not in the record as they came."""

    @abstractmethod
    async def run(self, task: Task, sandbox: Sandbox, emit: Emit) -> RuntimeResult:
        """Work on `task` in `sandbox`. Cancellable at every await.

        Raises:
            LimitReached: A bound on turns, tool calls, tokens or cost.
            AuthenticationFailed, InfrastructureFault, UsageError: From the model.
            SandboxDied: The sandbox is gone.
        """

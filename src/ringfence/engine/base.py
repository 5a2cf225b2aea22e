"""The contract of durable execution: workflows that go on where they were, whoever died meanwhile."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sqlalchemy import Connection

Json = Any
"""What JSON can say. Steps carry ids and small facts; what is large is stored elsewhere and named."""


class WorkflowState(StrEnum):
    """Where a workflow stands."""

    WAITING = "waiting"
    """No executor has taken it yet."""
    RUNNING = "running"
    """An executor has it; perhaps one that is dead, until another takes it over."""
    DONE = "done"
    """It returned."""
    FAILED = "failed"
    """It raised, or brought down too many executors."""
    CANCELLED = "cancelled"
    """Its row in the database says so; no call of ours cancels a workflow. It is interrupted within a second."""

    @property
    def is_end(self) -> bool:
        """Whether nothing follows."""
        return self in (WorkflowState.DONE, WorkflowState.FAILED, WorkflowState.CANCELLED)


@dataclass(frozen=True)
class WorkflowStatus:
    """A workflow as the engine knows it."""

    id: str
    state: WorkflowState
    executor: str | None
    """Who has it, or had it last."""
    result: Json = None
    """What it returned, once it is done."""
    error: str | None = None
    """What it raised, once it has failed."""


class Context(ABC):
    """What a workflow does durably. A workflow is a plain async function of a context and its argument.

    It may be interrupted anywhere and is then begun again from its start, by this executor or another. What came out of
    steps and sleeps is remembered and not done again; all else in it must be free of effects and do the same
    things in the same order.
    """

    id: str
    """Of the workflow."""

    @abstractmethod
    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        """Do something, once as a rule, and again if the executor died before its result was kept.

        So it must be safe to repeat. Its result must be JSON: lists, no tuples. An exception, or a result that is no
        JSON, ends the workflow, unless the workflow catches it: it is a `StepFailed`, in the first run as in later
        ones, and carries the text of the exception.
        """

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait. A workflow that is begun again sleeps only for what is left."""


class StepFailed(Exception):
    """A step of a workflow raised."""


Workflow = Callable[[Context, Json], Awaitable[Json]]


class Engine(ABC):
    """Where workflows are kept, and their control from any process.

    An engine is opened as an async context. One that is opened with workflows is an executor too: it takes waiting
    ones, runs them in the caller's event loop, and takes over those of executors that died. Leaving the context
    interrupts what it runs; others go on with it. A workflow whose executors died too often while they ran it is
    given up: it has failed then, with an error that says so. So has one that no executor knows by name.

    Raises:
        InfrastructureFault: By every method: the database cannot be reached.
        UsageError: By those that take JSON: it is none.
    """

    executor: str | None
    """The name of this executor; None if it is none. No two are ever named alike."""

    @abstractmethod
    async def enqueue(self, workflow: str, *, id: str, argument: Json = None, priority: int = 0) -> bool:
        """Have some executor run a workflow; False if there is one with this id already, which stays as it is.

        Args:
            workflow: Its name.
            id: Of the workflow; what makes asking twice the same as asking once.
            argument: JSON.
            priority: Higher ones are taken first, 0 to 1000.
        """

    @abstractmethod
    def enqueue_in(
        self, connection: "Connection", workflow: str, *, id: str, argument: Json = None, priority: int = 0
    ) -> None:
        """Enqueue a workflow within a transaction of the caller's: it is there if, and as soon as, that commits.

        It blocks. An id that exists already is left as it is.

        Args:
            connection: Of the transaction, in the database of this engine.
            workflow: Its name.
            id: Of the workflow.
            argument: JSON.
            priority: Higher ones are taken first, 0 to 1000.
        """

    @abstractmethod
    async def list(
        self,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[WorkflowState] | None = None,
        limit: int = 1000,
    ) -> "list[WorkflowStatus]":
        """Workflows, the newest first."""

    @abstractmethod
    async def forget(self, ids: Sequence[str]) -> int:
        """Remove workflows that have ended, with all they left; others stay. Returns how many were removed.

        One that is forgotten is not known any more: the same id can be enqueued again. At most some hundred at once.
        """

    @abstractmethod
    async def live_executors(self) -> Sequence[str]:
        """The names of all executors that live."""

    @abstractmethod
    async def stopped(self) -> str:
        """Wait until this executor has lost its right to run anything, and say why; one that is none waits for ever.

        Others have taken over what it ran, or will: it is interrupted as by a cancel scope, so that it can clean up,
        shielded, and nothing it does afterwards is remembered. Nothing new is begun. What
        is left to do is to leave the context, and to open another.
        """

    async def get(self, id: str) -> WorkflowStatus | None:
        """One workflow."""
        found = await self.list(ids=[id])
        return found[0] if found else None

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

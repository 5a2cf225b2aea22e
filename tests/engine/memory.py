"""An engine without a database, for tests: several engines on one `Memory` stand for several processes."""

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel

from ringfence.engine.base import (
    Context,
    Engine,
    Json,
    StepFailed,
    Workflow,
    WorkflowState,
    WorkflowStatus,
)
from ringfence.engine.json_value import plain
from ringfence.errors import UsageError


@dataclass
class _Kept:
    """What became of a step."""

    value: Json = None
    error: str | None = None


@dataclass
class _Record:
    id: str
    name: str
    argument: Json
    priority: int
    number: int
    state: WorkflowState = WorkflowState.WAITING
    executor: str | None = None
    claim: object = None
    scope: anyio.CancelScope | None = None
    result: Json = None
    error: str | None = None
    recoveries: int = 0
    kept: dict[int, _Kept] = field(default_factory=dict)


class Memory:
    """What a database would hold."""

    def __init__(self) -> None:
        self.records: dict[str, _Record] = {}
        self.executors: set[str] = set()
        self.numbers = itertools.count(1)
        self._changed = anyio.Event()

    def change(self) -> None:
        """Wake all who wait for a change."""
        self._changed.set()
        self._changed = anyio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Wait for the next change, but not for ever."""
        with anyio.move_on_after(timeout_s):
            await self._changed.wait()


class _MemoryContext(Context):
    def __init__(self, memory: Memory, record: _Record) -> None:
        self.id = record.id
        self._memory = memory
        self._record = record
        self._claim = record.claim
        self._places = itertools.count()

    def _keep(self, place: int, kept: _Kept) -> None:
        if self._record.claim is self._claim:
            self._record.kept[place] = kept

    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        place = next(self._places)
        if place not in self._record.kept:
            try:
                kept = _Kept(plain(await function(*arguments), what=f"the result of step {name!r}"))
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is remembered
                kept = _Kept(error=f"{type(error).__name__}: {error}")
            self._keep(place, kept)
        else:
            kept = self._record.kept[place]
        if kept.error is not None:
            raise StepFailed(kept.error)
        return kept.value

    async def sleep(self, seconds: float) -> None:
        place = next(self._places)
        if place not in self._record.kept:
            self._keep(place, _Kept(time.time() + seconds))
        await anyio.sleep(max(0.0, self._record.kept[place].value - time.time()))


class MemoryEngine(Engine):
    """An engine on a `Memory`; `die` is what SIGKILL would be.

    Args:
        memory: What it shares with others.
        workflows: What it runs; None for control only.
        concurrency: How many at once.
        recoveries: How often a workflow is taken over before it is given up.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        workflows: Mapping[str, Workflow] | None = None,
        concurrency: int = 8,
        recoveries: int = 5,
    ) -> None:
        self._memory = memory
        self._workflows = workflows
        self._concurrency = concurrency
        self._recoveries = recoveries
        self._running: dict[str, anyio.CancelScope] = {}
        self._taking = anyio.CancelScope()
        self._dead = anyio.Event()
        self.executor = None if workflows is None else f"memory-{next(memory.numbers)}"

    async def __aenter__(self) -> Self:
        if self.executor is not None:
            self._memory.executors.add(self.executor)
            self._tasks = anyio.create_task_group()
            await self._tasks.__aenter__()
            self._tasks.start_soon(self._take_all)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        if self.executor is None:
            return
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        self._leave(counted=False)

    def die(self) -> None:
        """Be gone: what runs is interrupted, nothing of it is remembered, and others take it over."""
        self._dead.set()
        self._leave(counted=True)
        for scope in (self._taking, *self._running.values()):
            scope.cancel()

    def _leave(self, *, counted: bool) -> None:
        self._memory.executors.discard(str(self.executor))
        for record in self._memory.records.values():
            if record.executor == self.executor and record.state is WorkflowState.RUNNING:
                record.state, record.claim = WorkflowState.WAITING, None
                record.recoveries += counted
        self._memory.change()

    async def _take_all(self) -> None:
        with self._taking:
            while not self._dead.is_set():
                await self._take()

    async def _take(self) -> None:
        waiting = [one for one in self._memory.records.values() if one.state is WorkflowState.WAITING]
        ready = sorted(waiting, key=lambda one: (-one.priority, one.number))
        for record in ready[: max(0, self._concurrency - len(self._running))]:
            record.state, record.executor, record.claim = WorkflowState.RUNNING, self.executor, object()
            record.scope = anyio.CancelScope()
            self._running[record.id] = record.scope
            self._tasks.start_soon(self._run, record, record.scope)
        await self._memory.wait(60.0)

    async def _run(self, record: _Record, scope: anyio.CancelScope) -> None:
        claim = record.claim
        state, result, error = WorkflowState.FAILED, None, None
        try:
            with scope:
                result = await self._result(record)
                state = WorkflowState.DONE
        except Exception as failure:  # noqa: BLE001 -- whatever it is, it is the workflow's end
            error = f"{type(failure).__name__}: {failure}"
        finally:
            del self._running[record.id]
        if record.claim is claim and not scope.cancel_called:
            record.state, record.result, record.error, record.claim = state, result, error, None
        self._memory.change()

    async def _result(self, record: _Record) -> Json:
        assert self._workflows is not None
        if record.recoveries > self._recoveries:
            raise UsageError(f"given up: {record.recoveries} executors died while they ran it")
        if record.name not in self._workflows:
            raise UsageError(f"there is no workflow {record.name!r}")
        value = await self._workflows[record.name](_MemoryContext(self._memory, record), record.argument)
        return plain(value, what=f"the result of workflow {record.name!r}")

    async def enqueue(self, workflow: str, *, id: str, argument: Json = None, priority: int = 0) -> bool:
        """See `Engine.enqueue`."""
        if not 0 <= priority <= 1000:
            raise UsageError(f"a priority is 0 to 1000, not {priority}")
        argument = plain(argument, what="the argument of a workflow")
        if id in self._memory.records:
            return False
        self._memory.records[id] = _Record(id, workflow, argument, priority, next(self._memory.numbers))
        self._memory.change()
        return True

    def enqueue_in(
        self, connection: object, workflow: str, *, id: str, argument: Json = None, priority: int = 0
    ) -> None:
        """See `Engine.enqueue_in`."""
        record = _Record(
            id, workflow, plain(argument, what="the argument"), priority, next(self._memory.numbers)
        )
        self._memory.records.setdefault(id, record)

    async def list(
        self,
        *,
        ids: Sequence[str] | None = None,
        states: Sequence[WorkflowState] | None = None,
        limit: int = 1000,
    ) -> list[WorkflowStatus]:
        """See `Engine.list`."""
        await anyio.lowlevel.checkpoint()
        found = [
            WorkflowStatus(one.id, one.state, one.executor, one.result, one.error)
            for one in sorted(self._memory.records.values(), key=lambda one: -one.number)
            if (ids is None or one.id in ids) and (states is None or one.state in states)
        ]
        return found[:limit]

    async def forget(self, ids: Sequence[str]) -> int:
        """See `Engine.forget`."""
        await anyio.lowlevel.checkpoint()
        ended = {id for id in ids if id in self._memory.records and self._memory.records[id].state.is_end}
        for id in ended:
            del self._memory.records[id]
        return len(ended)

    async def live_executors(self) -> Sequence[str]:
        """See `Engine.living`."""
        await anyio.lowlevel.checkpoint()
        return sorted(self._memory.executors)

    async def stopped(self) -> str:
        """See `Engine.stopped`."""
        if self.executor is None:
            await anyio.sleep_forever()
        await self._dead.wait()
        return "it died"

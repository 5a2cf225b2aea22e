"""Promises about workflows while all executors live."""

import time

from tests.engine.conformance.ground import Check, Ground, Notes, error_of, until

from ringfence.engine import WorkflowState
from ringfence.errors import UsageError


async def results(ground: Ground) -> None:
    """A workflow receives its argument, and its result is available once it is done."""
    value = {"text": "ä\u0000\U0001f600", "list": [1, 2.5, None, True], "nested": {"": []}}
    async with ground.open() as engine:
        await engine.enqueue("echo", id="results", argument=value)
        ended = await until(engine, "results")
    assert (ended.state, ended.result, ended.error) == (WorkflowState.DONE, value, None)


async def enqueue_twice(ground: Ground) -> None:
    """A workflow that is enqueued twice runs once, with the first argument."""
    async with ground.open() as engine:
        first = await engine.enqueue("echo", id="twice", argument=1)
        second = await engine.enqueue("echo", id="twice", argument=2)
        ended = await until(engine, "twice")
        third = await engine.enqueue("echo", id="twice", argument=3)
    assert (first, second, third, ended.result) == (True, False, False, 1)


async def steps_in_order(ground: Ground) -> None:
    """Steps run once each, in order, and return their results."""
    notes = Notes(ground, "steps-in-order")
    async with ground.open() as engine:
        await engine.enqueue("steps", id="steps", argument=notes.argument)
        ended = await until(engine, "steps")
    assert ended.result == notes.lines == ["0", "1", "2", "3", "4"]


async def failing_steps(ground: Ground) -> None:
    """A step that raises fails its workflow with its message, and is not retried."""
    notes = Notes(ground, "failing")
    async with ground.open() as engine:
        await engine.enqueue("fails", id="failing", argument=notes.argument)
        ended = await until(engine, "failing")
    assert ended.state is WorkflowState.FAILED
    assert "no good" in str(ended.error)
    assert notes.lines == ["failing"]


async def json_only(ground: Ground) -> None:
    """A value that is not JSON is refused as an argument, and as a result of a workflow or step fails the workflow."""
    notes = Notes(ground, "json-only")
    async with ground.open() as engine:
        for value in ({1, 2}, b"bytes", (1,), {1: 2}, float("nan"), object()):
            await error_of(UsageError, engine.enqueue("echo", id="never", argument=value))
        assert await engine.get("never") is None
        for name in ("step without json", "result without json"):
            await engine.enqueue(name, id=name, argument=notes.argument)
            ended = await until(engine, name)
            assert ended.state is WorkflowState.FAILED
            assert "JSON" in str(ended.error)


async def unknown_workflows(ground: Ground) -> None:
    """A workflow with an unknown name fails with a message that names it."""
    async with ground.open() as engine:
        await engine.enqueue("no such", id="unknown")
        ended = await until(engine, "unknown")
    assert ended.state is WorkflowState.FAILED
    assert "'no such'" in str(ended.error)


async def wrong_priorities(ground: Ground) -> None:
    """Priorities outside 0 to 1000 are refused."""
    async with ground.open() as engine:
        for priority in (-1, 1001):
            await error_of(UsageError, engine.enqueue("echo", id="never", priority=priority))
        for priority in (0, 1000):
            assert await engine.enqueue("echo", id=f"priority-{priority}", priority=priority)


async def listing(ground: Ground) -> None:
    """Workflows are listed by id and state, up to a limit."""
    notes = Notes(ground, "listing-2")
    async with ground.open() as engine:
        for number in range(2):
            await engine.enqueue("echo", id=f"listing-{number}", argument=number)
            await until(engine, f"listing-{number}")
        await engine.enqueue("gated", id="listing-2", argument=notes.argument)
        await notes.until("hold")
        mine = [f"listing-{number}" for number in range(3)]
        done = await engine.list(ids=mine, states=[WorkflowState.DONE])
        running = await engine.list(ids=mine, states=[WorkflowState.RUNNING])
        assert len(await engine.list(ids=mine, limit=2)) == 2
        assert await engine.list(ids=[]) == await engine.list(states=[]) == []
        notes.open_gate()
        await until(engine, "listing-2")
    assert {one.id: one.result for one in done} == {"listing-0": 0, "listing-1": 1}
    assert [one.id for one in running] == ["listing-2"]
    assert all(one.executor for one in done)


async def sleeping(ground: Ground) -> None:
    """A workflow sleeps for the requested time."""
    notes = Notes(ground, "sleeping")
    async with ground.open() as engine:
        began = time.time()
        await engine.enqueue("sleeps", id="sleeping", argument={**notes.argument, "seconds": 0.5})
        ended = await until(engine, "sleeping")
        passed_s = time.time() - began
    assert ended.result == "awake"
    assert passed_s >= 0.5


async def live_executors(ground: Ground) -> None:
    """Any engine can list the live executors."""
    async with ground.open() as engine:
        await engine.enqueue("echo", id="living")
        ended = await until(engine, "living")
        live_executors = await engine.live_executors()
    assert ended.executor in live_executors
    assert engine.executor is None


async def forgetting(ground: Ground) -> None:
    """An ended workflow can be removed, and enqueued again; others stay."""
    notes = Notes(ground, "at-work")
    async with ground.open() as engine:
        await engine.enqueue("echo", id="forgotten", argument=1)
        await until(engine, "forgotten")
        await engine.enqueue("gated", id="at-work", argument=notes.argument)
        await notes.until("hold")
        removed = await engine.remove(["forgotten", "at-work", "never-there"])
        again = await engine.enqueue("echo", id="forgotten", argument=2)
        ended = await until(engine, "forgotten")
        running = await engine.get("at-work")
        notes.open_gate()
        await until(engine, "at-work")
    assert (removed, again, ended.result) == (1, True, 2)
    assert running is not None
    assert running.state is WorkflowState.RUNNING


CHECKS: tuple[Check, ...] = (
    results,
    enqueue_twice,
    steps_in_order,
    failing_steps,
    json_only,
    unknown_workflows,
    wrong_priorities,
    listing,
    sleeping,
    live_executors,
    forgetting,
)

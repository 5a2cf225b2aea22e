"""Promises about workflows, while nobody dies."""

import time

from tests.engine.conformance.ground import Check, Ground, Notes, error_of, until

from ringfence.engine import WorkflowState
from ringfence.errors import UsageError


async def results(ground: Ground) -> None:
    """A workflow gets its argument, and its result is there once it is done."""
    value = {"text": "ä\u0000\U0001f600", "list": [1, 2.5, None, True], "nested": {"": []}}
    async with ground.open() as engine:
        await engine.enqueue("echo", id="results", argument=value)
        ended = await until(engine, "results")
    assert (ended.state, ended.result, ended.error) == (WorkflowState.DONE, value, None)


async def enqueue_twice(ground: Ground) -> None:
    """A workflow that is asked for twice runs once, with the first argument."""
    async with ground.open() as engine:
        first = await engine.enqueue("echo", id="twice", argument=1)
        second = await engine.enqueue("echo", id="twice", argument=2)
        ended = await until(engine, "twice")
        third = await engine.enqueue("echo", id="twice", argument=3)
    assert (first, second, third, ended.result) == (True, False, False, 1)


async def steps_in_order(ground: Ground) -> None:
    """Steps are done once each, in order, and return what they returned."""
    notes = Notes(ground, "steps-in-order")
    async with ground.open() as engine:
        await engine.enqueue("steps", id="steps", argument=notes.argument)
        ended = await until(engine, "steps")
    assert ended.result == notes.lines == ["0", "1", "2", "3", "4"]


async def failing_steps(ground: Ground) -> None:
    """A step that raises ends its workflow as failed, with its text, and is not tried again."""
    notes = Notes(ground, "failing")
    async with ground.open() as engine:
        await engine.enqueue("fails", id="failing", argument=notes.argument)
        ended = await until(engine, "failing")
    assert ended.state is WorkflowState.FAILED
    assert "no good" in str(ended.error)
    assert notes.lines == ["failing"]


async def json_only(ground: Ground) -> None:
    """What is no JSON is refused as an argument, and fails the workflow as a result or a step's."""
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
    """A workflow that no executor knows by name has failed, and says so."""
    async with ground.open() as engine:
        await engine.enqueue("no such", id="unknown")
        ended = await until(engine, "unknown")
    assert ended.state is WorkflowState.FAILED
    assert "'no such'" in str(ended.error)


async def wrong_priorities(ground: Ground) -> None:
    """A priority is 0 to 1000."""
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
    """A workflow sleeps as long as it asked for."""
    notes = Notes(ground, "sleeping")
    async with ground.open() as engine:
        began = time.time()
        await engine.enqueue("sleeps", id="sleeping", argument={**notes.argument, "seconds": 0.5})
        ended = await until(engine, "sleeping")
        passed_s = time.time() - began
    assert ended.result == "awake"
    assert passed_s >= 0.5


async def live_executors(ground: Ground) -> None:
    """Everybody can see which executors live."""
    async with ground.open() as engine:
        await engine.enqueue("echo", id="living")
        ended = await until(engine, "living")
        live_executors = await engine.live_executors()
    assert ended.executor in live_executors
    assert engine.executor is None


async def forgetting(ground: Ground) -> None:
    """Who has ended can be forgotten, and asked for again; who has not stays, whoever says so."""
    notes = Notes(ground, "at-work")
    async with ground.open() as engine:
        await engine.enqueue("echo", id="forgotten", argument=1)
        await until(engine, "forgotten")
        await engine.enqueue("gated", id="at-work", argument=notes.argument)
        await notes.until("hold")
        removed = await engine.forget(["forgotten", "at-work", "never-there"])
        repeat_request = await engine.enqueue("echo", id="forgotten", argument=2)
        ended = await until(engine, "forgotten")
        running = await engine.get("at-work")
        notes.open_gate()
        await until(engine, "at-work")
    assert (removed, repeat_request, ended.result) == (1, True, 2)
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

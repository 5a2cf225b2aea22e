"""Promises about workflows, while nobody dies."""

import time

import anyio

from ringfence.engine import WorkflowState
from ringfence.errors import UsageError
from ringfence.testing.engine.ground import Check, Ground, Notes, error_of, until


async def results(ground: Ground) -> None:
    """A workflow gets its argument, and its result is there once it is done."""
    value = {"text": "ä\u0000\U0001f600", "list": [1, 2.5, None, True], "nested": {"": []}}
    async with ground.open() as engine:
        await engine.enqueue("echo", id="results", argument=value)
        ended = await until(engine, "results")
    assert (ended.state, ended.result, ended.error, ended.name) == (WorkflowState.DONE, value, None, "echo")


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


async def delayed(ground: Ground) -> None:
    """A workflow that is to wait begins no sooner."""
    notes = Notes(ground, "delayed")
    async with ground.open() as engine:
        began = time.time()
        await engine.enqueue("sleeps", id="delayed", argument={**notes.argument, "seconds": 0.0}, delay_s=1.0)
        early = await engine.get("delayed")
        await notes.until("asleep")
        passed_s = time.time() - began
    assert early is not None
    assert early.state is WorkflowState.WAITING
    assert passed_s >= 0.99


async def cancel_waiting(ground: Ground) -> None:
    """A workflow that is cancelled while it waits never begins."""
    notes = Notes(ground, "cancel-waiting")
    async with ground.open() as engine:
        await engine.enqueue("steps", id="cancel-waiting", argument=notes.argument, delay_s=1.0)
        cancelled = await engine.cancel("cancel-waiting")
        await engine.enqueue("echo", id="after it", delay_s=2.0)
        await until(engine, "after it")
        ended = await engine.get("cancel-waiting")
    assert cancelled
    assert ended is not None
    assert (ended.state, notes.lines) == (WorkflowState.CANCELLED, [])


async def cancel_running(ground: Ground) -> None:
    """What a cancelled workflow is doing is interrupted, can clean up, shielded, and nothing follows."""
    notes = Notes(ground, "cancel-running")
    async with ground.open() as engine:
        await engine.enqueue("gated", id="cancel-running", argument=notes.argument)
        await notes.until("hold")
        first, second = await engine.cancel("cancel-running"), await engine.cancel("cancel-running")
        await notes.until("cleaned up")
        notes.open_gate()
        await engine.enqueue("echo", id="after that")
        await until(engine, "after that")
        ended = await engine.get("cancel-running")
    assert (first, second) == (True, False)
    assert ended is not None
    assert (ended.state, ended.result) == (WorkflowState.CANCELLED, None)
    assert notes.lines == ["first", "hold", "cleaned up"]


async def cancel_ended(ground: Ground) -> None:
    """A workflow that has ended, or is not known, cannot be cancelled, and stays as it is."""
    async with ground.open() as engine:
        await engine.enqueue("echo", id="cancel-ended", argument="done")
        await until(engine, "cancel-ended")
        cancelled = [await engine.cancel("cancel-ended"), await engine.cancel("cancel-unknown")]
        ended = await engine.get("cancel-ended")
    assert cancelled == [False, False]
    assert ended is not None
    assert (ended.state, ended.result) == (WorkflowState.DONE, "done")


async def signal_before_begin(ground: Ground) -> None:
    """A message that is sent before its workflow begins is received; two with one key are one."""
    async with ground.open() as engine:
        await engine.enqueue("listens", id="early", argument={"patience_s": 0.5}, delay_s=0.5)
        await engine.signal("early", "other", "not this")
        await engine.signal("early", "topic", {"a": 1}, key="one")
        await engine.signal("early", "topic", {"a": 2}, key="one")
        ended = await until(engine, "early")
    assert ended.result == [{"a": 1}, None]


async def signals_in_order(ground: Ground) -> None:
    """Messages are received in the order in which they were sent; one key is not one across workflows."""
    async with ground.open() as engine:
        for name in ("order-1", "order-2"):
            await engine.enqueue("listens", id=name, argument={"patience_s": 30.0})
            await engine.signal(name, "topic", f"{name} first", key="same")
            await engine.signal(name, "topic", f"{name} second")
        results = [(await until(engine, name)).result for name in ("order-1", "order-2")]
    assert results == [[f"{name} first", f"{name} second"] for name in ("order-1", "order-2")]


async def signal_nobody(ground: Ground) -> None:
    """A message to a workflow that is not known is refused."""
    async with ground.open() as engine:
        error = await error_of(UsageError, engine.signal("nobody", "topic", 1))
    assert "'nobody'" in str(error)


async def published(ground: Ground) -> None:
    """Others see what a workflow has published last under each key, while it runs and afterwards."""
    async with ground.open() as engine:
        await engine.enqueue("listens", id="published", argument={"patience_s": 0.0})
        with anyio.fail_after(40):
            while "more" not in (during := await engine.events("published")):  # noqa: ASYNC110 -- of another process
                await anyio.sleep(0.02)
        await engine.signal("published", "topic", "go")
        await until(engine, "published")
        after = await engine.events("published")
        nothing = await engine.events("unknown")
    assert during == {"state": "listening", "more": [1, {"two": 2.5}]}
    assert after == {**during, "state": "heard"}
    assert nothing == {}


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
    """What is no JSON is refused as an argument or message, and fails the workflow as a result or a step's."""
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
        await error_of(UsageError, engine.signal("step without json", "topic", {1, 2}))


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
    """Workflows are listed by id, state and name, up to a limit."""
    async with ground.open() as engine:
        for number in range(3):
            await engine.enqueue(
                "echo", id=f"listing-{number}", argument=number, delay_s=3600.0 * (number == 2)
            )
        for number in range(2):
            await until(engine, f"listing-{number}")
        mine = [f"listing-{number}" for number in range(3)]
        done = await engine.list(ids=mine, states=[WorkflowState.DONE])
        waiting = await engine.list(ids=mine, states=[WorkflowState.WAITING])
        assert {one.id for one in await engine.list(ids=mine, workflow="echo")} == {*mine}
        assert await engine.list(ids=mine, workflow="steps") == []
        assert len(await engine.list(ids=mine, limit=2)) == 2
        assert await engine.list(ids=[]) == await engine.list(states=[]) == []
        await engine.cancel("listing-2")
    assert {one.id: one.result for one in done} == {"listing-0": 0, "listing-1": 1}
    assert [one.id for one in waiting] == ["listing-2"]
    assert all(one.executor for one in done)


async def sleeping(ground: Ground) -> None:
    """A workflow sleeps as long as it asked for, and no message in time is None."""
    notes = Notes(ground, "sleeping")
    async with ground.open() as engine:
        began = time.time()
        await engine.enqueue("sleeps", id="sleeping", argument={**notes.argument, "seconds": 0.5})
        ended = await until(engine, "sleeping")
        passed_s = time.time() - began
    assert ended.result == "awake"
    assert passed_s >= 0.5


async def living(ground: Ground) -> None:
    """Everybody can see which executors live."""
    async with ground.open() as engine:
        await engine.enqueue("echo", id="living")
        ended = await until(engine, "living")
        living = {one.id for one in await engine.heartbeat()}
    assert ended.executor in living
    assert engine.executor is None


async def forgetting(ground: Ground) -> None:
    """Who has ended can be forgotten, and asked for again; who has not stays, whoever says so."""
    async with ground.open() as engine:
        await engine.enqueue("echo", id="forgotten", argument=1)
        await until(engine, "forgotten")
        await engine.enqueue("echo", id="to-come", delay_s=3600)
        removed = await engine.forget(["forgotten", "to-come", "never-there"])
        again = await engine.enqueue("echo", id="forgotten", argument=2)
        ended = await until(engine, "forgotten")
        waiting = await engine.get("to-come")
        await engine.cancel("to-come")
    assert (removed, again, ended.result) == (1, True, 2)
    assert waiting is not None
    assert waiting.state is WorkflowState.WAITING


CHECKS: tuple[Check, ...] = (
    results,
    enqueue_twice,
    steps_in_order,
    delayed,
    cancel_waiting,
    cancel_running,
    cancel_ended,
    signal_before_begin,
    signals_in_order,
    signal_nobody,
    published,
    failing_steps,
    json_only,
    unknown_workflows,
    wrong_priorities,
    listing,
    sleeping,
    living,
    forgetting,
)

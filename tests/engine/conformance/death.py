"""Promises about executors that start, leave and die."""

from contextlib import AsyncExitStack

import anyio
from tests.engine.conformance.ground import Check, Ground, Notes, until

from ringfence.engine import WorkflowState


async def work_outlives_its_executor(ground: Ground) -> None:
    """The work of a killed executor continues on another; finished steps are not repeated, and nothing ends twice."""
    notes = [Notes(ground, f"outlives-{number}") for number in range(3)]
    async with ground.open() as engine, AsyncExitStack() as stack:
        first = await stack.enter_async_context(ground.start())
        for one in notes:
            await engine.enqueue("gated", id=one.path.name, argument=one.argument)
            await one.until("hold")
        second = await stack.enter_async_context(ground.start())
        await first.kill()
        for one in notes:
            await one.until("hold", times=2)
            one.open_gate()
        ended = [await until(engine, one.path.name) for one in notes]
        live_executors = await engine.live_executors()
    assert [(one.state, one.result, one.executor) for one in ended] == [
        (WorkflowState.DONE, "held", second.id)
    ] * 3
    for one in notes:
        assert [line for line in one.lines if line != "cleaned up"] == ["first", "hold", "hold", "last"]
    assert live_executors == [second.id]


async def work_waits_for_an_executor(ground: Ground) -> None:
    """The work of the last executor continues on the next one that starts, including errors that it caught."""
    notes = Notes(ground, "waits")
    async with ground.open() as engine:
        async with ground.start() as first:
            await engine.enqueue("catches", id="waits", argument=notes.argument)
            await notes.until("hold")
            await first.kill()
        async with ground.start():
            await notes.until("hold", times=2)
            notes.open_gate()
            ended = await until(engine, "waits")
    assert ended.result == "ValueError: no good"
    assert notes.lines.count("failing") == 1


async def a_stopped_executor_is_fenced(ground: Ground) -> None:
    """The work of a suspended executor (SIGSTOP) continues on another; once resumed, it exits and changes nothing."""
    notes = Notes(ground, "fenced")
    async with ground.open() as engine, AsyncExitStack() as stack:
        first = await stack.enter_async_context(ground.start())
        await engine.enqueue("gated", id="fenced", argument=notes.argument)
        await notes.until("hold")
        second = await stack.enter_async_context(ground.start())
        await first.pause()
        await notes.until("hold", times=2)
        notes.open_gate()
        ended = await until(engine, "fenced")
        await first.go_on()
        await first.ended()
        again = await engine.get("fenced")
    assert (ended.state, ended.executor) == (WorkflowState.DONE, second.id)
    assert again == ended
    assert notes.lines.count("first") == notes.lines.count("last") == 1


async def leaving_is_no_death(ground: Ground) -> None:
    """The work of an executor that leaves is interrupted and continues on another; this does not count as a death."""
    notes = Notes(ground, "leaving")
    async with ground.open() as engine:
        async with ground.start(recoveries=0) as first:
            await engine.enqueue("gated", id="leaving", argument=notes.argument)
            await notes.until("hold")
            await first.leave()
        assert "cleaned up" in notes.lines
        assert await engine.live_executors() == []
        async with ground.start(recoveries=0) as second:
            await notes.until("hold", times=2)
            notes.open_gate()
            ended = await until(engine, "leaving")
    assert (ended.state, ended.executor) == (WorkflowState.DONE, second.id)


async def poison_is_given_up(ground: Ground) -> None:
    """A workflow that kills its executors repeatedly fails, says why, and never runs again."""
    notes = Notes(ground, "poison")
    async with ground.open() as engine:
        await engine.enqueue("poison", id="poison", argument=notes.argument)
        for _ in range(3):
            async with ground.start(recoveries=2) as worker:
                await worker.ended()
        async with ground.start(recoveries=2):
            ended = await until(engine, "poison")
            await engine.enqueue("echo", id="harmless")
            harmless = await until(engine, "harmless")
    assert ended.state is WorkflowState.FAILED
    assert "given up" in str(ended.error)
    assert notes.lines == ["dying"] * 3
    assert harmless.state is WorkflowState.DONE


async def executors_share_the_work(ground: Ground) -> None:
    """Two executors on one database run each workflow once, and no more at a time than their limits."""
    notes = [Notes(ground, f"shared-{number}") for number in range(20)]
    async with ground.open() as engine, ground.start(concurrency=2), ground.start(concurrency=2):
        for one in notes:
            await engine.enqueue("steps", id=one.path.name, argument=one.argument)
        ended = [await until(engine, one.path.name) for one in notes]
    assert {one.state for one in ended} == {WorkflowState.DONE}
    assert [one.lines for one in notes] == [["0", "1", "2", "3", "4"]] * 20


async def priorities(ground: Ground) -> None:
    """Of the waiting workflows the one with the highest priority starts first."""
    asked = {"low": 0, "high": 1000, "middle": 500}
    notes = Notes(ground, "priorities")
    notes.open_gate()
    async with ground.open() as engine:
        for name, priority in asked.items():
            argument = {**notes.argument, "seconds": 0.0}
            await engine.enqueue("sleeps", id=name, argument=argument, priority=priority)
        async with ground.start(concurrency=1):
            order: list[str] = []
            with anyio.fail_after(40):
                while len(order) < len(asked):
                    done = await engine.list(ids=[*asked], states=[WorkflowState.DONE])
                    order += [one.id for one in done if one.id not in order]
    assert order == ["high", "middle", "low"]


async def another_edition_goes_on(ground: Ground) -> None:
    """A workflow that another version of the code began still ends."""
    notes = Notes(ground, "edition")
    async with ground.open() as engine:
        async with ground.start(edition=1) as first:
            await engine.enqueue("gated", id="edition", argument=notes.argument)
            await notes.until("hold")
            await first.kill()
        await engine.enqueue("echo", id="queued before", argument=1)
        async with ground.start(edition=2):
            await notes.until("hold", times=2)
            notes.open_gate()
            ended = await until(engine, "edition")
            before = await until(engine, "queued before")
    assert (ended.state, before.state) == (WorkflowState.DONE, WorkflowState.DONE)
    assert notes.lines[-1] == "more"


CHECKS: tuple[Check, ...] = (
    work_outlives_its_executor,
    work_waits_for_an_executor,
    a_stopped_executor_is_fenced,
    leaving_is_no_death,
    poison_is_given_up,
    executors_share_the_work,
    priorities,
    another_edition_goes_on,
)

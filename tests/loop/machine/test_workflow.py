"""The workflows, with steps that know nothing of git or sandboxes, on engines that die."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.memory import Memory, MemoryEngine

from ringfence.loop.machine.workflow import LoopWorkflow, StoryWorkflow

_ATTEMPTS = 3
_PATIENCE_S = 30.0
_ENDS = ("passed", "skipped", "blocked", "stop")


class _Steps:
    """Steps that come to what was drawn; what was done once is known, as the loop's rows know it."""

    attempts = _ATTEMPTS

    def __init__(self, answers: Sequence[str], deaths: Sequence[int], die: Callable[[], None]) -> None:
        self._answers = iter(answers)
        self._deaths = set(deaths)
        self._die = die
        self._begun = 0
        self.known: dict[str, str] = {}
        self.done = Counter[str]()
        self.ended: list[str] = []

    async def _alive(self) -> None:
        self._begun += 1
        if self._begun in self._deaths:
            self._die()
        await anyio.lowlevel.checkpoint()

    async def do(self, name: str, _story: str, attempt: int) -> dict[str, Any]:
        await self._alive()
        key = f"{name}.{attempt}"
        if key not in self.known:
            self.done[key] += 1
            drawn = next(self._answers, "on")
            self.known[key] = "on" if name == "begin" else drawn
            if name == "judgement" and self.known[key] == "on":
                self.known[key] = "passed"
        await self._alive()
        return {"next": self.known[key], "reason": key}

    async def end(self, _story: str, answer: dict[str, Any]) -> dict[str, Any]:
        await self._alive()
        self.ended.append(answer["next"])
        await self._alive()
        return answer


async def _worked(answers: Sequence[str], deaths: Sequence[int]) -> tuple[_Steps, Any]:
    memory, engines = Memory(), list[MemoryEngine]()
    steps = _Steps(answers, deaths, lambda: engines[-1].die())
    workflow = StoryWorkflow(steps, ended=lambda: None)
    with anyio.fail_after(_PATIENCE_S):
        while True:
            async with MemoryEngine(memory, workflows={"story": workflow}, recoveries=1000) as engine:
                engines.append(engine)
                await engine.enqueue("story", id="s", argument={"story": "s"})
                while not memory.records["s"].state.is_end and not engine._dead.is_set():
                    await memory.wait(0.05)
            if memory.records["s"].state.is_end:
                return steps, memory.records["s"]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from(["on", "on", "again", "blocked", "stop"]), max_size=30),
    st.lists(st.integers(1, 40), max_size=6),
)
def test_a_story_has_one_end_however_often_its_process_dies(answers: list[str], deaths: list[int]):
    """No part is done twice, tests come before code, attempts are bounded, and the end is as if undisturbed."""
    steps, record = anyio.run(_worked, answers, deaths)
    undisturbed, _ = anyio.run(_worked, answers, [])
    assert record.state.value == "done"
    assert {*steps.ended} == {*undisturbed.ended}
    assert len({*steps.ended}) == 1
    assert record.result["next"] == steps.ended[0]
    assert record.result["next"] in _ENDS
    assert set(steps.done.values()) == {1}
    assert [*steps.done] == [*undisturbed.done]
    attempts = [int(key.rpartition(".")[2]) for key in steps.done]
    assert max(attempts) <= _ATTEMPTS
    if "code.1" in steps.done:
        last_red = [key for key in steps.done if key.startswith("red.")][-1]
        assert steps.known[last_red] == "on"
    if record.result["next"] == "passed":
        assert steps.known[[*steps.done][-1]] == "passed"


class _Whole:
    """A loop's steps: each round lets one of its stories come to its end."""

    def __init__(self, rounds: Sequence[str], deaths: Sequence[int], die: Callable[[], None]) -> None:
        self._rounds, self._deaths, self._die, self._begun = rounds, set(deaths), die, 0
        self.completed: list[str] = []
        self.known: dict[str, dict[str, Any]] = {}
        self.number = 0

    async def _said(self, key: str, answer: dict[str, Any]) -> dict[str, Any]:
        self._begun += 1
        if self._begun in self._deaths:
            self._die()
        await anyio.lowlevel.checkpoint()
        return self.known.setdefault(key, answer)

    async def start(self) -> dict[str, Any]:
        return await self._said("start", {"next": "on"})

    async def dispatch(self) -> dict[str, Any]:
        if f"merge.{self.number}" in self.known or self.number == 0:
            self.number += 1
        if self.number > len(self._rounds):
            return await self._said(f"dispatch.{self.number}", {"next": "stop", "state": "succeeded"})
        return await self._said(f"dispatch.{self.number}", {"next": "on", "workflows": ["s"]})

    async def wait(self, _workflows: Sequence[str]) -> dict[str, Any]:
        said = self._rounds[self.number - 1]
        return await self._said(f"wait.{self.number}", {"next": said, "state": "limit"})

    async def merge(self) -> dict[str, Any]:
        return await self._said(f"merge.{self.number}", {"next": "on"})

    async def complete(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.completed.append(answer["state"])
        return await self._said("complete", answer)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["on", "on", "on", "stop"]), max_size=6),
    st.lists(st.integers(1, 30), max_size=5),
)
def test_a_loop_has_one_end_however_often_its_process_dies(rounds: list[str], deaths: list[int]):
    """It ends as the first round says that ends it; nothing is merged after that."""

    async def worked() -> tuple[_Whole, Any]:
        memory, engines = Memory(), list[MemoryEngine]()
        whole = _Whole(rounds, deaths, lambda: engines[-1].die())
        with anyio.fail_after(_PATIENCE_S):
            while True:
                workflow = LoopWorkflow(whole)
                async with MemoryEngine(memory, workflows={"loop": workflow}, recoveries=1000) as engine:
                    engines.append(engine)
                    await engine.enqueue("loop", id="l")
                    while not memory.records["l"].state.is_end and not engine._dead.is_set():
                        await memory.wait(0.05)
                if memory.records["l"].state.is_end:
                    return whole, memory.records["l"]

    whole, record = anyio.run(worked)
    assert record.state.value == "done"
    expected = "limit" if "stop" in rounds else "succeeded"
    assert {*whole.completed} == {expected}
    merged = [key for key in whole.known if key.startswith("merge.")]
    assert len(merged) == (rounds.index("stop") if "stop" in rounds else len(rounds))


@pytest.mark.parametrize("answers", [["again"] * 6, ["on", "on", *["again"] * 3]])
def test_attempts_are_bounded(answers: list[str]):
    """A story that never gets it right is skipped with the last reason."""
    steps, record = anyio.run(_worked, answers, [])
    assert record.result["next"] == "skipped"
    assert record.result["reason"] in steps.done

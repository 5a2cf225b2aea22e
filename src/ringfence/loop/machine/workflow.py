"""The workflows of the engine: `story`, and `loop`, which has stories worked on and merges them.

They hold no effects of their own: each step's result says what comes next, and a workflow that is begun again after its
process died goes on at the step that it was interrupted in.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from ringfence.engine.base import Context, Json

TESTS = ("tests", "red")
"""Parts of an attempt at a story's tests."""
CODE = ("code", "checks", "review", "judgement")
"""Parts of an attempt at its code."""


def tests_steps(attempt: int) -> list[str]:
    """Names of the steps of an attempt at a story's tests."""
    return [f"{name}.{attempt}" for name in TESTS]


def code_steps(attempt: int) -> list[str]:
    """Names of the steps of an attempt at a story's code."""
    return [f"{name}.{attempt}" for name in CODE]


class StorySteps(Protocol):
    """What is done about a story. Each can be repeated: what was done is known.

    An answer's `next` says what comes now: `on`, `again`, `passed`, `skipped`, `blocked` or `stop`.
    """

    attempts: int

    async def do(self, name: str, story: str, attempt: int) -> Json:
        """One part of the work: `begin`, `tests`, `red`, `code`, `checks`, `review` or `judgement`."""

    async def end(self, story: str, answer: Json) -> Json:
        """Write down how it ended; a rejected one leaves nothing but a patch."""


class StoryWorkflow:
    """One story to its end: tests first, then code until it is accepted or its attempts are used up."""

    def __init__(self, steps: StorySteps, *, ended: Callable[[], None]) -> None:
        self._steps = steps
        self._ended = ended

    async def __call__(self, context: Context, argument: Json) -> Json:
        """Work on the story that the argument names."""
        story = str(argument["story"])
        try:
            answer = await context.step("begin", self._steps.do, "begin", story, 0)
            for parts in (TESTS, CODE):
                if answer["next"] == "on":
                    answer = await self._attempts(context, story, parts)
            return await context.step("end", self._steps.end, story, answer)
        finally:
            self._ended()

    async def _attempts(self, context: Context, story: str, parts: Sequence[str]) -> Json:
        """Try until all parts say `on`; one that says `again` begins the next attempt."""
        answer: Json = {"next": "skipped", "reason": "no attempt was left"}
        for attempt in range(1, self._steps.attempts + 1):
            for name in parts:
                answer = await context.step(f"{name}.{attempt}", self._steps.do, name, story, attempt)
                if answer["next"] != "on":
                    break
            if answer["next"] != "again":
                return answer
        return {"next": "skipped", "reason": answer["reason"]}


class LoopSteps(Protocol):
    """What is done about a loop as a whole."""

    async def start(self) -> Json:
        """Look at what fails before anything is done."""

    async def dispatch(self) -> Json:
        """Have stories worked on that are ready; `next` is `stop` if none is left, with the end."""

    async def wait(self, workflows: Sequence[str]) -> Json:
        """Until one of these has ended."""

    async def merge(self) -> Json:
        """Bring what passed onto the loop's branch."""

    async def complete(self, answer: Json) -> Json:
        """Deliver, and write down the end."""


class LoopWorkflow:
    """A loop to its end."""

    def __init__(self, steps: LoopSteps) -> None:
        self._steps = steps

    async def __call__(self, context: Context, _argument: Json) -> Json:
        """Work all stories through."""
        answer = await context.step("start", self._steps.start)
        number = 0
        while answer["next"] == "on":
            number += 1
            answer = await context.step(f"dispatch.{number}", self._steps.dispatch)
            if answer["next"] == "on":
                answer = await context.step(f"wait.{number}", self._steps.wait, answer["workflows"])
            if answer["next"] == "on":
                answer = await context.step(f"merge.{number}", self._steps.merge)
        return await context.step("complete", self._steps.complete, answer)

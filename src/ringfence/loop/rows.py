"""Loops, stories and steps as the database knows them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ringfence.frozen import frozen
from ringfence.loop.state import LoopState, StoryState


@frozen
class LoopRow:
    """A loop."""

    id: str
    source: str
    """Directory of the user's repository that it was started for."""
    state: LoopState
    reason: str
    plan: str
    """JSON."""
    configuration: str
    """JSON."""
    base: str
    """Commit it began at."""
    branch: str
    """Branch of the user's repository that the work is delivered on."""
    record: str
    """The run id of this round's record."""
    round: int
    """1, and one more for each resumption after an end."""
    created_ms: int
    begun_ms: int
    """Of this round."""
    ended_ms: int | None


class StepKey(NamedTuple):
    """Names a step of a loop."""

    story: str
    """Empty: a step of the loop itself."""
    generation: int
    name: str


def base_key(commit: str) -> StepKey:
    """Names the run of all checks on a commit of the loop's branch: the same for all stories."""
    return StepKey("", 1, f"base.{commit}")


@frozen
class StoryRow:
    """A story of a loop."""

    loop: str
    id: str
    position: int
    state: StoryState
    reason: str
    generation: int
    """1, and one more each time it is begun anew by `loop retry`."""
    attempt: int
    stage: str
    """What is done about it just now: `tests`, `code`, `checks`, `review`, `judgement`, `merge`."""
    slot: int | None
    base: str | None
    """Commit of the loop's branch that it was begun at."""
    tests: str | None
    """Commit of its tests."""
    tip: str | None
    """Commit of its accepted code."""
    merged: str | None
    """Commit of the loop's branch that holds it."""
    answer: str = ""
    """A person's, to what the story asked."""

    def key(self, name: str) -> StepKey:
        """Names a step of the story's present generation."""
        return StepKey(self.id, self.generation, name)


TESTS = ("tests", "red")
"""Parts of an attempt at a story's tests."""
CODE = ("code", "checks", "review", "judgement")
"""Parts of an attempt at its code."""
STAGES: Mapping[str, str] = {
    "tests": "tests", "red": "tests", "code": "code", "checks": "checks", "configuration": "checks",
    "alone": "checks", "review": "review", "judgement": "judgement",
}  # fmt: skip
"""The stage that a story is in from the beginning of a step, by the first part of the step's name."""
ACCEPTED = "accepted"
"""The step by which a person accepted an attempt."""
REJECTED = "rejected"
"""The step by which a person rejected a story that had passed, or that waited to be merged."""
COUNTED = "counted"
"""Names, in the result of a step that has no outcome, the last run whose use was counted."""


@frozen
class StepRow:
    """One step of a story: a role's turn, or a gate."""

    story: str
    generation: int
    name: str
    role: str
    attempt: int
    model: str
    run_id: str | None
    """The run that holds the record."""
    outcome: str | None
    """None: it goes on, or its process died."""
    result: Mapping[str, Any]
    tokens: int
    cost_usd: float
    tries: int
    began_ms: int
    ended_ms: int | None

    @property
    def key(self) -> StepKey:
        """Its name among all steps of the loop."""
        return StepKey(self.story, self.generation, self.name)

    @property
    def is_counted(self) -> bool:
        """Whether what its last run used is among what it took."""
        return self.outcome is not None or self.run_id is None or self.result.get(COUNTED) == self.run_id


@frozen
class EventRow:
    """What happened to a loop."""

    number: int
    at_ms: int
    type: str
    story: str | None
    data: Mapping[str, Any]


@frozen
class Spent:
    """What a loop has used."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def and_more(self, tokens: int, cost_usd: float) -> "Spent":
        """With what one more run of an agent used, which is counted as a call when it begins."""
        return Spent(self.calls, self.tokens + tokens, self.cost_usd + cost_usd)


def tests_steps(attempt: int) -> list[str]:
    """Names of the steps of an attempt at a story's tests."""
    return [f"{name}.{attempt}" for name in TESTS]


def code_steps(attempt: int) -> list[str]:
    """Names of the steps of an attempt at its code."""
    return [f"{name}.{attempt}" for name in CODE]


def describe_rejection(result: Mapping[str, Any]) -> str:
    """Name the person who rejected a story and the reason, from the result of the step `REJECTED`."""
    reason = result.get("reason")
    return f"rejected by a person ({result.get('by')})" + (f": {reason}" if reason else "")

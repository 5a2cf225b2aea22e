"""The rows of a loop's database: the loop, its stories, steps and events."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ringfence.frozen import frozen
from ringfence.loop.state import LoopState, StoryState

MAX_LISTED = 20
"""How many names an event or a complaint lists."""


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
    """The commit from which the loop started."""
    branch: str
    """The branch on which the work is delivered to the user's repository."""
    record_run_id: str
    """The run id of this round's record."""
    round: int
    """Number of the round: 1, and one more each time an ended loop is resumed."""
    created_ms: int
    started_ms: int
    """When this round began."""
    ended_ms: int | None


class StepKey(NamedTuple):
    """Identifies a step of a loop."""

    story: str
    """The story's id; empty for a step of the loop itself."""
    generation: int
    name: str


def base_key(commit: str) -> StepKey:
    """Return the key of the step that runs all checks on a commit of the loop's branch, once for all stories."""
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
    """The generation: 1, and one more each time the story is restarted by `loop retry` or after a merge conflict."""
    attempt: int
    stage: str
    """The current stage: `tests`, `code`, `checks`, `review`, `merge` or the value of `JUDGE_STEP`; empty: none."""
    slot: int | None
    """The number of the story's worktree."""
    base: str | None
    """The commit of the loop's branch at which the story was started."""
    tests_commit: str | None
    """The commit with its tests."""
    code_commit: str | None
    """The commit with its accepted code."""
    merged_commit: str | None
    """The commit of the loop's branch that contains it."""
    answer: str = ""
    """A person's answer to the story's question."""

    @property
    def is_merged(self) -> bool:
        """Whether the story passed in this loop, so that the loop's branch contains it; not if it was done before."""
        return self.state is StoryState.PASSED and self.merged_commit is not None

    def key(self, name: str) -> StepKey:
        """Return the key of a step of the story's current generation."""
        return StepKey(self.id, self.generation, name)


JUDGE_STEP = "judgement"
"""The name, in stored rows, of the judge's step and of the stage that reports call `verdict`. It must not change, as
databases of every version contain it."""
TESTS = ("tests", "red")
"""The steps of an attempt at a story's tests that have a run; its commit is a step without one."""
CODE = ("code", "checks", "review", JUDGE_STEP)
"""The steps of an attempt at a story's code, one for each stage; its commit is a step without a run."""
CHECKS = ("checks", "configuration", "alone")
"""The steps of the stage `checks`. Not every attempt has the last two: `configuration`, with protected configuration as
before the story, and `alone`, of each of the story's own tests."""
STAGES: Mapping[str, str] = {
    "tests": "tests", "red": "tests", "code": "code", "checks": "checks", "configuration": "checks",
    "alone": "checks", "review": "review", JUDGE_STEP: JUDGE_STEP,
}  # fmt: skip
"""The stage that a story enters when a step begins, by the first part of the step's name."""
ACCEPTED_BY_PERSON = "accepted"
"""The step in which a person accepted an attempt."""
REJECTED_BY_PERSON = "rejected"
"""The step in which a person rejected a story that had passed, or that waited to be merged."""
DELIVERED = StepKey("", 1, "delivered")
"""The step in which the loop's branch was last delivered; its result has the `commit`, None if it never was."""
COUNTED = "counted"
"""In an unfinished step's result: the id of the last run whose usage is already in `tokens` and `cost_usd`."""


@frozen
class StepRow:
    """One step of a loop: a run of an agent or of checks, a commit, a rejected attempt, or a person's decision."""

    story: str
    generation: int
    name: str
    role: str
    attempt: int
    model: str
    run_id: str | None
    """The run whose record documents the step; None for a step without a run."""
    outcome: str | None
    """None while the step is in progress, or if its process died."""
    result: Mapping[str, Any]
    tokens: int
    cost_usd: float
    tries: int
    started_ms: int
    ended_ms: int | None

    @property
    def key(self) -> StepKey:
        """The step's key in the loop."""
        return StepKey(self.story, self.generation, self.name)

    @property
    def is_counted(self) -> bool:
        """Whether `tokens` and `cost_usd` include the usage of the last run."""
        return self.outcome is not None or self.run_id is None or self.result.get(COUNTED) == self.run_id


@frozen
class CommittedWork:
    """The work that an attempt committed: the result of a step whose name ends with `.commit`."""

    commit: str
    files: tuple[str, ...]
    """Paths of the changed files; bytes that are not UTF-8 are escaped."""
    left_out: tuple[str, ...] = ()
    """Changes of protected files that are not in the commit, each with the reason."""
    configuration: tuple[str, ...] = ()
    """Paths of protected configuration that the commit changes, as the story's `files` name it."""

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> "CommittedWork":
        """Return the work that a step's result describes."""
        lists = {name: tuple(result.get(name, ())) for name in ("files", "left_out", "configuration")}
        return cls(commit=result["commit"], **lists)

    def to_result(self) -> dict[str, Any]:
        """Return the work as the result of its step."""
        return {
            "commit": self.commit,
            "files": [*self.files],
            "left_out": [*self.left_out],
            "configuration": [*self.configuration],
        }


@frozen
class EventRow:
    """An event of a loop."""

    number: int
    at_ms: int
    type: str
    story: str | None
    data: Mapping[str, Any]


@frozen
class Spent:
    """The usage of a loop's agents."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def and_more(self, tokens: int, cost_usd: float) -> "Spent":
        """Return the sum with the usage of one more run, which was counted as a call when it began."""
        return Spent(self.calls, self.tokens + tokens, self.cost_usd + cost_usd)


def tests_steps(attempt: int) -> list[str]:
    """Return the names of the steps of an attempt at a story's tests."""
    return [f"{name}.{attempt}" for name in TESTS]


def check_steps(attempt: int) -> list[str]:
    """Return the names of the steps that check an attempt at a story's code.

    These are the checks themselves, the checks with the configuration as before the story, and the story's tests, each
    of them run alone.
    """
    return [f"{name}.{attempt}" for name in CHECKS]


def code_steps(attempt: int) -> list[str]:
    """Return the names of the steps of an attempt at a story's code, including all that check it."""
    return [f"code.{attempt}", *check_steps(attempt), f"review.{attempt}", f"{JUDGE_STEP}.{attempt}"]


def describe_rejection(result: Mapping[str, Any]) -> str:
    """Name the person who rejected a story and the reason, from the result of the step `REJECTED_BY_PERSON`."""
    reason = result.get("reason")
    return f"rejected by a person ({result.get('by')})" + (f": {reason}" if reason else "")

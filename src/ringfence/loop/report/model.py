"""A loop's report: what is shown of it, taken from its rows. Texts of agents are in it as they are, not escaped."""

from collections.abc import Mapping
from typing import Literal

from ringfence.frozen import frozen

AttemptKind = Literal["tests", "code"]
StageName = Literal["tests", "code", "checks", "review", "verdict"]
STAGES: tuple[StageName, ...] = ("tests", "code", "checks", "review", "verdict")
INTERRUPTED = "interrupted"
"""Of a loop, in the place of `running`: nobody works on it."""


@frozen
class FileStat:
    """What became of one file."""

    path: str
    insertions: int
    deletions: int
    is_binary: bool


@frozen
class Stat:
    """What differs between two commits."""

    files: tuple[FileStat, ...]
    """At most `MOST_FILES` of them."""
    count: int
    """Of all files."""
    insertions: int
    deletions: int


@frozen
class FlaggedFile:
    """A file of the branch that runs, or is trusted, on the user's machine without being asked for."""

    path: str
    why: str


@frozen
class Used:
    """What something took."""

    calls: int = 0
    """Runs of agents."""
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    """In which its runs were at work."""


@frozen
class Turn:
    """A run: of a role's agent, or of checks."""

    name: str
    """Of the step: `code.1`."""
    role: str
    """Empty: checks."""
    model: str
    run_id: str | None
    outcome: str | None
    """None: it goes on, or its process died."""
    tries: int
    used: Used
    words: str
    """What the agent said of its work at its end."""


@frozen
class CheckResult:
    """What one check came to."""

    name: str
    colour: str
    """`green`, `red`, `red, as before`; empty where it decided nothing."""
    words: str
    """Counts, or the exit code."""


@frozen
class Answer:
    """The reviewer's answer to one question."""

    id: str
    is_yes: bool
    evidence: str


@frozen
class CriterionVerdict:
    """What was said of one criterion."""

    number: int
    """From 1."""
    text: str
    verdict: Literal["met", "not_met", "unclear"] | None
    """None: nobody has judged it."""
    reason: str
    evidence: tuple[str, ...]
    """`file:line`, or the id of a test that passed."""


@frozen
class Attempt:
    """One attempt at a story's tests or at its code."""

    kind: AttemptKind
    generation: int
    """Of the story: 1, and one more each time it was begun anew."""
    number: int
    """From 1."""
    state: Literal["accepted", "rejected", "under way"]
    turns: tuple[Turn, ...]
    checks: tuple[CheckResult, ...]
    review: tuple[Answer, ...]
    verdict: tuple[CriterionVerdict, ...]
    feedback: str
    """The judge's, for the next attempt."""
    complaints: tuple[str, ...]
    """Why it was rejected."""
    commit: str | None
    patch: str | None
    """File with the rejected work."""
    files: tuple[str, ...]
    """That it changed."""
    stat: Stat | None


@frozen
class StoryReport:
    """A story."""

    id: str
    title: str
    state: str
    stage: str
    """While it is worked on."""
    stages: tuple[str, ...]
    """How each of `STAGES` stands in the present attempt: `ok`, `no`, `...`, counts, or nothing."""
    reason: str
    answer: str
    """A person's."""
    depends_on: tuple[str, ...]
    attempt: int
    """At its code; 0: none was begun."""
    tests_attempt: int
    """At its tests."""
    most_attempts: int
    generation: int
    criteria: tuple[CriterionVerdict, ...]
    """With the last verdict on them."""
    merged: str | None
    stat: Stat | None
    """Of what is on the loop's branch."""
    attempts: tuple[Attempt, ...]
    used: Used
    outside: tuple[str, ...] = ()
    """Files that it changed outside of those that it names, its tests aside; the first 20."""
    outside_count: int = 0


@frozen
class LoopReport:
    """A loop."""

    id: str
    title: str
    source: str
    prd: str | None
    """The stories' file."""
    state: str
    reason: str
    base: str
    branch: str
    tip: str | None
    """Commit of the branch, if something passed."""
    patch: str | None
    """File with all of the work."""
    record: str
    """The run whose record holds what happened in its last round."""
    round: int
    created_ms: int
    ended_ms: int | None
    most_calls: int
    most_tokens: int
    most_cost_usd: float | None
    red_before: tuple[str, ...]
    """Tests that failed before anything was done; at most 20."""
    red_before_count: int
    stat: Stat | None
    flagged: tuple[FlaggedFile, ...]
    """What to look at before the branch is used; at most `MOST_FLAGGED`, of each reason the first come first."""
    flagged_count: int
    stories: tuple[StoryReport, ...]
    used: Used
    has_clones: bool = True
    """Whether what it is gone on with is there: `loop rm` removes it."""
    is_started: bool = True
    """Whether its base let it begin: where not, a later commit may, which only another loop starts from."""
    is_merged: bool = False
    """Whether the user's branch was moved forward to it, as was asked for."""
    outstanding: tuple[str, ...] = ()
    """What was asked for once every story has passed, is not done, and nobody is at: options, as `--merge`."""

    @property
    def outside(self) -> Mapping[str, tuple[str, ...]]:
        """By story, files that it changed outside of those that it names; the first 20."""
        return {story.id: story.outside for story in self.stories if story.outside}

    @property
    def passed(self) -> int:
        """How many stories passed."""
        return sum(story.state == "passed" for story in self.stories)

"""A loop's report: what is shown of it, taken from its rows. Texts of agents are in it as they are, not escaped."""

from collections.abc import Iterator, Mapping
from typing import Literal

from ringfence.frozen import frozen

AttemptKind = Literal["tests", "code"]
StageName = Literal["tests", "code", "checks", "review", "verdict"]
STAGES: tuple[StageName, ...] = ("tests", "code", "checks", "review", "verdict")
INTERRUPTED = "interrupted"
"""Of a loop, in the place of `running`: nobody works on it."""


@frozen
class Hunk:
    """Lines of a file that stand together in a diff."""

    before: int
    """The number of the first line before the change."""
    after: int
    """And after it."""
    lines: tuple[str, ...]
    """Each begins with ` `, `+` or `-`, as in a patch, or with a backslash where the last line has no line end."""


@frozen
class FileStat:
    """The change of one file."""

    path: str
    """Relative to the top of the repository."""
    insertions: int
    deletions: int
    is_binary: bool
    note: str = ""
    """`added`, `deleted`, or the new mode."""
    hunks: tuple[Hunk, ...] = ()
    is_cut: bool = False
    """Whether lines are left out."""


@frozen
class Stat:
    """The difference between two commits."""

    files: tuple[FileStat, ...]
    """At most `MAX_FILES` of them."""
    count: int
    """Of all files."""
    insertions: int
    deletions: int
    is_partial: bool = False
    """Whether the numbers are of the beginning of a patch that is too long to read."""

    def find_line(self, path: str, number: int) -> tuple[int, str] | None:
        """The position of a file, and one of its lines as it is after the change; None if the diff does not have it."""
        for position, file in enumerate(self.files, start=1):
            if file.path == path:
                found = (line for hunk in file.hunks for _, after, line in numbered(hunk) if after == number)
                line = next(found, None)
                return None if line is None else (position, line[1:])
        return None


def numbered(hunk: Hunk) -> Iterator[tuple[int | None, int | None, str]]:
    """Yield each line with its number before and after the change; None on the side that does not have it."""
    before, after = hunk.before, hunk.after
    for line in hunk.lines:
        is_before, is_after = line[0] in " -", line[0] in " +"
        yield before if is_before else None, after if is_after else None, line
        before, after = before + is_before, after + is_after


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
class RoleUsed:
    """What all runs of a role took."""

    role: str
    """Empty: checks."""
    models: tuple[str, ...]
    used: Used


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
class Evidence:
    """What a verdict rests on: a line of a file, or a test that passed."""

    file: str = ""
    """Relative to the directory that the loop works in."""
    line: int = 0
    test: str = ""

    def __str__(self) -> str:
        """`file:line`, or the test's id."""
        return self.test or f"{self.file}:{self.line}"


@frozen
class CriterionVerdict:
    """What was said of one criterion."""

    number: int
    """From 1."""
    text: str
    verdict: Literal["met", "not_met", "unclear"] | None
    """None: nobody has judged it."""
    reason: str
    evidence: tuple[Evidence, ...]


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
    left_out: tuple[str, ...]
    """Changes of protected files that were not taken, each with the reason."""
    configuration: tuple[str, ...]
    """Protected files that it changed because the story names them: checks ran with and without them."""
    stat: Stat | None
    """Of rejected work, which is in `patch`."""


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
    is_by_person: bool = False
    """Whether a person accepted it, though its attempts were rejected."""

    @property
    def judged_stat(self) -> Stat | None:
        """The diff that `criteria` were last judged on, if it is known."""
        judged = [attempt for attempt in self.attempts if attempt.verdict]
        return self.stat or (judged[-1].stat if judged else None)


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
    """What to look at before the branch is used; at most `MAX_FLAGGED`, of each reason the first come first."""
    flagged_count: int
    stories: tuple[StoryReport, ...]
    used: Used
    roles: tuple[RoleUsed, ...] = ()
    directory: str = ""
    """That the loop works in, relative to the top of the repository."""
    has_clones: bool = True
    """Whether what it is gone on with is there: `loop rm` removes it."""
    is_started: bool = True
    """Whether its base let it begin: where not, a later commit may, which only another loop starts from."""
    is_merged: bool = False
    """Whether the user's branch was moved forward to it, as was asked for."""
    outstanding: tuple[str, ...] = ()
    """What was asked for once every story has passed, is not done, and nobody is at: options, as `--merge`."""

    def find_evidence(self, evidence: Evidence, stat: Stat | None) -> tuple[int, str] | None:
        """The position of the file and the line that evidence names, in the diff of the work that was judged."""
        if stat is None or not evidence.file:
            return None
        path = evidence.file.removeprefix("./")
        return stat.find_line(f"{self.directory}/{path}" if self.directory else path, evidence.line)

    @property
    def outside(self) -> Mapping[str, tuple[str, ...]]:
        """By story, files that it changed outside of those that it names; the first 20."""
        return {story.id: story.outside for story in self.stories if story.outside}

    @property
    def passed(self) -> int:
        """How many stories passed."""
        return sum(story.state == "passed" for story in self.stories)

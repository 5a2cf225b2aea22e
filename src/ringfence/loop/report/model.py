"""Defines the model of a loop's report, which all of its forms show. Texts of agents in it are not escaped."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ringfence.errors import UsageError
from ringfence.frozen import frozen

AttemptKind = Literal["tests", "code"]
STAGES = ("tests", "code", "checks", "review", "verdict")
INTERRUPTED = "interrupted"
"""The state of a loop whose row says `running`, although no process runs it."""


@frozen
class Hunk:
    """Adjacent lines of a file in a diff."""

    before: int
    """The number of the first line before the change."""
    after: int
    """The number of the first line after the change."""
    lines: tuple[str, ...]
    """Lines that begin with ` `, `+` or `-`, as in a patch, or with a backslash if the last line has no line end."""

    def numbered(self) -> Iterator[tuple[int | None, int | None, str]]:
        """Yield each line with its number before and after the change; None on the side that does not have it."""
        before, after = self.before, self.after
        for line in self.lines:
            is_before, is_after = line[0] in " -", line[0] in " +"
            yield before if is_before else None, after if is_after else None, line
            before, after = before + is_before, after + is_after


@frozen
class FileDiff:
    """The change of one file."""

    path: str
    """Path relative to the top of the repository."""
    insertions: int
    deletions: int
    is_binary: bool
    note: str = ""
    """`added`, `deleted`, or the new mode."""
    hunks: tuple[Hunk, ...] = ()
    is_truncated: bool = False
    """Whether lines were left out."""


@frozen
class DiffSummary:
    """The difference between two commits."""

    files: tuple[FileDiff, ...]
    """The first `MAX_FILES` files."""
    count: int
    """The number of all files."""
    insertions: int
    deletions: int
    is_truncated: bool = False
    """Whether the numbers are only for the beginning of a patch that is too long to read."""

    def find_line(self, path: str, number: int) -> tuple[int, str] | None:
        """The position of a file, and one of its lines as it is after the change; None if the diff does not have it."""
        for position, file in enumerate(self.files, start=1):
            if file.path == path:
                found = (line for hunk in file.hunks for _, after, line in hunk.numbered() if after == number)
                line = next(found, None)
                return None if line is None else (position, line[1:])
        return None


@frozen
class FlaggedFile:
    """A file of the branch that is executed or trusted on the user's machine without a further request."""

    path: str
    why: str


@frozen
class Usage:
    """The usage of runs."""

    calls: int = 0
    """Number of agents' runs."""
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0


@frozen
class RoleUsage:
    """The usage of all runs of a role."""

    role: str
    """Empty: checks."""
    models: tuple[str, ...]
    used: Usage


@frozen
class RunReport:
    """A run: of a role's agent, or of checks."""

    name: str
    """The step's name, such as `code.1`."""
    role: str
    """Empty: checks."""
    model: str
    run_id: str | None
    outcome: str | None
    """None: it is still running, or its process died."""
    tries: int
    used: Usage
    words: str
    """The agent's summary of its work."""


@frozen
class CheckResult:
    """The result of one check."""

    name: str
    colour: str
    """`green`, `red` or `red, as before`; empty if it decided nothing."""
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
    """The evidence for a verdict: a line of a file, or a test that passed."""

    file: str = ""
    """Path relative to the directory that the loop works in."""
    line: int = 0
    test: str = ""

    def __str__(self) -> str:
        """`file:line`, or the test's id."""
        return self.test or f"{self.file}:{self.line}"


@frozen
class CriterionVerdict:
    """The judge's verdict on one criterion."""

    number: int
    """Counted from 1."""
    text: str
    verdict: Literal["met", "not_met", "unclear"] | None
    """None: not judged yet."""
    reason: str
    evidence: tuple[Evidence, ...]


@frozen
class PersonRejection:
    """The decision of a person to reject accepted work."""

    by: str
    """The person's login name."""
    reason: str
    """Empty: no reason was given."""
    at_ms: int
    """Time in milliseconds since 1970."""


@frozen
class Attempt:
    """One attempt at a story's tests or at its code."""

    kind: AttemptKind
    generation: int
    """The story's generation: 1, and one more for each restart."""
    number: int
    """Counted from 1."""
    state: Literal["accepted", "rejected", "under way"]
    turns: tuple[RunReport, ...]
    checks: tuple[CheckResult, ...]
    review: tuple[Answer, ...]
    verdict: tuple[CriterionVerdict, ...]
    complaints: tuple[str, ...]
    """Why it was rejected."""
    commit: str | None
    patch: str | None
    """File with the rejected work."""
    files: tuple[str, ...]
    """The files that it changed; the first 200."""
    left_out: tuple[str, ...]
    """Changes of protected files that were not committed, each with the reason."""
    configuration: tuple[str, ...]
    """Protected files that it changed because the story names them; checks ran with and without these changes."""
    stat: DiffSummary | None
    """The diff of rejected work, which `patch` holds."""
    rejected_by: PersonRejection | None = None
    """The person who rejected it after it had been accepted, if any."""


@frozen
class StoryReport:
    """A story."""

    id: str
    title: str
    state: str
    stage: str
    """The step that is in progress."""
    stages: tuple[str, ...]
    """The result of each of `STAGES` in the current attempt: `ok`, `no`, `...` while in progress, or empty."""
    reason: str
    """Why it was skipped, its question, or the person who accepted or rejected it."""
    answer: str
    """A person's answer to its question."""
    depends_on: tuple[str, ...]
    attempt: int
    """The current attempt at its code; 0: there was none."""
    tests_attempt: int
    """The current attempt at its tests; 0: there was none."""
    max_attempts: int
    generation: int
    criteria: tuple[CriterionVerdict, ...]
    """Criteria with the verdict on the current attempt, which is the accepted one if the story passed."""
    merged: str | None
    stat: DiffSummary | None
    """The diff of its part of the loop's branch."""
    attempts: tuple[Attempt, ...]
    used: Usage
    outside: tuple[str, ...] = ()
    """Files that it changed although neither its `files` nor its tests include them; the first 20."""
    outside_count: int = 0

    @property
    def rejected_by(self) -> PersonRejection | None:
        """The person who rejected the story since it was last started, if any."""
        own = (each.rejected_by for each in self.attempts if each.generation == self.generation)
        return next((each for each in own if each is not None), None)

    @property
    def judged_stat(self) -> DiffSummary | None:
        """The diff that `criteria` were judged on, if it is known."""
        return self.stat or (self.judged_attempt.stat if self.judged_attempt is not None else None)

    @property
    def judged_attempt(self) -> Attempt | None:
        """The attempt whose verdict `criteria` shows; None: the judge has not judged the current attempt."""
        current = ("code", self.generation, self.attempt)
        own = (each for each in self.attempts if (each.kind, each.generation, each.number) == current)
        return next((each for each in own if each.verdict), None)


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
    """Commit of the branch, if a story passed."""
    patch: str | None
    """File with all of the work."""
    record: str
    """The run whose record holds the events of the last round."""
    round: int
    created_ms: int
    ended_ms: int | None
    red_before: tuple[str, ...]
    """Tests that failed before the loop started; the first 20."""
    red_before_count: int
    stat: DiffSummary | None
    flagged: tuple[FlaggedFile, ...]
    """Files to look at before the branch is used: the first `MAX_FLAGGED`, alternating between the reasons."""
    flagged_count: int
    stories: tuple[StoryReport, ...]
    used: Usage
    roles: tuple[RoleUsage, ...] = ()
    directory: str = ""
    """The directory that the loop works in, relative to the top of the repository."""
    has_repository: bool = True
    """Whether the working files exist that a resumed loop needs; `loop rm` removes them."""
    is_started: bool = True
    """False if the preflight checks failed; start a new loop from a later commit."""
    is_delivered: bool = True
    """Whether the user's repository has the branch; it gets the branch when the loop ends."""
    is_merged: bool = False
    """Whether the user's branch was fast-forwarded to it, as `--merge` requests."""
    outstanding: tuple[str, ...] = ()
    """Options like `--merge` whose work is not done although the loop has ended."""

    def story(self, name: str) -> StoryReport:
        """Return one of the stories.

        Raises:
            UsageError: There is no story of this name.
        """
        found = next((story for story in self.stories if story.id == name), None)
        if found is None:
            names = ", ".join(story.id for story in self.stories)
            raise UsageError(f"loop {self.id!r} has no story {name[:80]!r}; it has {names}")
        return found

    def find_evidence(self, evidence: Evidence, stat: DiffSummary | None) -> tuple[int, str] | None:
        """The position of the file and the line that evidence names, in the diff of the work that was judged."""
        if stat is None or not evidence.file:
            return None
        path = evidence.file.removeprefix("./")
        return stat.find_line(f"{self.directory}/{path}" if self.directory else path, evidence.line)

    def cited_lines(
        self, verdicts: Sequence[CriterionVerdict], stat: DiffSummary | None
    ) -> Mapping[tuple[int, int], str]:
        """The numbers of the criteria, like `1, 3`, for each line that evidence names: by file position and line."""
        found = dict[tuple[int, int], list[str]]()
        for verdict in verdicts:
            for evidence in verdict.evidence:
                location = self.find_evidence(evidence, stat)
                if location is not None:
                    numbers = found.setdefault((location[0], evidence.line), [])
                    numbers.extend({str(verdict.number)} - {*numbers})
        return {line: ", ".join(numbers) for line, numbers in found.items()}

    @property
    def outside(self) -> Mapping[str, tuple[str, ...]]:
        """The files that each story changed but does not name, by story; the first 20 each."""
        return {story.id: story.outside for story in self.stories if story.outside}

    @property
    def passed(self) -> int:
        """The number of stories that passed."""
        return sum(story.state == "passed" for story in self.stories)

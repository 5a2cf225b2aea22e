"""What happens to a loop and its stories. Commits are whole ids; `runs` name the records of what was done."""

from ringfence.events.event import Event


class LoopStarted(Event, frozen=True, kw_only=True, tag="loop.started"):
    """The stories are known, and so is what fails before anything is done."""

    number: int
    """Of this event in its loop, from 1; so in all of them."""
    base: str
    stories: int
    red: list[str]
    """Some of the tests that fail already."""
    red_count: int
    red_checks: list[str]


class StoryDispatched(Event, frozen=True, kw_only=True, tag="story.dispatched"):
    """A story is begun."""

    number: int
    story: str
    base: str
    """Commit of the loop's branch."""
    slot: int | None = None


class TestsWritten(Event, frozen=True, kw_only=True, tag="tests.written"):
    """A story's tests are there, fail for the right reason, and are frozen."""

    number: int
    story: str
    commit: str
    files: list[str]
    runs: list[str]


class CodeCommitted(Event, frozen=True, kw_only=True, tag="code.committed"):
    """An attempt's code may be checked."""

    number: int
    story: str
    attempt: int
    commit: str
    files: int
    runs: list[str]


class ChecksCompleted(Event, frozen=True, kw_only=True, tag="checks.completed"):
    """All checks were run on an attempt, in a new sandbox."""

    number: int
    story: str
    attempt: int
    is_green: bool
    checks: dict[str, str]
    """What each came to."""
    runs: list[str]


class StoryRetried(Event, frozen=True, kw_only=True, tag="story.retried"):
    """An attempt was rejected, and another follows."""

    number: int
    story: str
    attempt: int
    role: str
    """Whose: `test_writer`, `implementor`, or `merge` where it did not fit what came meanwhile."""
    complaints: list[str]
    runs: list[str]


class StoryFailed(Event, frozen=True, kw_only=True, tag="story.failed"):
    """The last attempt was rejected."""

    number: int
    story: str
    attempt: int
    role: str
    complaints: list[str]
    runs: list[str]


class StoryPassed(Event, frozen=True, kw_only=True, tag="story.passed"):
    """A story was accepted and is on the loop's branch."""

    number: int
    story: str
    attempt: int
    commit: str
    """Of the loop's branch."""
    runs: list[str]
    outside: tuple[str, ...] = ()
    """Files that it changed outside of those that its `files` name, its tests aside; the first 20."""
    outside_count: int = 0
    """How many there are."""


class StorySkipped(Event, frozen=True, kw_only=True, tag="story.skipped"):
    """A story was given up; nothing of it is on the loop's branch."""

    number: int
    story: str
    reason: str


class StoryBlocked(Event, frozen=True, kw_only=True, tag="story.blocked"):
    """A story needs a person."""

    number: int
    story: str
    question: str


class LoopCompleted(Event, frozen=True, kw_only=True, tag="loop.completed"):
    """Nothing more is done about the loop by itself."""

    number: int
    state: str
    reason: str
    passed: int


class LoopMerged(Event, frozen=True, kw_only=True, tag="loop.merged"):
    """The user's branch was moved forward to the loop's work, as `--merge` asks."""

    number: int
    branch: str
    commit: str


class LoopProposed(Event, frozen=True, kw_only=True, tag="loop.proposed"):
    """A pull request is open, as `--pr` asks."""

    number: int
    address: str


class LoopCancelled(Event, frozen=True, kw_only=True, tag="loop.cancelled"):
    """The user stopped the loop."""

    number: int
    reason: str
    state: str = "cancelled"
    passed: int = 0

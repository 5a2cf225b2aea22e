"""Events of a loop and its stories. Commits are full ids; `runs` are the ids of the runs that did the work."""

import msgspec

from ringfence.events.event import Event


class LoopStarted(Event, frozen=True, kw_only=True, tag="loop.started"):
    """The stories were read, and the tests and checks that already fail were determined."""

    number: int
    """The number of this event in its loop, counted from 1; the same holds for every event of a loop."""
    base: str
    stories: int
    red: list[str]
    """Some of the tests that already fail."""
    red_count: int
    red_checks: list[str]


class StoryDispatched(Event, frozen=True, kw_only=True, tag="story.dispatched"):
    """Work on a story started."""

    number: int
    story: str
    base: str
    """The commit of the loop's branch at which the work starts."""
    slot: int | None = None


class TestsWritten(Event, frozen=True, kw_only=True, tag="tests.written"):
    """The tests of a story were written, fail as expected, and were protected from changes."""

    number: int
    story: str
    commit: str
    files: list[str]
    runs: list[str]


class CodeCommitted(Event, frozen=True, kw_only=True, tag="code.committed"):
    """The code of an attempt was committed and can be checked."""

    number: int
    story: str
    attempt: int
    commit: str
    files: int
    runs: list[str]
    left_out: list[str] = msgspec.field(default_factory=list)
    """Changes of protected files that are not in the commit, each with the reason; after 20 of them `and N more`."""


class ChecksCompleted(Event, frozen=True, kw_only=True, tag="checks.completed"):
    """All checks of an attempt were run, in a new sandbox."""

    number: int
    story: str
    attempt: int
    is_green: bool
    checks: dict[str, str]
    """The outcome of each check. If a further run was red although these are not, it also has `earlier configuration`
    (the checks with the configuration as before the story) or `tests alone` (each of the story's tests alone)."""
    runs: list[str]
    """The runs of the checks. Some attempts have further ones, which also decide: with the configuration as before the
    story, and of each of the story's tests alone."""


class StoryRetried(Event, frozen=True, kw_only=True, tag="story.retried"):
    """An attempt was rejected, and another follows."""

    number: int
    story: str
    attempt: int
    role: str
    """The role whose work was rejected: `test_writer`, `implementor`, or `merge` if the work conflicts with later
    commits of the loop's branch."""
    complaints: list[str]
    runs: list[str]


class StoryFailed(Event, frozen=True, kw_only=True, tag="story.failed"):
    """A role's last attempt was rejected; `story.skipped` follows."""

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
    """The commit of the loop's branch that contains the story."""
    runs: list[str]
    outside: tuple[str, ...] = ()
    """The first 20 files that the story changed although neither its `files` nor its tests include them."""
    outside_count: int = 0
    """The number of all such files."""
    is_by_person: bool = False
    """Whether a person accepted an attempt that had been rejected."""
    by: str = ""
    """The login name of that person; empty where the judge accepted it."""


class StoryRejected(Event, frozen=True, kw_only=True, tag="story.rejected"):
    """A person rejected a story that had passed or was accepted; none of its work is on the loop's branch any more."""

    number: int
    story: str
    attempt: int
    commit: str | None
    """The commit of the loop's branch that reverts the story; null if it was not merged yet."""
    by: str
    """The login name of the person."""
    reason: str


class StorySkipped(Event, frozen=True, kw_only=True, tag="story.skipped"):
    """A story was skipped; none of its work is on the loop's branch."""

    number: int
    story: str
    reason: str


class StoryBlocked(Event, frozen=True, kw_only=True, tag="story.blocked"):
    """A story needs a decision by a person."""

    number: int
    story: str
    question: str


class LoopCompleted(Event, frozen=True, kw_only=True, tag="loop.completed"):
    """The loop ended; it does not continue without the user."""

    number: int
    state: str
    reason: str
    passed: int


class LoopMerged(Event, frozen=True, kw_only=True, tag="loop.merged"):
    """The user's branch was fast-forwarded to the loop's work, as `--merge` requests."""

    number: int
    branch: str
    commit: str


class LoopProposed(Event, frozen=True, kw_only=True, tag="loop.proposed"):
    """A pull request was opened, as `--pr` requests."""

    number: int
    address: str
    attestation: str = ""
    """The digest of the attestation of the branch's last commit; empty: there is none."""


class LoopCancelled(Event, frozen=True, kw_only=True, tag="loop.cancelled"):
    """The user stopped the loop."""

    number: int
    reason: str
    state: str = "cancelled"
    passed: int = 0

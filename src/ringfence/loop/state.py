"""The states of loops and stories, and how the state of a run or of a loop maps to a loop's end and exit code."""

from collections.abc import Mapping
from enum import StrEnum

from ringfence.errors import ExitCode
from ringfence.frozen import frozen
from ringfence.job.state import JobState


class LoopState(StrEnum):
    """The state of a loop. `loop resume` continues it after every end but `succeeded` and `incomplete`."""

    RUNNING = "running"
    """A process works on it; if none does, it was interrupted."""
    SUCCEEDED = "succeeded"
    """Every story passed."""
    INCOMPLETE = "incomplete"
    """All stories were worked on, and some were skipped."""
    BLOCKED = "blocked"
    """The remaining stories need a person's answer."""
    LIMIT = "limit"
    """A bound on calls, tokens or money was reached, or there was no progress."""
    TIMED_OUT = "timed_out"
    """The wall clock limit was reached."""
    CANCELLED = "cancelled"
    """The user stopped it."""
    REFUSED = "refused"
    """Policy refused something that the loop needs."""
    INFRASTRUCTURE = "infrastructure"
    """Ringfence or its infrastructure failed."""
    AUTHENTICATION = "authentication"
    """A credential is missing, expired or wrong."""
    CONFIGURATION = "configuration"
    """The configuration is wrong."""
    SANDBOX_START = "sandbox_start"
    """A sandbox could not be opened."""

    @property
    def is_end(self) -> bool:
        """Whether the loop has ended."""
        return self is not LoopState.RUNNING

    @property
    def is_settled(self) -> bool:
        """Whether each story passed or was skipped, so that `loop resume` has no story to work on."""
        return self in (LoopState.SUCCEEDED, LoopState.INCOMPLETE)

    @property
    def is_closed(self) -> bool:
        """Whether there is nothing to cancel, and another loop of the same repository may begin."""
        return self.is_settled or self is LoopState.CANCELLED

    @property
    def publishes_passed(self) -> bool:
        """Whether `--merge` and `--pr` publish the stories that passed after this end."""
        return self.is_settled or self is LoopState.BLOCKED


@frozen
class LoopEnd:
    """How a loop ends."""

    state: LoopState
    reason: str


EXIT_CODES: Mapping[LoopState, ExitCode] = {
    LoopState.RUNNING: ExitCode.INFRASTRUCTURE,
    LoopState.SUCCEEDED: ExitCode.OK,
    LoopState.INCOMPLETE: ExitCode.CHECK_RED,
    LoopState.BLOCKED: ExitCode.BLOCKED,
    LoopState.LIMIT: ExitCode.LIMIT,
    LoopState.TIMED_OUT: ExitCode.TIMED_OUT,
    LoopState.CANCELLED: ExitCode.CANCELLED,
    LoopState.REFUSED: ExitCode.REFUSED,
    LoopState.INFRASTRUCTURE: ExitCode.INFRASTRUCTURE,
    LoopState.AUTHENTICATION: ExitCode.AUTHENTICATION,
    LoopState.CONFIGURATION: ExitCode.CONFIGURATION,
    LoopState.SANDBOX_START: ExitCode.SANDBOX_START,
}

ENDS_LOOP: Mapping[JobState, LoopState] = {
    JobState.CANCELLED: LoopState.CANCELLED,
    JobState.AUTHENTICATION: LoopState.AUTHENTICATION,
    JobState.CONFIGURATION: LoopState.CONFIGURATION,
    JobState.REFUSED: LoopState.REFUSED,
}
"""States of ended runs for which a retry is pointless, and the state in which the loop ends."""

FAULTS: Mapping[JobState, LoopState] = {
    JobState.INFRASTRUCTURE: LoopState.INFRASTRUCTURE,
    JobState.INTERRUPTED: LoopState.INFRASTRUCTURE,
    JobState.SANDBOX_START: LoopState.SANDBOX_START,
}
"""States of ended runs that are retried without spending an attempt, and the loop's state if no retry succeeds."""


class StoryState(StrEnum):
    """The state of a story."""

    WAITING = "waiting"
    """Waits for a free worktree, or for a story that it depends on."""
    RUNNING = "running"
    """It is being worked on."""
    PASSED = "passed"
    """Its tests and all checks are green, the judge found each criterion met, and it is on the loop's branch."""
    SKIPPED = "skipped"
    """Its attempts are used up, or a story that it depends on was skipped. Nothing of it is on the branch."""
    BLOCKED = "blocked"
    """It needs a person's answer."""

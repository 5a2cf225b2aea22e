"""Where a loop and its stories stand, and the exit code of each end."""

from collections.abc import Mapping
from enum import StrEnum

from ringfence.errors import ExitCode


class LoopState(StrEnum):
    """Of a loop. `loop resume` continues it after every end but `succeeded` and `incomplete`."""

    RUNNING = "running"
    """Some process works on it; if none does, it was interrupted."""
    SUCCEEDED = "succeeded"
    """Every story passed."""
    INCOMPLETE = "incomplete"
    """It came to its end, and stories were skipped."""
    BLOCKED = "blocked"
    """What is left needs a person."""
    LIMIT = "limit"
    """A bound on calls, tokens or money was reached, or there was no progress."""
    TIMED_OUT = "timed_out"
    """The wall clock limit was reached."""
    CANCELLED = "cancelled"
    """The user stopped it."""
    REFUSED = "refused"
    """Policy refused what was asked for."""
    INFRASTRUCTURE = "infrastructure"
    """Ringfence or its infrastructure failed."""
    AUTHENTICATION = "authentication"
    """A credential is missing, expired or wrong."""
    CONFIGURATION = "configuration"
    """What was configured does not fit."""
    SANDBOX_START = "sandbox_start"
    """A sandbox could not be opened."""

    @property
    def is_end(self) -> bool:
        """Whether nobody works on it any more."""
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
        """Whether `--merge` and `--pr` publish what passed after this end."""
        return self.is_settled or self is LoopState.BLOCKED


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


class StoryState(StrEnum):
    """Of a story."""

    WAITING = "waiting"
    """For its turn, or for a story that it depends on."""
    RUNNING = "running"
    """It is worked on."""
    PASSED = "passed"
    """Its tests and all checks are green, the judge found each criterion met, and it is on the loop's branch."""
    SKIPPED = "skipped"
    """Its attempts are used up, or a story that it depends on was skipped. Nothing of it is on the branch."""
    BLOCKED = "blocked"
    """It needs a person's answer."""

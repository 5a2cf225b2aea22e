"""Where a loop and its stories stand, and the exit code of each end."""

from collections.abc import Mapping
from enum import StrEnum

from ringfence.errors import ExitCode


class LoopState(StrEnum):
    """Of a loop. Whatever is no success can be gone on with by `loop resume`."""

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
    """Something between us and the world failed, or we did."""
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

    @property
    def is_end(self) -> bool:
        """Whether nothing more is done about it by itself."""
        return self in (StoryState.PASSED, StoryState.SKIPPED, StoryState.BLOCKED)

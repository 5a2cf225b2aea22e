"""How an attempt, a story or the loop ends, as exceptions that leave the step at which they are known."""

from collections.abc import Mapping, Sequence

from ringfence.job.state import JobState
from ringfence.loop.state import LoopState


class Rejected(Exception):
    """The attempt is turned down, and the next one is told why.

    Args:
        complaints: Why.
        commit: The attempt's work, if it was committed.
    """

    def __init__(self, complaints: Sequence[str], *, commit: str | None = None) -> None:
        super().__init__(*complaints)
        self.complaints = [*complaints]
        self.commit = commit


class Skipped(Exception):
    """The story's attempts are used up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Blocked(Exception):
    """The story needs a person's answer."""

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self.question = question


class Fault(Exception):
    """A try of a step failed, and that is nobody's attempt: another try may succeed.

    Args:
        reason: What went wrong.
        state: How the loop ends if no try succeeds.
    """

    def __init__(self, reason: str, state: LoopState = LoopState.INFRASTRUCTURE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state


class Stop(Exception):
    """The loop ends before its stories are done, and can be resumed."""

    def __init__(self, state: LoopState, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


ENDS_LOOP: Mapping[JobState, LoopState] = {
    JobState.CANCELLED: LoopState.CANCELLED,
    JobState.AUTHENTICATION: LoopState.AUTHENTICATION,
    JobState.CONFIGURATION: LoopState.CONFIGURATION,
    JobState.REFUSED: LoopState.REFUSED,
}
"""Ends of runs that no further try would mend."""

IS_FAULT: Mapping[JobState, LoopState] = {
    JobState.INFRASTRUCTURE: LoopState.INFRASTRUCTURE,
    JobState.INTERRUPTED: LoopState.INFRASTRUCTURE,
    JobState.SANDBOX_START: LoopState.SANDBOX_START,
}
"""Ends of runs that are nobody's attempt: tried again, and how the loop ends if that does not help."""

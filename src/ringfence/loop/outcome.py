"""Exceptions that end an attempt, a story or the loop, raised by the step that decides it."""

from collections.abc import Mapping, Sequence

from ringfence.job.state import JobState
from ringfence.loop.state import LoopState


class Rejected(Exception):
    """The attempt is rejected; the next attempt's prompt contains the complaints.

    Args:
        complaints: Why it is rejected.
        commit: The attempt's work, if it was committed.
    """

    def __init__(self, complaints: Sequence[str], *, commit: str | None = None) -> None:
        super().__init__(*complaints)
        self.complaints = [*complaints]
        self.commit = commit


class Skipped(Exception):
    """The story has no attempts left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Blocked(Exception):
    """The story needs a person's answer."""

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self.question = question


class Fault(Exception):
    """A step failed for a reason that is not the attempt's; it is retried, and no attempt is spent.

    Args:
        reason: What went wrong.
        state: The state in which the loop ends if no retry succeeds.
    """

    def __init__(self, reason: str, state: LoopState = LoopState.INFRASTRUCTURE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state


class Stop(Exception):
    """The loop ends before all stories are done, and can be resumed."""

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
"""States of ended runs for which a retry is pointless, and the state in which the loop ends."""

FAULTS: Mapping[JobState, LoopState] = {
    JobState.INFRASTRUCTURE: LoopState.INFRASTRUCTURE,
    JobState.INTERRUPTED: LoopState.INFRASTRUCTURE,
    JobState.SANDBOX_START: LoopState.SANDBOX_START,
}
"""States of ended runs that are retried without spending an attempt, and the loop's state if no retry succeeds."""

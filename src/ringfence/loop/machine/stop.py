"""What ends a loop before its stories are done, told from what ends an attempt."""

from collections.abc import Mapping

from ringfence.job.state import JobState
from ringfence.loop.state import LoopState


class Stop(Exception):
    """The loop ends, and can be gone on with."""

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

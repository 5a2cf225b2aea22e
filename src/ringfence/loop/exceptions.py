"""Exceptions of a loop's steps: a step is retried, or its attempt, its story or the loop ends."""

from collections.abc import Sequence

from ringfence.loop.state import LoopEnd, LoopState


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
    """A step failed through no fault of the attempt; it is retried, and no attempt is spent.

    Args:
        reason: What went wrong.
        state: The state in which the loop ends if no retry succeeds.
    """

    def __init__(self, reason: str, state: LoopState = LoopState.INFRASTRUCTURE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.state = state


class LoopStopped(Exception):
    """The loop ends before all stories are done.

    Args:
        end: How the loop ends.
    """

    def __init__(self, end: LoopEnd) -> None:
        super().__init__(end.reason)
        self.end = end

"""From what ended a run to its terminal state: four kinds of failure, never mixed."""

import errno
from dataclasses import replace
from pathlib import Path

from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    LimitReached,
    PolicyRefused,
    RequestRefused,
    RingfenceError,
    SandboxDied,
    SandboxStartFailed,
    UsageError,
    next_step,
)
from ringfence.frozen import frozen
from ringfence.job.state import JobState


@frozen
class Outcome:
    """A terminal state and why, in a line."""

    state: JobState
    reason: str
    command_exit_code: int | None = None
    """Of the user's own command, in runs that are one."""
    is_request_refused: bool = False
    """Whether the model's API refused for good how it was asked."""


def root_cause(error: BaseException) -> BaseException:
    """The error to judge by: out of a group of tasks' errors, one that we know before one that we do not."""
    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup(RingfenceError)
        error = (known or error).exceptions[0]
    return error


def outcome_of(error: BaseException, *, kept_in: Path | None = None) -> Outcome:
    """What an error that ended a run means. Anything unknown is our own fault, and told as such.

    Args:
        error: What was raised.
        kept_in: Where the traceback of an unknown one is.
    """
    if isinstance(error, LimitReached):
        state = JobState.TIMED_OUT if error.limit == "wall_clock_s" else JobState.LIMIT
        return Outcome(state, str(error))
    if isinstance(error, SandboxDied):
        by_reason = {"memory": JobState.LIMIT, "ttl": JobState.TIMED_OUT}
        return Outcome(by_reason.get(error.reason, JobState.INFRASTRUCTURE), str(error))
    for kind, state in _STATES:
        if isinstance(error, kind):
            return Outcome(state, str(error), is_request_refused=isinstance(error, RequestRefused))
    if isinstance(error, RingfenceError):
        return Outcome(JobState.INFRASTRUCTURE, str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        where = f" while {str(error.filename)!r} was written" if error.filename else ""
        return Outcome(JobState.INFRASTRUCTURE, f"{error.strerror}{where}; {next_step(error)}")
    told = f"internal error: {type(error).__name__}: {error}"
    where = f"; please report it with {str(kept_in)!r}" if kept_in else ""
    return Outcome(JobState.INFRASTRUCTURE, told + where)


_STATES: tuple[tuple[type[RingfenceError], JobState], ...] = (
    (AuthenticationFailed, JobState.AUTHENTICATION),
    (ConfigurationError, JobState.CONFIGURATION),
    (PolicyRefused, JobState.REFUSED),
    (SandboxStartFailed, JobState.SANDBOX_START),
    (UsageError, JobState.FAILED),
)

CONTEXT_FULL = "the conversation does not fit the model's window any more"
"""How the reason of a run begins that ended so."""
NOT_CHECKED = "nothing checked it"
"""How the reason of a run ends that has no check."""
_AGENT_ENDS = {
    "done": Outcome(JobState.UNVERIFIED, f"the agent says it is done; {NOT_CHECKED}"),
    "denied": Outcome(
        JobState.UNVERIFIED, "the agent says it is done, though it was not permitted all that it wanted to do"
    ),
    "refused": Outcome(JobState.FAILED, "the model declined the task"),
    "no_structured_output": Outcome(
        JobState.FAILED, "the agent says it is done, without the answer that the output schema asks for"
    ),
    "unasked": Outcome(
        JobState.FAILED, "the agent says it is done, and no model was asked; word the task otherwise"
    ),
    "context": Outcome(JobState.LIMIT, CONTEXT_FULL),
    "max_tokens": Outcome(JobState.LIMIT, "the model's reply was cut at the tokens that one reply may have"),
    "limit": Outcome(JobState.LIMIT, "a limit of the agent's own was reached"),
}


def outcome_of_agent(ended_by: str, reason: str = "") -> Outcome:
    """What the agent's own end means, before anything has checked its work.

    Args:
        ended_by: As in `RuntimeResult`.
        reason: How it ended, for people.
    """
    known = _AGENT_ENDS.get(ended_by)
    if known is None:
        return Outcome(JobState.INFRASTRUCTURE, f"the agent ended by {ended_by!r}")
    return replace(known, reason=f"{known.reason}: {reason}") if reason else known

"""The states of a job, the transitions between them, and the exit code of each terminal state."""

from collections.abc import Mapping
from enum import StrEnum

from ringfence.errors import ExitCode

NO_CHECK = "none"
"""The value of `verify`, in place of a command, that means that no check is wanted."""


class JobState(StrEnum):
    """The state of a job, which reaches exactly one terminal state, once."""

    QUEUED = "queued"
    """Requested; nothing has happened yet."""
    STARTING = "starting"
    """The workspace is being prepared, and the sandbox opened."""
    RUNNING = "running"
    """The agent is working, or its work is being delivered and checked."""
    WAITING = "waiting"
    """A job of a fleet that waits for a person's answer, between two attempts. It holds nothing."""
    SUCCEEDED = "succeeded"
    """The agent ended and a check passed."""
    UNVERIFIED = "unverified"
    """The agent says it is done; nothing checked it."""
    ENDED = "ended"
    """A session on a terminal is over; its exit code is the program's own."""
    FAILED = "failed"
    """The agent or the model's API declined the task, or an argument of the agent was invalid."""
    CHECK_RED = "check_red"
    """The agent ended and the check failed."""
    REFUSED = "refused"
    """Policy refused the request."""
    LIMIT = "limit"
    """A limit on turns, tool calls, tokens, cost or context was reached, or the sandbox as a whole ran out of memory.

    A command that alone reaches the limit on memory or disk is killed, and the run continues.
    """
    BLOCKED = "blocked"
    """The job cannot continue without a person."""
    INFRASTRUCTURE = "infrastructure"
    """A service, the machine or Ringfence itself failed."""
    AUTHENTICATION = "authentication"
    """A credential is missing, expired or wrong."""
    CONFIGURATION = "configuration"
    """A configuration file is wrong."""
    TIMED_OUT = "timed_out"
    """The time limit was reached."""
    SANDBOX_START = "sandbox_start"
    """The sandbox could not be opened."""
    CANCELLED = "cancelled"
    """It was stopped before its end: by the user, or because its job was cancelled."""
    INTERRUPTED = "interrupted"
    """The process that executed the run died or was requested to end."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in EXIT_CODES


EXIT_CODES: Mapping[JobState, ExitCode] = {
    JobState.SUCCEEDED: ExitCode.OK,
    JobState.UNVERIFIED: ExitCode.UNVERIFIED,
    JobState.ENDED: ExitCode.OK,
    JobState.FAILED: ExitCode.FAILED,
    JobState.CHECK_RED: ExitCode.CHECK_RED,
    JobState.REFUSED: ExitCode.REFUSED,
    JobState.LIMIT: ExitCode.LIMIT,
    JobState.BLOCKED: ExitCode.BLOCKED,
    JobState.INFRASTRUCTURE: ExitCode.INFRASTRUCTURE,
    JobState.AUTHENTICATION: ExitCode.AUTHENTICATION,
    JobState.CONFIGURATION: ExitCode.CONFIGURATION,
    JobState.TIMED_OUT: ExitCode.TIMED_OUT,
    JobState.SANDBOX_START: ExitCode.SANDBOX_START,
    JobState.CANCELLED: ExitCode.CANCELLED,
    JobState.INTERRUPTED: ExitCode.INFRASTRUCTURE,
}
"""The exit code of each terminal state, except that `unverified` gives 3 with `--require-verified` and 0 where no check
is wanted, and `ended` gives the exit code of the program."""

_LIVE = (JobState.QUEUED, JobState.STARTING, JobState.RUNNING)


def may_follow(before: JobState, after: JobState) -> bool:
    """Whether a run may go from `before` to `after`: forward through live states, or to an end. A run never waits."""
    if before.is_terminal:
        return False
    if after.is_terminal or JobState.WAITING in (before, after):
        return after.is_terminal
    return _LIVE.index(after) == _LIVE.index(before) + 1


def exit_code(
    state: JobState,
    *,
    require_verified: bool,
    is_check_wanted: bool = True,
    command_exit_code: int | None = None,
) -> int:
    """The exit code of a terminal state.

    Args:
        state: The state.
        require_verified: Whether a missing check counts as a failed check.
        is_check_wanted: Whether a missing check has a separate exit code.
        command_exit_code: The exit code of the program, for a session on a terminal.
    """
    if state is JobState.UNVERIFIED and require_verified:
        return ExitCode.CHECK_RED
    if state is JobState.UNVERIFIED and not is_check_wanted:
        return ExitCode.OK
    if state is JobState.ENDED and command_exit_code is not None:
        return command_exit_code
    return EXIT_CODES[state]

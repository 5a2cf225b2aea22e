"""Determines the outcome of a run: a terminal state and a reason. Keeps four kinds of failure apart."""

import errno
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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

if TYPE_CHECKING:
    from ringfence.events import JobEnded, Usage, WorkExported
    from ringfence.job.question import Question
    from ringfence.secret import Redactor

Cause = Literal["request_refused", "context_full"]
"""Causes that callers handle specially: the model's API refused the request for good, or the conversation no longer
fits the model's context window."""
_TRACE_NAME = "error.txt"
PATCH_NAME = "work.patch"


@frozen
class Outcome:
    """A terminal state and the reason for it, in one line."""

    state: JobState
    reason: str
    command_exit_code: int | None = None
    """Exit code of the user's own command, in runs of a command."""
    cause: Cause | None = None


@frozen
class RunResult:
    """How a run ended, and where its record is."""

    run_id: str
    """Names the run for `ringfence diff`, `undo` and the other commands."""
    run_dir: Path
    """Directory of the record."""
    state: JobState
    """How the run ended: `succeeded` means that a check passed, `unverified` that no check was run."""
    reason: str
    """The reason, in one line."""
    exit_code: int
    """The exit code of `ringfence run`; for a session on a terminal, the exit code of its program."""
    final_text: str
    """The agent's last message."""
    ended: "JobEnded"
    """The end as it is recorded: turns, tool calls, usage, cost and duration."""
    structured_output: Any = None
    """The agent's answer according to the output schema, if there is one."""
    work: "WorkExported | None" = None
    """The changes: numbers of files and lines, refs, notes. None if the work could not be kept or did not begin."""
    command_exit_code: int | None = None
    """Exit code of the user's own command, in runs of a command."""
    cause: Cause | None = None
    """The cause, for programs that handle it specially."""
    is_unwatched: bool = False
    """Whether the reader of the events left before the end."""
    question: "Question | None" = None
    """The question for a person, if the run ended with one."""
    problems: tuple[str, ...] = ()
    """Failures after the end was recorded, or while an error was saved."""

    @property
    def patch(self) -> Path | None:
        """File with the changes, for `git apply`; None if there are no changes."""
        return self.run_dir / PATCH_NAME if self.work is not None and self.work.patch else None

    @property
    def usage(self) -> "Usage":
        """Tokens of all requests to models."""
        return self.ended.usage

    @property
    def cost_usd(self) -> float | None:
        """Cost in US dollars by the price table; None if the price of a model is not known."""
        return self.ended.cost_usd


def root_cause(error: BaseException) -> BaseException:
    """The error that decides the outcome: in an exception group, known errors take precedence over unknown ones."""
    while isinstance(error, BaseExceptionGroup):
        known = error.subgroup(RingfenceError)
        error = (known or error).exceptions[0]
    return error


def outcome_of(error: BaseException, *, kept_in: Path | None = None) -> Outcome:
    """The outcome of a run that an error ended. An unknown error is reported as a bug of ringfence.

    Args:
        error: What was raised.
        kept_in: File with the traceback of an unknown error.
    """
    if isinstance(error, LimitReached):
        state = JobState.TIMED_OUT if error.limit == "wall_clock_s" else JobState.LIMIT
        return Outcome(state, str(error))
    if isinstance(error, SandboxDied):
        by_reason = {"memory": JobState.LIMIT, "ttl": JobState.TIMED_OUT}
        return Outcome(by_reason.get(error.reason, JobState.INFRASTRUCTURE), str(error))
    for kind, state in _STATES:
        if isinstance(error, kind):
            cause: Cause | None = "request_refused" if isinstance(error, RequestRefused) else None
            return Outcome(state, str(error), cause=cause)
    if isinstance(error, RingfenceError):
        return Outcome(JobState.INFRASTRUCTURE, str(error))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        where = f" while {str(error.filename)!r} was written" if error.filename else ""
        return Outcome(JobState.INFRASTRUCTURE, f"{error.strerror}{where}; {next_step(error)}")
    where = f"; please report it with {str(kept_in)!r}" if kept_in else ""
    return Outcome(JobState.INFRASTRUCTURE, f"internal error: {type(error).__name__}: {error}{where}")


_STATES: tuple[tuple[type[RingfenceError], JobState], ...] = (
    (AuthenticationFailed, JobState.AUTHENTICATION),
    (ConfigurationError, JobState.CONFIGURATION),
    (PolicyRefused, JobState.REFUSED),
    (SandboxStartFailed, JobState.SANDBOX_START),
    (UsageError, JobState.FAILED),
)

_AGENT_ENDS = {
    "done": Outcome(JobState.UNVERIFIED, "the agent says it is done"),
    "denied": Outcome(
        JobState.UNVERIFIED, "the agent says it is done, though it was not permitted all that it wanted to do"
    ),
    "refused": Outcome(JobState.FAILED, "the model declined the task"),
    "no_structured_output": Outcome(
        JobState.FAILED, "the agent says it is done, without the answer that the output schema requires"
    ),
    "unasked": Outcome(
        JobState.FAILED, "the agent says it is done, but it sent no request to a model; rephrase the task"
    ),
    "context": Outcome(
        JobState.LIMIT, "the conversation no longer fits the model's context window", cause="context_full"
    ),
    "max_tokens": Outcome(
        JobState.LIMIT, "the model's reply was cut off at the limit on tokens of one reply"
    ),
    "limit": Outcome(JobState.LIMIT, "a limit of the agent's own was reached"),
}


def outcome_of_agent(ended_by: str, reason: str = "") -> Outcome:
    """The outcome of an agent that ended by itself, before its work is checked.

    Args:
        ended_by: As in `RuntimeResult`.
        reason: How it ended, as text for the user.
    """
    known = _AGENT_ENDS.get(ended_by)
    if known is None:
        return Outcome(JobState.INFRASTRUCTURE, f"the agent ended by {ended_by!r}")
    return replace(known, reason=f"{known.reason}: {reason}") if reason else known


def keep_crash(error: BaseException, run_dir: Path, redactor: "Redactor") -> tuple[Path, str | None]:
    """Write the traceback of a bug beside the record.

    Returns:
        The file, and the error that occurred while it was written, if any.
    """
    file = run_dir / _TRACE_NAME
    try:
        write_trace(error, file, redactor)
    except OSError as exc:
        return file, f"{str(file)!r} could not be written: {exc.strerror}"
    return file, None


def write_trace(error: BaseException, file: Path, redactor: "Redactor") -> None:
    """Write a traceback without secrets.

    Raises:
        OSError: It cannot be written.
    """
    trace = "".join(traceback.format_exception(error)).encode("utf-8", "replace")
    file.write_bytes(redactor.redact(trace))

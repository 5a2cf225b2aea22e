"""The errors ringfence raises, split by what the caller should do next.

::

    RingfenceError
    ├── UsageError              mend the command line                      exit 2
    │   ├── NotFound            name something that exists                 exit 2
    │   └── RequestRefused      name another model, or correct the request exit 2
    ├── ConfigurationError      mend a file (carries file, line, column)   exit 78
    ├── PolicyRefused           ask for less, or loosen by name            exit 4
    ├── LimitReached            raise the limit, or accept the end         exit 5
    ├── AuthenticationFailed    give a valid credential                    exit 77
    ├── SandboxError
    │   ├── SandboxStartFailed  mend the machine (`ringfence doctor`)      exit 125
    │   ├── SandboxDied         open a new sandbox                         exit 75
    │   ├── SandboxFileError    a file operation inside was not possible   exit 1
    │   └── SandboxPortError    a port or socket inside cannot be used     exit 1
    ├── RecordError             the record is damaged or absent            exit 1
    └── InfrastructureFault     try again later                            exit 75
        └── Unparseable         ask the agent again                        exit 75

A command of the user that fails is never an error: it is a result.
"""

import errno
from enum import IntEnum
from pathlib import Path
from typing import ClassVar, Literal


class ExitCode(IntEnum):
    """Exit codes of the `ringfence` command. The documentation's table is generated from this class."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CHECK_RED = 3
    REFUSED = 4
    LIMIT = 5
    BLOCKED = 6
    UNVERIFIED = 9
    INFRASTRUCTURE = 75
    AUTHENTICATION = 77
    CONFIGURATION = 78
    TIMED_OUT = 124
    SANDBOX_START = 125
    CANCELLED = 130
    BROKEN_PIPE = 141
    """Whoever read the output has left, as SIGPIPE would end a program."""


class RingfenceError(Exception):
    """Root of all errors of ringfence. The text is one line: what failed, the value, the next step."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    gathered: "tuple[RingfenceError, ...]" = ()
    """All that this one was made of, each by itself, where several things are wrong at once."""


class UsageError(RingfenceError):
    """The command line or a call's arguments do not make sense."""

    exit_code = ExitCode.USAGE


class NotFound(UsageError):
    """The named run, job, agent or other object does not exist."""


class RequestRefused(UsageError):
    """The model's API refuses a request for good: it knows no such model, say."""


class ConfigurationError(RingfenceError):
    """A configuration file is wrong.

    Args:
        message: What is wrong, with the value.
        file: The file, where one is to blame.
        line: 1-based line in it.
        column: 1-based column in it.
    """

    exit_code = ExitCode.CONFIGURATION

    def __init__(
        self, message: str, *, file: Path | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)


class PolicyRefused(RingfenceError):
    """The sandbox or run that was asked for breaks a rule.

    Args:
        message: What is refused and what to ask for instead.
        rule: Name of the rule, as in the policy table.
    """

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, *, rule: str) -> None:
        self.rule = rule
        super().__init__(message)


_RAISE = {
    "wall_clock_s": "raise it with --timeout, or limits.wall_clock in ringfence.yaml",
    "memory": "raise it with --memory",
    "pids": "raise it with --pids",
    "disk": "raise it with --disk",
    "record": "raise it with `ringfence mcp --max-record`",
    "files": "reduce the number of files in the workspace",
    "output_bytes": "the agent's program printed too much; split the task",
    "output_lines": "the agent's program printed too much; split the task",
}
"""The advice for limits whose option does not follow from their name."""


class LimitReached(RingfenceError):
    """A limit was reached.

    Args:
        limit: Name of the limit: `turns`, `tool_calls`, `tokens`, `cost_usd`, `wall_clock_s`, `disk`, `files`, ...
        allowed: The limit.
        used: What was used when it was noticed.
        is_next: Whether the next request alone would bring it to `used`, by an estimate.
    """

    exit_code = ExitCode.LIMIT

    def __init__(self, limit: str, *, allowed: float, used: float, is_next: bool = False) -> None:
        self.limit = limit
        self.allowed = allowed
        self.used = used
        option = "--max-" + limit.replace("_", "-")
        advice = _RAISE.get(limit) or f"raise it with {option}, or limits.{limit} in ringfence.yaml"
        how = "the next prompt would bring it to about " if is_next else ""
        super().__init__(f"limit {limit!r} reached: {how}{used:.12g} of {allowed:.12g}; {advice}")


class AuthenticationFailed(RingfenceError):
    """A credential is missing, expired or wrong."""

    exit_code = ExitCode.AUTHENTICATION


class SandboxError(RingfenceError):
    """Something about a sandbox, as against the command that runs in it."""


class SandboxStartFailed(SandboxError):
    """The sandbox could not be opened; nothing ran in it."""

    exit_code = ExitCode.SANDBOX_START


DeathReason = Literal["memory", "killed", "protocol", "exited", "ttl", "engine", "evicted", "node_lost"]


class SandboxDied(SandboxError):
    """An open sandbox is gone. What ran in it is gone too.

    Args:
        message: What was seen.
        sandbox_id: Which sandbox.
        reason: `memory` (the limit killed it), `killed` (a signal from outside), `protocol` (the guest broke
            the protocol and was killed by us), `exited` (the guest ended by itself), `ttl` (its time was up),
            `engine` (the container engine or cluster is gone), `evicted` (its node evicted the pod), `node_lost`
            (the node does not answer, or was shut down).
    """

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, *, sandbox_id: str, reason: DeathReason) -> None:
        self.sandbox_id = sandbox_id
        self.reason = reason
        super().__init__(message)


class SandboxFileError(SandboxError):
    """A file operation in a sandbox was not possible: absent, a directory, no permission, too large, disk full.

    Args:
        message: What failed, with the path.
        path: The path as the caller gave it.
        errno_name: `ENOENT`, `EISDIR`, `EACCES`, `ENOSPC`, `EFBIG`, ...
    """

    def __init__(self, message: str, *, path: str, errno_name: str) -> None:
        self.path = path
        self.errno_name = errno_name
        super().__init__(message)


class SandboxPortError(SandboxError):
    """A port or socket in a sandbox could not be listened on or connected to.

    Args:
        message: What failed, with the port or path.
        where: The port or path.
        errno_name: `EADDRINUSE`, `EACCES`, `ECONNREFUSED`, `ETIMEDOUT`, ...
    """

    def __init__(self, message: str, *, where: str, errno_name: str) -> None:
        self.where = where
        self.errno_name = errno_name
        super().__init__(message)


class RecordError(RingfenceError):
    """A journal is damaged, unsealed where a seal is needed, or absent."""


class InfrastructureFault(RingfenceError):
    """Something between us and the world failed: model unreachable, disk full. Trying again may help."""

    exit_code = ExitCode.INFRASTRUCTURE


class Unparseable(InfrastructureFault):
    """An agent was to give an answer of a certain form, and gave none, or more than one. It says nothing of the work.

    Args:
        role: Who was asked.
        why: What is wrong with what it said.
    """

    def __init__(self, role: str, why: str) -> None:
        self.role = role
        self.why = why
        super().__init__(f"the {role}'s answer cannot be used: {why}; request another one")


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_full(error: OSError) -> bool:
    """Whether it is for lack of space."""
    return error.errno in _FULL


def next_step(error: OSError, *, is_state: bool = False) -> str:
    """What to do about a file that could not be written: only a full disk asks for space.

    Args:
        error: Why it could not.
        is_state: Whether the file is one of the state directory.
    """
    if is_full(error):
        return "free some space"
    if is_state:
        return "see to the permissions of the state directory, or set RINGFENCE_STATE_DIR to another one"
    return "check the path and its permissions"

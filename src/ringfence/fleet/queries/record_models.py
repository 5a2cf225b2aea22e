"""Models of runs, verifications, changes, loops and machines. They contain texts of agents unescaped."""

from typing import Any, Literal

from ringfence.fleet.queries.models import ResponseModel
from ringfence.job.changes import ChangesState


class VerificationFinding(ResponseModel):
    """A fault of a record, or something that its verification cannot prove."""

    kind: str
    path: str
    message: str
    is_fault: bool


class VerificationReport(ResponseModel):
    """Whether a record is complete and unchanged, as `ringfence runs verify --json` prints it."""

    path: str
    status: Literal["sealed", "open", "truncated", "broken"]
    run_id: str | None
    events: int
    findings: list[VerificationFinding]
    bad_line: int | None
    """The number of the line that was changed, counted from 1."""
    signer: str | None
    sealed_at: str | None
    torn_bytes: int
    is_running: bool
    reason: str | None
    limits: list[str]
    """What the verification of a record cannot prove."""


class RunResponse(ResponseModel):
    """A run of this machine, as `ringfence runs ls --json` prints it."""

    id: str
    path: str
    state: str
    """`running`, `interrupted`, `damaged`, or the state in which it ended."""
    is_sealed: bool
    started_at: str | None
    duration_s: float | None
    prompt: str
    """The first line of the prompt."""
    model: str
    reason: str
    exit_code: int | None
    cost_usd: float | None
    labels: dict[str, str]
    workspace: str | None


class RunDetail(RunResponse):
    """A run with its end, as `ringfence runs show --json` prints it."""

    runtime: str | None
    turns: int | None
    tool_calls: int | None
    usage: dict[str, Any] | None
    command_exit_code: int | None
    check_exit_code: int | None
    changes: dict[str, Any] | None
    files: list[str]
    changes_state: ChangesState
    host: str
    """The machine that holds the record, or the machine that answers for a stored copy."""


class RecordResponse(ResponseModel):
    """The record of a run: its summary and its verification."""

    run: RunDetail
    verification: VerificationReport


class ChangedFile(ResponseModel):
    """A file that a run changed."""

    path: str
    kind: str
    insertions: int
    deletions: int
    is_binary: bool
    mode: str
    """The mode after the change, where it changed."""
    warning: str | None
    """Why the file runs on the user's machine or is trusted there, if it is."""


class DiffResponse(ResponseModel):
    """The files that a run changed; a page of them."""

    run_id: str
    state: ChangesState
    files: list[ChangedFile]
    offset: int
    total: int
    """The number of all files."""
    insertions: int
    """Of all files."""
    deletions: int
    warnings: list[str]
    """All files that run on the user's machine or are protected, in commits too; at most 1,000."""
    notes: list[str]
    """Parts of the work that no patch holds, and the reasons."""
    refs: list[str]
    """Refs with the run's commits in the user's repository."""


class LinesResponse(ResponseModel):
    """Lines of the patch of one file; a page of them."""

    run_id: str
    path: str
    lines: list[str]
    """As in a patch; each has at most 4,000 characters."""
    offset: int
    total: int
    numbers: tuple[int, int] | None
    """The numbers that the next lines of the file have before and after the change; null: no hunk has begun."""


class AppliedResponse(ResponseModel):
    """What was written to the workspace."""

    run_id: str
    state: ChangesState
    files: list[str]
    """The files that were written or removed."""
    notes: list[str]
    """What was left out, and why."""


class ApplyRequestResponse(ResponseModel):
    """A request to apply the changes of a run, which waits for a person."""

    run: str
    by: str
    """The program, by the name that it gives of itself."""
    at: str
    workspace: str


class LoopResponse(ResponseModel):
    """A loop of this machine."""

    id: str
    state: str
    reason: str
    stories: int
    passed: int
    source: str
    branch: str
    created_ms: int
    ended_ms: int | None


class LimitsReport(ResponseModel):
    """How limits on memory, processes and CPU are enforced."""

    by: str
    reason: str


class BackendReport(ResponseModel):
    """A sandbox backend."""

    name: str
    usable: bool
    reason: str | None
    """Why it cannot be used."""


class MachineReport(ResponseModel):
    """What a machine can run."""

    machine: str
    bwrap: str | None
    limits: LimitsReport
    backends: list[BackendReport]

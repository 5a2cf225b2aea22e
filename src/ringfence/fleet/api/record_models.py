"""Models of responses about runs, verifications, changes and loops. They contain texts of agents unescaped."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ringfence.fleet.api.models import Answer
from ringfence.job.changes import ChangesState


class FindingAnswer(Answer):
    """A fault of a record, or something that its verification cannot prove."""

    kind: str
    path: str
    message: str
    is_fault: bool


class VerificationAnswer(Answer):
    """Whether a record is complete and unchanged, as `ringfence runs verify --json` prints it."""

    path: str
    status: Literal["sealed", "open", "truncated", "broken"]
    run_id: str | None
    events: int
    findings: list[FindingAnswer]
    bad_line: int | None
    """The number of the line that was changed, counted from 1."""
    signer: str | None
    sealed_at: str | None
    torn_bytes: int
    is_running: bool
    reason: str | None
    limits: list[str]
    """What the verification of a record cannot prove."""


class RunAnswer(Answer):
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


class RunDetail(RunAnswer):
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


class RecordAnswer(Answer):
    """The record of a run: its summary and its verification."""

    run: RunDetail
    verification: VerificationAnswer


class ChangedFile(Answer):
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


class DiffAnswer(Answer):
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


class LinesAnswer(Answer):
    """Lines of the patch of one file; a page of them."""

    run_id: str
    path: str
    lines: list[str]
    """As in a patch; each has at most 4,000 characters."""
    offset: int
    total: int
    numbers: tuple[int, int] | None
    """The numbers that the next lines of the file have before and after the change; null: no hunk has begun."""


class ApplyRequest(BaseModel):
    """How changes are applied, undone or rejected."""

    model_config = ConfigDict(extra="forbid")

    force: bool = False
    """Whether to overwrite files that were changed since; they are kept, and undoing brings them back."""
    run_id: str | None = None
    """The run whose changes the person saw; if they are not the ones in question, the request is refused with 409."""


class AppliedAnswer(Answer):
    """What was written to the workspace."""

    run_id: str
    state: ChangesState
    files: list[str]
    """The files that were written or removed."""
    notes: list[str]
    """What was left out, and why."""


class LoopAnswer(Answer):
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


class LimitsReport(Answer):
    """How limits on memory, processes and CPU are enforced."""

    by: str
    reason: str


class BackendReport(Answer):
    """A sandbox backend."""

    name: str
    usable: bool
    reason: str | None
    """Why it cannot be used."""


class MachineReport(Answer):
    """What a machine can run."""

    machine: str
    bwrap: str | None
    limits: LimitsReport
    backends: list[BackendReport]

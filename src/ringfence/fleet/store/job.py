"""A job of the fleet, as the database knows it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import RowMapping

from ringfence.errors import InfrastructureFault
from ringfence.job.state import JobState

TriggerKind = Literal["manual", "schedule", "webhook", "files", "after", "source", "retry", "fork"]
BlobKind = Literal["prompt", "payload", "configuration", "answer", "grants"]

_REASON = 500
"""Characters of a reason that are kept."""
_TITLE = 200
ACTIVE = (JobState.STARTING, JobState.RUNNING)
"""States in which a job counts against limits of how many run at once."""


@dataclass(frozen=True)
class NewJob:
    """What is asked for."""

    agent: str
    """Its qualified name."""
    trigger: TriggerKind
    prompt: str
    trigger_name: str = ""
    """Which schedule, webhook, ..."""
    dedupe_key: str | None = None
    """No two jobs have the same; what asks twice gets the first."""
    priority: int = 0
    """Higher goes first, -1000 to 1000."""
    workspace: str = ""
    """What the limit of one at a time holds for; empty: nothing."""
    placement: str = ""
    """The label that its worker must have; empty: any worker."""
    not_before: datetime | None = None
    parent: str | None = None
    """The job that this one repeats, forks or follows."""
    session_id: str | None = None
    """The session it goes on with."""
    payload: str | None = None
    """What came with the trigger, as JSON."""
    configuration: str | None = None
    """The agent's, as JSON, as it was then."""
    most_queued: int | None = None
    """So many of the agent's may wait, this one among them. None: any number."""


@dataclass(frozen=True)
class Job:
    """A job as it stands. What happened in it is in the journal of its run."""

    id: str
    agent: str
    state: JobState
    trigger: TriggerKind
    trigger_name: str
    priority: int
    workspace: str
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    admissions: int
    """How often it was let start; each has a workflow of its own."""
    attempt: int
    """How many were begun."""
    title: str
    """The first line of its prompt, at most 200 characters."""
    placement: str
    """The label that its worker must have; empty: any worker."""
    changed_at: datetime
    worker: str | None
    host: str | None
    """The machine of its last attempt."""
    run_id: str | None
    """Of its last attempt."""
    session_id: str | None
    parent: str | None
    reason: str
    is_cancel_asked: bool
    tokens: int
    cost_usd: float
    allowed_tokens: int | None
    """What it may use, set aside for it when it was admitted; None: as much as its agent's own limit says."""
    allowed_usd: float | None

    @property
    def workflow_id(self) -> str:
        """The engine's name for what runs it, since it was admitted last."""
        return workflow_id(self.id, self.admissions)


def workflow_id(job_id: str, admission: int) -> str:
    """The engine's name for the workflow of an admission of a job, the first being 1."""
    return f"{job_id}.{admission}"


class JobUnreadable(InfrastructureFault):
    """A row of the table of jobs that this version cannot read: a newer one wrote it, or another program."""


def job_of(row: RowMapping | Mapping[str, Any]) -> Job:
    """A row of the table of jobs as a job.

    Raises:
        JobUnreadable: It is none that this version knows.
    """
    try:
        return _job_of(row)
    except (ValueError, TypeError, OverflowError) as exc:
        raise JobUnreadable(
            f"job {row['id']!r} cannot be read by this version of ringfence ({exc}); use the one that wrote it"
        ) from exc


def _job_of(row: RowMapping | Mapping[str, Any]) -> Job:
    return Job(
        id=row["id"],
        agent=row["agent"],
        state=JobState(row["state"]),
        trigger=row["trigger"],
        trigger_name=row["trigger_name"],
        priority=row["priority"],
        workspace=row["workspace"],
        created_at=_required(row["created_ms"]),
        not_before=moment(row["not_before_ms"] or None),
        started_at=moment(row["started_ms"]),
        ended_at=moment(row["ended_ms"]),
        admissions=row["admissions"],
        attempt=row["attempt"],
        title=row["title"],
        placement=row["placement"],
        changed_at=_required(row["changed_ms"] or row["created_ms"]),
        worker=row["worker"],
        host=row["host"],
        run_id=row["run_id"],
        session_id=row["session_id"],
        parent=row["parent"],
        reason=row["reason"],
        is_cancel_asked=bool(row["is_cancel_asked"]),
        tokens=row["tokens"],
        cost_usd=row["cost_usd"],
        allowed_tokens=row["reserved_tokens"],
        allowed_usd=row["reserved_usd"],
    )


def title_of(prompt: str) -> str:
    """The first line of a prompt that is not blank, at most 200 characters, as every database takes it."""
    line = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return storable(line)[:_TITLE]


def moment(ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as a moment."""
    return None if ms is None else _required(ms)


def _required(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def milliseconds(at: datetime) -> int:
    """A moment as milliseconds since 1970."""
    return round(at.timestamp() * 1000)


def reason_of(text: str) -> str:
    """A reason as it is stored: at most 500 characters, as every database takes them."""
    return storable(text)[:_REASON]


def storable(text: str) -> str:
    """A text as every database takes it: an agent may have written half of a surrogate pair into it, or a NUL."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\ufffd")

"""Defines a job of the fleet, and converts rows of the table of jobs."""

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
"""The maximum length of a stored reason."""
_TITLE = 200
ACTIVE = (JobState.STARTING, JobState.RUNNING)
"""States in which a job counts against limits on concurrency."""
DONE = (JobState.SUCCEEDED, JobState.UNVERIFIED)
"""States of jobs whose agent did its task."""


@dataclass(frozen=True)
class NewJob:
    """A request for a job."""

    agent: str
    """The qualified name of the agent."""
    trigger: TriggerKind
    prompt: str
    title: str | None = None
    """A text for lists; None: the first line of the prompt."""
    trigger_name: str = ""
    """The name of the schedule, webhook, ..."""
    dedupe_key: str | None = None
    """A key that is unique among jobs: a second request with the same key finds the first job."""
    priority: int = 0
    """From -1000 to 1000; higher values start first."""
    workspace: str = ""
    """The workspace, in which only one job runs at a time; empty: no such restriction."""
    placement: str = ""
    """The label that the worker must have; empty: any worker."""
    not_before: datetime | None = None
    parent: str | None = None
    """The job that this one repeats, forks or follows."""
    session_id: str | None = None
    """The session to resume."""
    payload: str | None = None
    """The payload of the trigger, as JSON."""
    configuration: str | None = None
    """The agent's configuration at the time of the request, as JSON."""
    most_queued: int | None = None
    """The maximum number of the agent's queued jobs, including this one; None: unlimited."""


@dataclass(frozen=True)
class Job:
    """The current state of a job. The journal of its run holds the events."""

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
    """How often the job was admitted; each admission has its own workflow."""
    attempt: int
    """The number of attempts so far."""
    title: str
    """The first line of the prompt, at most 200 characters."""
    placement: str
    """The label that the worker must have; empty: any worker."""
    changed_at: datetime
    worker: str | None
    host: str | None
    """The machine of the last attempt."""
    run_id: str | None
    """The run of the last attempt."""
    session_id: str | None
    parent: str | None
    reason: str
    is_cancel_asked: bool
    is_ready_to_apply: bool
    """Whether it left changes in a private copy that were neither applied nor rejected through the fleet."""
    tokens: int
    cost_usd: float
    allowed_tokens: int | None
    """The tokens that its current attempt may use, as reserved; None: only the agent's own limit applies."""
    allowed_usd: float | None

    @property
    def workflow_id(self) -> str:
        """The durable engine's id of the workflow of the job's last admission."""
        return workflow_id(self.id, self.admissions)


def workflow_id(job_id: str, admission: int) -> str:
    """The durable engine's id of the workflow of an admission; the first admission is 1."""
    return f"{job_id}.{admission}"


class JobUnreadable(InfrastructureFault):
    """This version cannot read a row of the table of jobs: a newer version or another program wrote it."""


def job_of(row: RowMapping | Mapping[str, Any]) -> Job:
    """Convert a row of the table of jobs.

    Raises:
        JobUnreadable: This version cannot read the row.
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
        is_ready_to_apply=bool(row["is_ready_to_apply"]),
        tokens=row["tokens"],
        cost_usd=row["cost_usd"],
        allowed_tokens=row["reserved_tokens"],
        allowed_usd=row["reserved_usd"],
    )


def title_of(prompt: str) -> str:
    """The first non-blank line of a prompt, at most 200 characters, in a form that every database accepts."""
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
    """A reason in its stored form: at most 500 characters, which every database accepts."""
    return storable(text)[:_REASON]


def storable(text: str) -> str:
    """A text without lone surrogates and NUL, which agents may write and databases reject."""
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return valid.replace("\0", "\ufffd")

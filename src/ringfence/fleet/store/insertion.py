"""Inserts jobs into the database: a row for each, and blobs for its large fields."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.exc import IntegrityError

from ringfence.errors import InfrastructureFault
from ringfence.fleet.store.job import Job, NewJob, job_of, milliseconds, title_of
from ringfence.fleet.store.tables import BLOBS, JOBS
from ringfence.job.state import JobState

# Built once: building a statement takes longer than executing it.
_INSERT_JOBS, _INSERT_BLOBS = insert(JOBS), insert(BLOBS)
_QUEUED_AT_LIMIT = (
    select(JOBS.c.id)
    .where(JOBS.c.agent == bindparam("agent_name"), JOBS.c.state == JobState.QUEUED.value)
    .offset(bindparam("offset"))
    .limit(1)
)
_WITH_KEY = select(JOBS).where(JOBS.c.dedupe_key == bindparam("key"))
_DEFAULTS: Mapping[str, Any] = dict.fromkeys(column.name for column in JOBS.c) | {
    "admissions": 0,
    "attempt": 0,
    "reason": "",
    "title": "",
    "placement": "",
    "host": None,
    "is_cancel_asked": False,
    "is_followed": False,
    "is_ready_to_apply": False,
    "tokens": 0,
    "cost_usd": 0.0,
}
_JOB_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]{6}-[0-9a-f]{6}")


class QueueFull(InfrastructureFault):
    """The queue of an agent is full: try again later, or cancel queued jobs.

    Args:
        agent: The agent.
        most: The maximum number of its queued jobs.
    """

    def __init__(self, agent: str, most: int) -> None:
        queued = "1 queued job" if most == 1 else f"{most} queued jobs"
        super().__init__(
            f"agent {agent!r} has {queued}, the maximum; try again later, cancel some "
            f"(`ringfence job ls --agent {agent} --state queued`), or raise its `queue`"
        )


class DuplicateKey(Exception):
    """A job with the same dedupe key was inserted concurrently."""


def new_job_id(now: datetime) -> str:
    """An id for a new job, such as `20260301-120000-123456-5f3a9c`; ids sort by time, to the microsecond."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S-%f}-{secrets.token_hex(3)}"


def is_job_id(text: str) -> bool:
    """Whether a text has the form of a complete job id; the job need not exist."""
    return _JOB_ID.fullmatch(text) is not None


@dataclass(frozen=True)
class PreparedJob:
    """A new job with its rows, before their insertion."""

    job: Job
    row: Mapping[str, Any]
    blob_rows: Sequence[Mapping[str, Any]]


def prepare_job(new: NewJob) -> PreparedJob:
    """Prepare a new job, created now."""
    now = datetime.now(UTC)
    job_id = new_job_id(now)
    row: dict[str, Any] = {
        **_DEFAULTS,
        "id": job_id,
        "agent": new.agent,
        "state": JobState.QUEUED,
        "trigger": new.trigger,
        "trigger_name": new.trigger_name,
        "dedupe_key": new.dedupe_key,
        "priority": new.priority,
        "workspace": new.workspace,
        "placement": new.placement,
        "title": title_of(new.prompt if new.title is None else new.title),
        "changed_ms": milliseconds(now),
        "created_ms": milliseconds(now),
        "not_before_ms": milliseconds(new.not_before) if new.not_before else 0,
        "session_id": new.session_id,
        "parent": new.parent,
    }
    texts = {"prompt": new.prompt, "payload": new.payload, "configuration": new.configuration}
    blob_rows = [
        {"job": job_id, "kind": kind, "content": text.encode("utf-8", "surrogateescape")}
        for kind, text in texts.items()
        if text is not None
    ]
    return PreparedJob(job_of(row), row, blob_rows)


def insert_prepared_in(connection: Connection, jobs: Sequence[PreparedJob]) -> None:
    """Insert new jobs, within a transaction.

    Raises:
        DuplicateKey: A job with one of their dedupe keys exists.
    """
    if not jobs:
        return
    try:
        connection.execute(_INSERT_JOBS, [each.row for each in jobs])
    except IntegrityError as exc:
        raise DuplicateKey from exc
    connection.execute(_INSERT_BLOBS, [row for each in jobs for row in each.blob_rows])


def insert_in(connection: Connection, new: NewJob) -> tuple[Job, bool]:
    """Insert a job as queued, or find the job with the same dedupe key, within a transaction.

    Raises:
        QueueFull: The queue of its agent is full.
        DuplicateKey: A job with the same key was inserted concurrently.
    """
    if new.dedupe_key is not None:
        found = find_by_key_in(connection, new.dedupe_key)
        if found is not None:
            return found, False
    if new.most_queued is not None:
        limit = {"agent_name": new.agent, "offset": new.most_queued - 1}
        if connection.execute(_QUEUED_AT_LIMIT, limit).first() is not None:
            raise QueueFull(new.agent, new.most_queued)
    prepared = prepare_job(new)
    insert_prepared_in(connection, [prepared])
    return prepared.job, True


def find_by_key_in(connection: Connection, key: str) -> Job | None:
    """The job with a dedupe key, within a transaction."""
    found = connection.execute(_WITH_KEY, {"key": key}).mappings().first()
    return None if found is None else job_of(found)

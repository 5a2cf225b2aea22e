"""Reads jobs and their attempts."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import anyio.to_thread
from sqlalchemy import Connection, RowMapping, or_, select

from ringfence.config.model import LimitSettings
from ringfence.errors import InfrastructureFault, RecordError, UsageError
from ringfence.events import JobEnded
from ringfence.fleet.queries.models import (
    AttemptResponse,
    JobDetail,
    JobResponse,
    LimitUsage,
    job_response,
)
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.grants import agent_grants_in, granted_limits_in
from ringfence.fleet.store.insertion import is_job_id
from ringfence.fleet.store.job import Job, milliseconds, moment
from ringfence.fleet.store.jobs import Jobs, readable
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.store.tables import ATTEMPTS, JOBS
from ringfence.fleet.worker.job_settings import agent_settings
from ringfence.fleet.worker.record_upload import NOT_STORED
from ringfence.job.changes import ChangesState, changes_state, is_decided
from ringfence.job.state import JobState
from ringfence.journal import find_last_event, run_dir

MAX_LISTED = 1000
_FIRST_YEAR, _LAST_YEAR = 1970, 9998
"""Times outside of these years have no job, and cannot be compared with ids."""
_ID_TOLERANCE = timedelta(milliseconds=1)
"""The tolerance for rounding: times are stored in whole milliseconds, while ids contain microseconds."""


@dataclass(frozen=True)
class JobFilters:
    """Selects the jobs to list. Every filter that is set narrows the list."""

    agent: str | None = None
    states: Sequence[JobState] = ()
    """Jobs in one of these states; empty: in any state."""
    trigger: str | None = None
    """The kind of trigger, or `KIND/NAME`."""
    since: datetime | None = None
    """Jobs created at this time or later."""
    until: datetime | None = None
    """Jobs created before this time."""
    parent: str | None = None
    """Jobs that repeat, fork or follow this job, named by its id or the end of its id."""
    text: str | None = None
    """Jobs with this text in their title or reason, ignoring case."""
    before: str | None = None
    """Jobs older than this one, named by its id or the end of its id."""
    limit: int = 50
    """The maximum number of jobs, up to `MAX_LISTED`."""
    is_ready_to_apply: bool = False
    """Only jobs whose changes wait to be applied."""


async def list_jobs(source: FleetSource, filters: JobFilters) -> list[JobResponse]:
    """Jobs, newest first.

    Raises:
        UsageError: There is no such agent, parent, or job to continue after, or a time is out of range.
        InfrastructureFault: The database cannot be read.
    """
    jobs = Jobs(source.database)
    before, parent = filters.before, filters.parent
    if before is not None and not is_job_id(before):  # a complete id may be of a job removed since
        before = (await jobs.resolve(before)).id
    if parent is not None and not is_job_id(parent):
        parent = (await jobs.resolve(parent)).id
    found = await source.database.read(
        lambda connection: _select(connection, filters, before=before, parent=parent)
    )
    if filters.is_ready_to_apply:
        undecided = await anyio.to_thread.run_sync(lambda: [*filter(_is_undecided, found)])
        found = undecided[: filters.limit]
    if not found and filters.agent is not None:
        await _check_agent(source, jobs, filters.agent)
    blockers = await source.read_blockers()
    return [job_response(job, blockers.explain_job(job)) for job in found]


def _select(
    connection: Connection, filters: JobFilters, *, before: str | None, parent: str | None
) -> list[Job]:
    limit = (
        MAX_LISTED if filters.is_ready_to_apply else filters.limit
    )  # some of them were decided outside the fleet
    query = select(JOBS).order_by(JOBS.c.id.desc()).limit(limit)
    if filters.is_ready_to_apply:
        query = query.where(JOBS.c.is_ready_to_apply.is_(True))
    if filters.agent is not None:
        query = query.where(JOBS.c.agent == filters.agent)
    if filters.states:
        query = query.where(JOBS.c.state.in_([state.value for state in filters.states]))
    if filters.trigger is not None:
        kind, slash, name = filters.trigger.partition("/")
        query = query.where(JOBS.c.trigger == kind, *([JOBS.c.trigger_name == name] if slash else []))
    if filters.since is not None:
        since = _time_filter("since", filters.since)
        query = query.where(
            JOBS.c.id >= _id_prefix(since - _ID_TOLERANCE), JOBS.c.created_ms >= milliseconds(since)
        )
    if filters.until is not None:
        until = _time_filter("until", filters.until)
        query = query.where(
            JOBS.c.id < _id_prefix(until + _ID_TOLERANCE), JOBS.c.created_ms < milliseconds(until)
        )
    if parent is not None:
        query = query.where(JOBS.c.parent == parent)
    if filters.text:
        columns = (JOBS.c.title, JOBS.c.reason)
        query = query.where(or_(*(column.icontains(filters.text, autoescape=True) for column in columns)))
    if before is not None:
        query = query.where(JOBS.c.id < before)
    return readable(connection.execute(query).mappings())


def _is_undecided(job: Job) -> bool:
    """Whether a job's changes were not applied or rejected outside the fleet, by `ringfence apply` on this machine."""
    return job.run_id is None or not is_decided(run_dir(job.run_id))


def _time_filter(name: str, at: datetime) -> datetime:
    """The time of a filter in UTC; a time without a time zone is taken as UTC.

    Raises:
        UsageError: No job can be of this time.
    """
    if not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        raise UsageError(f"{name}: {at.isoformat()} is not a time from {_FIRST_YEAR} to {_LAST_YEAR}")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _id_prefix(at: datetime) -> str:
    """The beginning of the ids of jobs created at a time. Ids are ordered by time and indexed."""
    return f"{at:%Y%m%d-%H%M%S-%f}"


async def _check_agent(source: FleetSource, jobs: Jobs, agent: str) -> None:
    """Check that an agent is configured, or has jobs from when it was configured.

    Raises:
        UsageError: Neither holds.
    """
    if source.fleet is not None and not await jobs.list(agent=agent, limit=1):
        source.fleet.agent(agent)


async def describe_job(source: FleetSource, job: Job) -> JobResponse:
    """A job, with the reason why it waits."""
    return job_response(job, (await source.read_blockers()).explain_job(job))


async def find_job(source: FleetSource, reference: str) -> Job:
    """The job whose id is, or ends in, a reference.

    Raises:
        UsageError: No job matches, or several do.
        InfrastructureFault: The database cannot be read.
    """
    return await Jobs(source.database).resolve(reference)


async def show_job(source: FleetSource, reference: str) -> JobDetail:
    """A job with its texts, attempts and limits.

    Raises:
        UsageError, InfrastructureFault: As `find_job`.
    """
    job = await find_job(source, reference)
    blobs = await Jobs(source.database).blobs(job.id, ("prompt", "answer", "configuration"))
    attempts = await list_attempts(source, job)
    ended, state = await _read_end_and_changes(job)
    return JobDetail(
        **(await describe_job(source, job)).model_dump(),
        prompt=_text(blobs.get("prompt")),
        answer=_text(blobs.get("answer")),
        attempts=attempts,
        limits=await _limits(source, job, blobs.get("configuration"), attempts, ended),
        changes_state=state,
        can_apply=state in ("pending", "undone", "rejected"),
    )


def _text(content: bytes | None) -> str | None:
    """Decode a stored text."""
    return None if content is None else content.decode("utf-8", "replace")


async def _read_end_and_changes(job: Job) -> tuple[JobEnded | None, ChangesState]:
    """The end of a job's last run and the state of its changes, if its record is on this machine."""
    if job.run_id is None:
        return None, "none"
    path = run_dir(job.run_id)
    if not path.is_dir():
        return None, "unknown"
    with suppress(RecordError):  # the record's own page reports the problem
        ended = await anyio.to_thread.run_sync(find_last_event, path, "job.ended")
        return ended if isinstance(ended, JobEnded) else None, await changes_state(path)
    return None, "unknown"


async def list_attempts(source: FleetSource, job: Job) -> list[AttemptResponse]:
    """The attempts at a job, oldest first.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    query = select(ATTEMPTS).where(ATTEMPTS.c.job == job.id).order_by(ATTEMPTS.c.number)
    rows = await source.database.read(lambda connection: connection.execute(query).mappings().all())
    return [_attempt(row) for row in rows]


def _attempt(row: RowMapping) -> AttemptResponse:
    started_at = moment(row["started_ms"])
    assert started_at is not None
    return AttemptResponse(
        number=row["number"],
        worker=row["worker"],
        host=row["host"],
        run_id=row["run_id"],
        started_at=started_at,
        ended_at=moment(row["ended_ms"]),
        state=JobState(row["state"]) if row["state"] in set(JobState) else None,
        reason=row["reason"],
        tokens=row["tokens"],
        cost_usd=row["cost_usd"],
        has_record=run_dir(row["run_id"]).is_dir() or row["record"] not in (None, NOT_STORED),
    )


async def _limits(
    source: FleetSource,
    job: Job,
    configuration: bytes | None,
    attempts: Sequence[AttemptResponse],
    ended: JobEnded | None,
) -> list[LimitUsage]:
    """The limits of a job's agent, as configured when the job was created, or as a person raised them.

    Tokens and cost are those of all attempts together: while the job is active, the usage of its earlier attempts plus
    what is reserved for its current one. Time, turns and tool calls are those of the last attempt.
    """
    try:
        limits = agent_settings(configuration, job).limits
    except InfrastructureFault:  # another version of ringfence wrote the configuration
        limits = LimitSettings()
    granted = await source.database.read(
        lambda connection: granted_limits_in(connection, agent_grants_in(connection), job.agent, job.id)
    )
    limits = limits.model_copy(update=granted)
    current = attempts[-1] if attempts and job.state is JobState.RUNNING else None
    # The job and its attempts are read one after the other, and its usage grows meanwhile: so the attempts are summed.
    earlier = [attempt for attempt in attempts if attempt is not current]
    before = Usage(sum(attempt.tokens for attempt in earlier), sum(attempt.cost_usd for attempt in earlier))
    tokens = None if job.allowed_tokens is None else before.tokens + job.allowed_tokens
    cost_usd = None if job.allowed_usd is None else before.cost_usd + job.allowed_usd
    return [
        LimitUsage(name="tokens", used=job.tokens, allowed=_smaller(limits.tokens, tokens)),
        LimitUsage(name="cost_usd", used=job.cost_usd, allowed=_smaller(limits.cost_usd, cost_usd)),
        LimitUsage(name="wall_clock_s", used=_duration_s(attempts), allowed=limits.wall_clock),
        LimitUsage(name="turns", used=None if ended is None else ended.turns, allowed=limits.turns),
        LimitUsage(
            name="tool_calls", used=None if ended is None else ended.tool_calls, allowed=limits.tool_calls
        ),
    ]


def _smaller(first: float | None, second: float | None) -> float | None:
    known = [each for each in (first, second) if each is not None]
    return min(known, default=None)


def _duration_s(attempts: Sequence[AttemptResponse]) -> float | None:
    """Seconds from the last attempt's start to its end, or to now."""
    if not attempts:
        return None
    last = attempts[-1]
    took: timedelta = (last.ended_at or datetime.now(UTC)) - last.started_at
    return took.total_seconds()

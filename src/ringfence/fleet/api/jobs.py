"""Routes of jobs."""

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import anyio
from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from ringfence.errors import NotFound, UsageError
from ringfence.fleet.api.access import ACT, ADMIN, READ, Sender
from ringfence.fleet.api.context import Context, FleetData, RunningDaemon
from ringfence.fleet.api.records import (
    AttemptNumber,
    DiffPath,
    EventLimit,
    Offset,
    PageLimit,
    Start,
    check_shown,
    here,
    page_of_diff,
    stream_events,
)
from ringfence.fleet.api.requests import ApplyRequest, RepeatRequest
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.queries.jobs import (
    MAX_LISTED,
    JobFilters,
    describe_job,
    find_job,
    list_attempts,
    list_jobs,
    show_job,
)
from ringfence.fleet.queries.models import AttemptResponse, JobDetail, JobResponse, SubmissionResponse
from ringfence.fleet.queries.record_models import (
    AppliedResponse,
    DiffResponse,
    LinesResponse,
    RecordResponse,
)
from ringfence.fleet.queries.records import FoundRecord, describe_restored, find_job_record, show_record
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.job import Job
from ringfence.fleet.submission import repeat_request
from ringfence.job.changes import apply_changes, reject_changes
from ringfence.job.state import JobState
from ringfence.journal import run_dir

router = APIRouter(tags=["jobs"])
_POLL_S = 0.2
Reference = Annotated[str, Path(min_length=1, max_length=100, description="A job's id, or the end of it.")]


@router.get("/v1/jobs", dependencies=[READ])
async def jobs(
    context: Context,
    agent: str | None = None,
    state: Annotated[list[JobState], Query()] = [],  # noqa: B006 -- never changed
    trigger: Annotated[str | None, Query(max_length=200)] = None,
    since: datetime | None = None,
    until: datetime | None = None,
    parent: str | None = None,
    text: Annotated[str | None, Query(max_length=200)] = None,
    before: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 50,
    ready: bool = False,
) -> list[JobResponse]:
    """Jobs, the newest first.

    Jobs of an agent, in one of some states, of a trigger (`KIND` or `KIND/NAME`), created from `since` until
    `until`, that follow the job `parent`, with a text in title or reason, or whose changes are `ready` to be applied.
    The next page is older than `before`.
    """
    filters = JobFilters(agent, state, trigger, since, until, parent, text, before, limit, ready)
    return [] if context.source is None else await list_jobs(context.source, filters)


@router.get("/v1/jobs/{reference}", dependencies=[READ])
async def show(reference: Reference, source: FleetData) -> JobDetail:
    """One job, with its task, its answer, its attempts, and its limits against what it used."""
    return await show_job(source, reference)


@router.get("/v1/jobs/{reference}/attempts", dependencies=[READ])
async def attempts(reference: Reference, source: FleetData) -> list[AttemptResponse]:
    """The attempts at a job, the first one first."""
    return await list_attempts(source, await find_job(source, reference))


@router.get(
    "/v1/jobs/{reference}/events",
    dependencies=[READ],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "A record on each line."}},
)
async def events(
    reference: Reference,
    source: FleetData,
    attempt: AttemptNumber = None,
    start: Start = 0,
    limit: EventLimit = None,
    is_followed: Annotated[bool, Query(alias="follow")] = False,
) -> StreamingResponse:
    """The record of an attempt at a job, by default the last one; an event on each line.

    From the record number `start`, at most `limit`; with a negative `start` the last ones. `follow`: until the run
    ends. An attempt that has not begun has no record.
    """
    job = await find_job(source, reference)
    record = await find_job_record(source, job, attempt)
    wait = partial(_wait_for_record, source, job, attempt) if is_followed else None
    return stream_events(record, start=start, limit=limit, is_followed=is_followed, wait=wait)


@router.get("/v1/jobs/{reference}/record", dependencies=[READ])
async def record(reference: Reference, source: FleetData, attempt: AttemptNumber = None) -> RecordResponse:
    """The summary of an attempt's run, and the verification of its record."""
    return await show_record(await _record_of(source, reference, attempt))


@router.get("/v1/jobs/{reference}/diff", dependencies=[READ])
async def diff(
    reference: Reference,
    source: FleetData,
    attempt: AttemptNumber = None,
    path: DiffPath = None,
    offset: Offset = 0,
    limit: PageLimit = 500,
) -> DiffResponse | LinesResponse:
    """The files that an attempt changed; with `path`, the lines of one of them. Both by pages."""
    return await page_of_diff(await _record_of(source, reference, attempt), path, offset, limit)


@router.post("/v1/jobs/{reference}/apply", dependencies=[ACT])
async def apply(
    reference: Reference, wanted: ApplyRequest, daemon: RunningDaemon, source: FleetData, sender: Sender
) -> AppliedResponse:
    """Apply the changes of a job's last attempt to its workspace, on the machine where it ran."""
    job = await find_job(source, reference)
    run = here(await _record_of(source, job.id, None))
    check_shown(run, wanted.run_id)
    answer = await describe_restored(run, await apply_changes(run, force=wanted.force))
    await daemon.jobs.set_decided(job.id)
    line = f"job {job.id}: its changes are applied, by {sender.name}"
    daemon.log(line, event="job.applied", level="info", job=job.id, by=sender.name)
    return answer


@router.post("/v1/jobs/{reference}/reject", dependencies=[ACT])
async def reject(
    reference: Reference, wanted: ApplyRequest, daemon: RunningDaemon, source: FleetData, sender: Sender
) -> AppliedResponse:
    """Mark the changes of a job's last attempt as rejected; those that are in the workspace are undone."""
    job = await find_job(source, reference)
    run = here(await _record_of(source, job.id, None))
    check_shown(run, wanted.run_id)
    answer = await describe_restored(run, await reject_changes(run, by=sender.name, force=wanted.force))
    await daemon.jobs.set_decided(job.id)
    line = f"job {job.id}: its changes are rejected, by {sender.name}"
    daemon.log(line, event="job.rejected", level="info", job=job.id, by=sender.name)
    return answer


@router.post("/v1/jobs/{reference}/cancel", dependencies=[ACT])
async def cancel(
    reference: Reference, daemon: RunningDaemon, source: FleetData, sender: Sender
) -> JobResponse:
    """Cancel a job, queued or running."""
    job = await daemon.jobs.resolve(reference)
    cancelled = await daemon.cancel(job.id, reason="cancelled by hand")
    line = f"job {job.id} is cancelled by {sender.name}"
    daemon.log(line, event="job.cancelled", level="info", job=job.id, by=sender.name)
    return await describe_job(source, cancelled)


@router.post("/v1/jobs/{reference}/{action}", status_code=201, dependencies=[ACT])
async def repeat(
    reference: Reference,
    action: Literal["retry", "fork"],
    wanted: RepeatRequest,
    daemon: RunningDaemon,
    source: FleetData,
    sender: Sender,
) -> SubmissionResponse:
    """Run a job again as a new one, or start a new one from where it ended."""
    job = await daemon.jobs.resolve(reference)
    if not job.state.is_terminal:
        raise UsageError(f"job {job.id!r} has not ended; cancel it first, or wait")
    if action == "fork":
        _check_session(daemon, job)
    kept = await daemon.jobs.blob(job.id, "prompt") or b""
    prompt = wanted.prompt if wanted.prompt is not None else kept.decode("utf-8", "surrogateescape")
    # A prompt in the request is not a template; the job's own prompt may be one, which needs the job's payload.
    payload = await daemon.jobs.blob(job.id, "payload") if wanted.prompt is None else None
    entered = await daemon.submit(
        repeat_request(job, daemon.fleet.agent(job.agent), prompt, kind=action, payload=payload)
    )
    assert entered.job is not None
    line = f"job {entered.job.id}: a {action} of job {job.id}, by {sender.name}"
    daemon.log(line, event="job.repeated", level="info", job=entered.job.id, by=sender.name)
    return SubmissionResponse(job=await describe_job(source, entered.job), is_new=True)


@router.delete("/v1/jobs/{reference}", dependencies=[ADMIN])
async def remove(reference: Reference, daemon: RunningDaemon, sender: Sender) -> None:
    """Remove a job that has ended."""
    job = await daemon.jobs.resolve(reference)
    if not await daemon.jobs.remove(job.id):
        raise UsageError(f"job {job.id!r} has not ended; cancel it first")
    line = f"job {job.id} is removed by {sender.name}"
    daemon.log(line, event="job.removed", level="info", job=job.id, by=sender.name)


def _check_session(daemon: Daemon, job: Job) -> None:
    """Check that a job left a session to resume; in a fleet of several machines it may be on another one.

    Raises:
        UsageError: It left none.
    """
    if _has_record(job) or (job.run_id is not None and daemon.fleet.settings.engine.type != "sqlite"):
        return
    why = "its record is not here" if job.run_id is not None else "it never began"
    raise UsageError(
        f"job {job.id!r} left nothing to resume ({job.state}; {why}); "
        f"`ringfence job retry {job.id}` does its task from the start, with `-p TEXT` another one"
    )


async def _record_of(source: FleetSource, reference: str, attempt: int | None) -> FoundRecord:
    """Return the record of an attempt at a job.

    Raises:
        UsageError: No attempt has begun; or as `find_job_record`.
    """
    job = await find_job(source, reference)
    found = await find_job_record(source, job, attempt)
    if found is None:
        yet = "" if job.state.is_terminal else " yet"
        raise NotFound(f"job {job.id!r} has no record{yet}: it is {job.state.value}")
    return found


async def _wait_for_record(source: FleetSource, job: Job, attempt: int | None) -> FoundRecord | None:
    """Wait for an attempt's run to begin and return its record; None if the job ends before that."""
    while not job.state.is_terminal:
        await anyio.sleep(_POLL_S)
        job = await find_job(source, job.id)
        found = await find_job_record(source, job, attempt)
        if found is not None:
            return found
    return None


def _has_record(job: Job) -> bool:
    return job.run_id is not None and run_dir(job.run_id).is_dir()

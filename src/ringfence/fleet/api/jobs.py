"""Routes of jobs."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

import anyio
from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from ringfence.errors import UsageError
from ringfence.fleet.api.access import ACT, ADMIN, READ
from ringfence.fleet.api.context import RunningDaemon
from ringfence.fleet.api.models import EnteredAnswer, JobAnswer, JobDetail, RepeatRequest, text_of
from ringfence.fleet.api.waiting import answer_job
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.insertion import is_job_id
from ringfence.fleet.store.job import Job
from ringfence.fleet.submission import repeat_request
from ringfence.job.state import JobState
from ringfence.journal import as_json, follow, read, run_dir

router = APIRouter(tags=["jobs"])
_POLL_S = 0.2
_MAX_LISTED = 1000
_Reference = Annotated[str, Path(min_length=1, max_length=100, description="A job's id, or the end of it.")]


@router.get("/v1/jobs", dependencies=[READ])
async def jobs(
    daemon: RunningDaemon,
    agent: str | None = None,
    state: Annotated[list[JobState], Query()] = [],  # noqa: B006 -- never changed
    before: str | None = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 50,
) -> list[JobAnswer]:
    """Jobs, the newest first; older than `before`."""
    if before is not None and not is_job_id(before):  # the job of a whole id may be forgotten by now
        before = (await daemon.jobs.resolve(before)).id
    found = await daemon.jobs.list(agent=agent, states=state, before=before, limit=limit)
    await _check_known(daemon, agent, found)
    return [answer_job(daemon, job) for job in found]


@router.get("/v1/jobs/{reference}", dependencies=[READ])
async def show(reference: _Reference, daemon: RunningDaemon) -> JobDetail:
    """One job, with its task and its answer."""
    job = await daemon.jobs.resolve(reference)
    return JobDetail(
        **answer_job(daemon, job).model_dump(),
        prompt=text_of(await daemon.jobs.blob(job.id, "prompt")),
        answer=text_of(await daemon.jobs.blob(job.id, "answer")),
    )


@router.get(
    "/v1/jobs/{reference}/events",
    dependencies=[READ],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "A record on each line."}},
)
async def events(
    reference: _Reference,
    daemon: RunningDaemon,
    is_followed: Annotated[bool, Query(alias="follow")] = False,
) -> StreamingResponse:
    """The record of a job's last attempt on this machine, an event on each line; `follow`: until it ends."""
    job = await daemon.jobs.resolve(reference)
    return StreamingResponse(
        _events(daemon, job.id, is_followed=is_followed), media_type="application/x-ndjson"
    )


@router.post("/v1/jobs/{reference}/cancel", dependencies=[ACT])
async def cancel(reference: _Reference, daemon: RunningDaemon) -> JobAnswer:
    """Cancel a job, wherever it is."""
    job = await daemon.jobs.resolve(reference)
    return answer_job(daemon, await daemon.cancel(job.id, reason="cancelled by hand"))


@router.post("/v1/jobs/{reference}/{action}", status_code=201, dependencies=[ACT])
async def repeat(
    reference: _Reference, action: Literal["retry", "fork"], wanted: RepeatRequest, daemon: RunningDaemon
) -> EnteredAnswer:
    """Run a job again as a new one, or start a new one from where it ended."""
    job = await daemon.jobs.resolve(reference)
    if not job.state.is_terminal:
        raise UsageError(f"job {job.id!r} has not ended; cancel it first, or wait")
    if action == "fork":
        _check_session(daemon, job)
    kept = await daemon.jobs.blob(job.id, "prompt") or b""
    prompt = wanted.prompt if wanted.prompt is not None else kept.decode("utf-8", "surrogateescape")
    # A prompt given by hand is no template; the job's own may be one, which only its own payload can fill.
    payload = await daemon.jobs.blob(job.id, "payload") if wanted.prompt is None else None
    entered = await daemon.submit(
        repeat_request(job, daemon.fleet.agent(job.agent), prompt, kind=action, payload=payload)
    )
    assert entered.job is not None
    return EnteredAnswer(job=answer_job(daemon, entered.job), is_new=True)


@router.delete("/v1/jobs/{reference}", dependencies=[ADMIN])
async def remove(reference: _Reference, daemon: RunningDaemon) -> None:
    """Remove a job that has ended."""
    job = await daemon.jobs.resolve(reference)
    if not await daemon.jobs.remove(job.id):
        raise UsageError(f"job {job.id!r} has not ended; cancel it first")


async def _check_known(daemon: Daemon, agent: str | None, found: Sequence[Job]) -> None:
    """Check that an agent exists whose jobs were requested, or existed: it may have jobs still.

    Raises:
        UsageError: There never was one.
    """
    if agent is not None and not found and not await daemon.jobs.list(agent=agent, limit=1):
        daemon.fleet.agent(agent)


def _check_session(daemon: Daemon, job: Job) -> None:
    """Check that a job left a session to resume; on a fleet of several machines it may be on another one.

    Raises:
        UsageError: It did not.
    """
    if _has_record(job) or (job.run_id is not None and daemon.fleet.settings.engine.type != "sqlite"):
        return
    why = "its record is not here" if job.run_id is not None else "it never began"
    raise UsageError(
        f"job {job.id!r} left nothing to go on with ({job.state}; {why}); "
        f"`ringfence job retry {job.id}` does its task from the start, with `-p TEXT` another one"
    )


async def _events(daemon: Daemon, job_id: str, *, is_followed: bool) -> AsyncIterator[bytes]:
    """The record of a job's last attempt on this machine, a line for each event."""
    job = await daemon.jobs.get(job_id)
    while is_followed and job is not None and not job.state.is_terminal and not _has_record(job):
        await anyio.sleep(_POLL_S)
        job = await daemon.jobs.get(job_id)
    if job is None or job.run_id is None or not _has_record(job):
        return
    records = follow(run_dir(job.run_id)) if is_followed else None
    if records is None:
        for record in read(run_dir(job.run_id)):
            yield json.dumps(as_json(record)).encode() + b"\n"
        return
    async for record in records:
        yield json.dumps(as_json(record)).encode() + b"\n"


def _has_record(job: Job) -> bool:
    return job.run_id is not None and run_dir(job.run_id).is_dir()

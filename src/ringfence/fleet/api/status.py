"""Routes of the fleet as a whole: its state, its configuration files, its end."""

import os

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from ringfence import __version__
from ringfence.fleet.api import monitoring
from ringfence.fleet.api.access import ADMIN, READ
from ringfence.fleet.api.context import RunningDaemon
from ringfence.fleet.api.models import DownAnswer, ForgottenAnswer, StatusAnswer
from ringfence.job.state import JobState

router = APIRouter(tags=["fleet"])


@router.get("/v1/status", dependencies=[READ])
async def status(daemon: RunningDaemon) -> StatusAnswer:
    """The state of the fleet."""
    counts = await daemon.jobs.counts()
    live = [count for by_state in counts.values() for count in by_state.items()]
    return StatusAnswer(
        version=__version__,
        fleet=daemon.fleet.settings.name,
        file=str(daemon.file),
        pid=os.getpid(),
        started_at=daemon.started_at,
        is_ready=daemon.is_ready,
        workers=daemon.supervisor.pids,
        agents=len(daemon.fleet.agents),
        queued=sum(count for state, count in live if state is JobState.QUEUED),
        active=sum(count for state, count in live if state in (JobState.STARTING, JobState.RUNNING)),
        unreadable=len(await daemon.jobs.unreadable()),
    )


@router.get("/healthz", dependencies=[READ], response_class=PlainTextResponse)
async def healthz(request: Request) -> Response:
    """Whether the daemon lives."""
    return await monitoring.healthz(request)


@router.get(
    "/readyz",
    dependencies=[READ],
    response_class=PlainTextResponse,
    responses={503: {"content": {"text/plain": {}}, "description": "Not ready."}},
)
async def readyz(request: Request, daemon: RunningDaemon) -> Response:
    """Whether the daemon accepts jobs."""
    return await monitoring.readiness_of(daemon)(request)


@router.get("/v1/diff", dependencies=[READ])
async def diff(daemon: RunningDaemon) -> list[str]:
    """What a reload would change."""
    return await daemon.pending()


@router.post("/v1/reload", dependencies=[ADMIN])
async def reload(daemon: RunningDaemon) -> list[str]:
    """Read the files again; what changed."""
    return await daemon.reload()


@router.post("/v1/forget", dependencies=[ADMIN])
async def forget(daemon: RunningDaemon, *, dry_run: bool = False) -> ForgottenAnswer:
    """Remove ended jobs as `fleet.retention` says."""
    return ForgottenAnswer.model_validate(await daemon.forget(dry_run=dry_run), from_attributes=True)


@router.post("/v1/down", dependencies=[ADMIN])
async def down(daemon: RunningDaemon) -> DownAnswer:
    """Stop: running jobs have `fleet.drain` to end; the second call stops at once."""
    daemon.stop()
    return DownAnswer(pid=os.getpid())

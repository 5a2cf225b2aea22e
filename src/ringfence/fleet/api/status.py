"""Routes of the fleet as a whole: its state, its configuration files, and its shutdown."""

import os

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from ringfence.fleet.api.access import ADMIN, READ
from ringfence.fleet.api.context import Context, RunningDaemon
from ringfence.fleet.api.monitoring import health_response, metrics_response, readiness_response
from ringfence.fleet.queries.models import DownResponse, RetentionResponse, StatusResponse
from ringfence.fleet.queries.status import empty_status, read_status

router = APIRouter(tags=["fleet"])


@router.get("/v1/status", dependencies=[READ])
async def status(context: Context) -> StatusResponse:
    """The state of the fleet; without a daemon, what its database holds."""
    return empty_status() if context.source is None else await read_status(context.source)


@router.get("/healthz", dependencies=[READ], response_class=PlainTextResponse)
async def healthz() -> Response:
    """Whether the server is alive."""
    return health_response()


@router.get(
    "/readyz",
    dependencies=[READ],
    response_class=PlainTextResponse,
    responses={503: {"content": {"text/plain": {}}, "description": "The fleet accepts no jobs."}},
)
async def readyz(daemon: RunningDaemon) -> Response:
    """Whether the fleet accepts jobs."""
    return readiness_response(daemon)


@router.get("/metrics", dependencies=[READ], include_in_schema=False)
async def metrics(request: Request, daemon: RunningDaemon) -> Response:
    """Metrics for Prometheus."""
    return await metrics_response(daemon, request)


@router.get("/openapi.json", dependencies=[READ], include_in_schema=False)
async def openapi(request: Request) -> JSONResponse:
    """The description of the API."""
    return JSONResponse(request.app.openapi())


@router.get("/v1/diff", dependencies=[READ])
async def diff(daemon: RunningDaemon) -> list[str]:
    """What a reload would change."""
    return await daemon.pending()


@router.post("/v1/reload", dependencies=[ADMIN])
async def reload(daemon: RunningDaemon) -> list[str]:
    """Reload the fleet's files; respond with what changed."""
    return await daemon.reload()


@router.post("/v1/forget", dependencies=[ADMIN])
async def forget(daemon: RunningDaemon, *, dry_run: bool = False) -> RetentionResponse:
    """Remove ended jobs as `fleet.retention` says."""
    return RetentionResponse.model_validate(await daemon.apply_retention(dry_run=dry_run))


@router.post("/v1/down", dependencies=[ADMIN])
async def down(daemon: RunningDaemon) -> DownResponse:
    """Stop: running jobs have `fleet.drain` to end; the second call stops at once."""
    daemon.stop()
    return DownResponse(pid=os.getpid())

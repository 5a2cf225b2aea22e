"""Serves a fleet's metrics for Prometheus, and the checks that its daemon is alive and takes jobs."""

from contextlib import suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ringfence.errors import InfrastructureFault
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.metrics import Moment, exposition
from ringfence.sandbox.pool.counts import read_counts


def monitoring_app(daemon: Daemon) -> Starlette:
    """Create the application for the address of the metrics, which serves nothing else."""

    async def metrics(request: Request) -> Response:
        return await metrics_response(daemon, request)

    async def healthz(_request: Request) -> Response:
        return health_response()

    async def readyz(_request: Request) -> Response:
        return readiness_response(daemon)

    routes = {"/metrics": metrics, "/healthz": healthz, "/readyz": readyz}
    return Starlette(routes=[Route(path, act, methods=["GET"]) for path, act in routes.items()])


def health_response() -> Response:
    """Respond `ok`, because the daemon is alive."""
    return PlainTextResponse("ok\n")


def readiness_response(daemon: Daemon) -> Response:
    """Respond whether the fleet takes jobs."""
    return PlainTextResponse("ok\n") if daemon.is_ready else PlainTextResponse("not ready\n", 503)


async def metrics_response(daemon: Daemon, request: Request) -> Response:
    """Respond with the metrics in the format that the request accepts."""
    census = await daemon.census_cache.census()
    executors = None
    if census is not None:
        with suppress(InfrastructureFault):
            executors = len(await daemon.engine.live_executors())
    pool = read_counts(daemon.state / "pool")
    moment = Moment(
        agents=frozenset(daemon.fleet.agents),
        census=census,
        is_ready=daemon.is_ready,
        workers=len(daemon.supervisor.pids),
        executors=executors,
        restarts=daemon.supervisor.restarts,
        database_errors=daemon.database.errors,
        pool={"hits": pool.hits, "misses": pool.misses},
    )
    content, kind = exposition(moment, daemon.counters, accept=request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": kind})

"""Serves a fleet's metrics for Prometheus, and the checks that its daemon is alive and takes jobs."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ringfence.errors import InfrastructureFault
from ringfence.fleet.metrics import CensusCache, Moment, exposition
from ringfence.sandbox.pool.counts import read_counts

if TYPE_CHECKING:
    from ringfence.fleet.daemon.daemon import Daemon


def metrics_of(daemon: "Daemon") -> Callable[[Request], Awaitable[Response]]:
    """Create the endpoint of `/metrics`."""
    census_cache = CensusCache(daemon.database)

    async def metrics(request: Request) -> Response:
        moment = await _moment(daemon, census_cache)
        content, kind = exposition(moment, daemon.counters, accept=request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    return metrics


async def healthz(_request: Request) -> Response:
    """Respond `ok`, because the daemon is alive."""
    return PlainTextResponse("ok\n")


def readiness_of(daemon: "Daemon") -> Callable[[Request], Awaitable[Response]]:
    """Create the endpoint of `/readyz`."""

    async def readyz(_request: Request) -> Response:
        """Respond whether the fleet takes jobs."""
        return PlainTextResponse(
            "ok\n" if daemon.is_ready else "not ready\n", 200 if daemon.is_ready else 503
        )

    return readyz


def metrics_route(daemon: "Daemon") -> Route:
    """Create the route of the metrics."""
    return Route("/metrics", metrics_of(daemon), methods=["GET"], include_in_schema=False)


def monitoring_app(daemon: "Daemon") -> Starlette:
    """Create the application for the address of the metrics, which serves nothing else."""
    return Starlette(
        routes=[
            metrics_route(daemon),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readiness_of(daemon), methods=["GET"]),
        ]
    )


async def _moment(daemon: "Daemon", census_cache: CensusCache) -> Moment:
    census = await census_cache.census()
    executors = None
    if census is not None:
        with suppress(InfrastructureFault):
            executors = len(await daemon.engine.live_executors())
    pool = read_counts(daemon.state / "pool")
    return Moment(
        agents=frozenset(daemon.fleet.agents),
        census=census,
        is_ready=daemon.is_ready,
        workers=len(daemon.supervisor.pids),
        executors=executors,
        restarts=daemon.supervisor.restarts,
        database_errors=daemon.database.errors,
        pool={"hits": pool.hits, "misses": pool.misses},
    )

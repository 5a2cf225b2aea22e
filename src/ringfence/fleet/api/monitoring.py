"""What watches a fleet from outside: figures for Prometheus, and whether it lives and takes jobs."""

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
    """The answer to `/metrics`."""
    looking = CensusCache(daemon.database)

    async def metrics(request: Request) -> Response:
        moment = await _moment(daemon, looking)
        content, kind = exposition(moment, daemon.counters, accept=request.headers.get("accept", ""))
        return Response(content, headers={"Content-Type": kind})

    return metrics


async def healthz(_request: Request) -> Response:
    """Whether the daemon lives."""
    return PlainTextResponse("ok\n")


def readiness_of(daemon: "Daemon") -> Callable[[Request], Awaitable[Response]]:
    """The answer to `/readyz`: it takes jobs."""

    async def readyz(_request: Request) -> Response:
        """Whether it takes jobs."""
        return PlainTextResponse(
            "ok\n" if daemon.is_ready else "not ready\n", 200 if daemon.is_ready else 503
        )

    return readyz


def metrics_route(daemon: "Daemon") -> Route:
    """Where the figures are."""
    return Route("/metrics", metrics_of(daemon), methods=["GET"], include_in_schema=False)


def monitoring_app(daemon: "Daemon") -> Starlette:
    """The application for an address of their own: nothing else answers there."""
    return Starlette(
        routes=[
            metrics_route(daemon),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readiness_of(daemon), methods=["GET"]),
        ]
    )


async def _moment(daemon: "Daemon", looking: CensusCache) -> Moment:
    census = await looking.census()
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

"""Creates the application that serves the fleet's HTTP API. OpenAPI describes it at /openapi.json."""

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from ringfence import __version__
from ringfence.fleet.api import (
    agents,
    changes,
    doctor,
    inbox,
    jobs,
    loops,
    runs,
    schedules,
    spend,
    status,
    tokens,
    workers,
)
from ringfence.fleet.api.access import LocalAccess
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.api.error_responses import RESPONSES, guard, known_query

_ROUTERS = (
    status.router,
    agents.router,
    jobs.router,
    schedules.router,
    spend.router,
    workers.router,
    inbox.router,
    runs.router,
    loops.router,
    changes.router,
    doctor.router,
    tokens.router,
)


def create_app(context: ApiContext) -> FastAPI:
    """Create the application; it refuses every request unless `LocalAccess` or `TokenAccess` wraps it."""
    app = FastAPI(
        title="Ringfence fleet",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(known_query)],
        responses=RESPONSES,
        redirect_slashes=False,
    )
    app.state.context = context
    guard(app)
    for router in _ROUTERS:
        app.include_router(router)
    return app


def create_local_app(context: ApiContext) -> ASGIApp:
    """Create the application for requests of this user: on the Unix socket, or in this process."""
    return LocalAccess(create_app(context))

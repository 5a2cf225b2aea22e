"""Provides the API's routes with the daemon if one runs, the fleet's database, and the state directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from ringfence.fleet.client import NoDaemon
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.queries.changes import ChangeFeed
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.database import Database


@dataclass(frozen=True)
class ApiContext:
    """The objects that the routes work on.

    Args:
        state: The state directory.
        daemon: The fleet's daemon; None if none runs in this process. Routes that need it then respond with 503.
        source: The source of the fleet's state; None if there is no fleet. Its lists are then empty.
    """

    state: Path
    daemon: Daemon | None = None
    source: FleetSource | None = None
    changes: ChangeFeed = field(init=False)

    def __post_init__(self) -> None:
        feed = ChangeFeed(None if self.source is None else self.source.database)
        object.__setattr__(self, "changes", feed)

    @classmethod
    def of_daemon(cls, daemon: Daemon) -> "ApiContext":
        """Return the context of a daemon's API."""
        source = FleetSource(daemon.database, daemon.state, daemon=daemon)
        return cls(daemon.state, daemon, source)


async def get_context(request: Request) -> ApiContext:
    """Return the context of the application that received a request."""
    context = request.app.state.context
    assert isinstance(context, ApiContext)
    return context


Context = Annotated[ApiContext, Depends(get_context)]
"""A parameter of a route that reads."""


async def get_daemon(context: Context) -> Daemon:
    """Return the daemon.

    Raises:
        NoDaemon: No daemon runs in this process.
    """
    if context.daemon is None:
        raise NoDaemon
    return context.daemon


async def get_source(context: Context) -> FleetSource:
    """Return the source of the fleet's state.

    Raises:
        NoDaemon: There is no fleet.
    """
    if context.source is None:
        raise NoDaemon
    return context.source


async def get_database(source: Annotated[FleetSource, Depends(get_source)]) -> Database:
    """Return the fleet's database.

    Raises:
        NoDaemon: There is no fleet.
    """
    return source.database


RunningDaemon = Annotated[Daemon, Depends(get_daemon)]
"""A parameter of a route that acts on the fleet."""
FleetData = Annotated[FleetSource, Depends(get_source)]
"""A parameter of a route that reads the fleet's state."""
FleetDatabase = Annotated[Database, Depends(get_database)]
"""A parameter of a route that reads or changes the fleet's database without its daemon."""

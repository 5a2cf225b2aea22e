"""What the routes of the API work on: the daemon where one runs, the fleet's database, the state directory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from ringfence.fleet.api.change_feed import ChangeFeed
from ringfence.fleet.client import NoDaemon
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.database import Database


@dataclass(frozen=True)
class ApiContext:
    """What the routes work on.

    Args:
        state: The state directory.
        daemon: The fleet's daemon; None: none runs in this process, and what needs one is answered with 503.
        source: Where the fleet's state is read; None: there is no fleet, and its lists are empty.
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
        """The context of a daemon's API."""
        source = FleetSource(daemon.database, daemon.state, daemon=daemon)
        return cls(daemon.state, daemon, source)


async def get_context(request: Request) -> ApiContext:
    """The context of the application that a request came to."""
    context = request.app.state.context
    assert isinstance(context, ApiContext)
    return context


Context = Annotated[ApiContext, Depends(get_context)]
"""A parameter of a route that reads."""


async def get_daemon(context: Context) -> Daemon:
    """The daemon.

    Raises:
        NoDaemon: None runs in this process.
    """
    if context.daemon is None:
        raise NoDaemon
    return context.daemon


async def get_source(context: Context) -> FleetSource:
    """Where the fleet's state is read.

    Raises:
        NoDaemon: There is no fleet.
    """
    if context.source is None:
        raise NoDaemon
    return context.source


async def get_database(source: Annotated[FleetSource, Depends(get_source)]) -> Database:
    """The fleet's database.

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

"""What the routes of the API work on: the daemon where one runs, the fleet's database, the state directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from ringfence.fleet.client import NoDaemon
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.database import Database


@dataclass(frozen=True)
class ApiContext:
    """What the routes work on.

    Args:
        state: The state directory.
        daemon: The fleet's daemon; None: none runs in this process, and what needs one is answered with 503.
        database: The fleet's database; None: there is no fleet, and its lists are empty.
    """

    state: Path
    daemon: Daemon | None = None
    database: Database | None = None

    @classmethod
    def of_daemon(cls, daemon: Daemon) -> "ApiContext":
        """The context of a daemon's API."""
        return cls(daemon.state, daemon, daemon.database)


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


async def get_database(context: Context) -> Database:
    """The fleet's database.

    Raises:
        NoDaemon: There is no fleet.
    """
    if context.database is None:
        raise NoDaemon
    return context.database


RunningDaemon = Annotated[Daemon, Depends(get_daemon)]
"""A parameter of a route that acts on the fleet."""
FleetDatabase = Annotated[Database, Depends(get_database)]
"""A parameter of a route that reads or changes the fleet's database without its daemon."""

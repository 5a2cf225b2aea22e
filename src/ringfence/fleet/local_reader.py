"""Finds the fleet of this machine, and serves its API in this process while no daemon runs."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.config.document import find_project_file
from ringfence.errors import ConfigurationError, PolicyRefused
from ringfence.fleet.client import NoDaemon, check_response, path_and_query
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.loader import load_trusted
from ringfence.fleet.retention_command import DATABASE
from ringfence.fleet.state_directory import database_file, noted_file, owns_first
from ringfence.fleet.store.database import Database

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def open_local_reader(state: Path) -> "LocalReader":
    """Return a reader of the database of the fleet that `find_fleet` finds.

    Raises:
        NoDaemon: There is no such fleet.
    """
    found = find_fleet(state, os.environ)
    if found is None:
        raise NoDaemon
    return LocalReader(found, state)


@dataclass(frozen=True)
class FoundFleet:
    """The fleet whose database is read without a daemon."""

    url: str
    """The address of the database."""
    file: Path | None
    """The fleet's file; None: not known, as on a machine that only has workers."""
    fleet: Fleet | None
    """The configuration; None: it cannot be read, or is not trusted."""


def find_fleet(state: Path, environ: Mapping[str, str]) -> FoundFleet | None:
    """The fleet of the current project, or the fleet that was started last; None if there is none.

    Args:
        state: The state directory.
        environ: The environment, which names the database on a machine that only has workers.

    Raises:
        ConfigurationError, PolicyRefused: The fleet's file cannot be used, and nothing else names a database.
    """
    file = _file(state)
    own = database_file(state / "fleet", file)
    url, fleet = environ.get(DATABASE) or None, None
    if file is not None and file.exists():
        try:
            fleet = load_trusted(file, environ=environ)
        except (ConfigurationError, PolicyRefused):
            if not own.exists():
                raise
        else:
            url = fleet.settings.engine.url or url
    if url is None and own.exists():
        url = f"sqlite:///{own}"
    return None if url is None else FoundFleet(url=url, file=file, fleet=fleet)


def _file(state: Path) -> Path | None:
    """The file of the fleet to read: the project's file if there is one, otherwise that of the last fleet."""
    here = None
    with suppress(OSError):  # the current directory was removed
        here = find_project_file(Path.cwd())
    folder = state / "fleet"
    if here is not None and database_file(folder, here) != database_file(folder, None):
        return here if database_file(folder, here).exists() else noted_file(state)
    if here is not None and owns_first(folder, here):
        return here
    return noted_file(state)


class LocalReader:
    """Responds as `FleetClient` does, from a fleet's database: by the API's own routes, which then have no daemon.

    The modules of the API are imported with the first request.

    Args:
        found: The fleet.
        state: The state directory.

    Raises:
        UsageError: By every method: the request is refused, or needs a daemon.
        InfrastructureFault: By every method: the database cannot be used.
    """

    def __init__(self, found: FoundFleet, state: Path) -> None:
        self._found = found
        self._state = state
        self._database = Database(found.url)

    def get(self, *parts: str, **query: Any) -> Any:
        """Send a request that reads, and return the response."""
        return anyio.run(self._request, "GET", path_and_query(parts, query), None)

    def post(self, *parts: str, body: Any = None) -> Any:
        """Send a request that changes something, and return the response."""
        return anyio.run(self._request, "POST", path_and_query(parts, {}), body)

    def delete(self, *parts: str) -> Any:
        """Send a request that removes something, and return the response."""
        return anyio.run(self._request, "DELETE", path_and_query(parts, {}), None)

    async def _request(self, method: str, path: str, body: Any) -> Any:
        import httpx2

        try:
            transport = httpx2.ASGITransport(self._app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://fleet") as client:
                response = await client.request(method, path, json=body)
        finally:
            self._database.close()
        check_response(response.status_code, response.content)
        return response.json()

    @cached_property
    def _app(self) -> "ASGIApp":
        from ringfence.fleet.api.app import create_local_app
        from ringfence.fleet.api.context import ApiContext
        from ringfence.fleet.queries.source import FleetSource

        source = FleetSource(self._database, self._state, self._found.fleet, self._found.file)
        return create_local_app(ApiContext(self._state, None, source))

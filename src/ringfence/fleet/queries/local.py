"""Answers the API's read requests from a fleet's database while no daemon runs."""

import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, ValidationError

from ringfence.config.document import find_project_file
from ringfence.errors import ConfigurationError, PolicyRefused, UsageError
from ringfence.fleet.api.models import AnswerRequest
from ringfence.fleet.client import NoDaemon
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.loader import load_trusted
from ringfence.fleet.queries.agents import list_agents, show_agent
from ringfence.fleet.queries.inbox import answer_inbox, list_grants, list_inbox, revoke_grant, show_inbox
from ringfence.fleet.queries.jobs import JobFilters, find_job, list_attempts, list_jobs, show_job
from ringfence.fleet.queries.schedules import list_schedules
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.queries.spend import report_spend
from ringfence.fleet.queries.status import read_status
from ringfence.fleet.retention_command import DATABASE
from ringfence.fleet.state_directory import database_file, noted_file, owns_first
from ringfence.fleet.store.database import Database
from ringfence.job.state import JobState

_Result = TypeVar("_Result")


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
    """Responds to `get` as `FleetClient` does, from a fleet's database. It changes nothing but answers and grants.

    Args:
        found: The fleet.
        state: The state directory.
    """

    def __init__(self, found: FoundFleet, state: Path) -> None:
        self._found = found
        self._state = state

    def get(self, *parts: str, **query: Any) -> Any:
        """The daemon's response to a request.

        Raises:
            UsageError: There is no such job or agent.
            NoDaemon: The request needs a daemon.
            InfrastructureFault: The database cannot be read.
        """
        return self._read(lambda source: _respond(source, parts, query))

    def answer(self, question: str, body: Mapping[str, Any], *, by: str) -> Any:
        """Answer a question; its job continues under the next daemon.

        Raises:
            UsageError, PolicyRefused: As `Inbox.answer`.
            InfrastructureFault: The database cannot be written.
        """
        try:
            wanted = AnswerRequest.model_validate(body)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            raise UsageError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
        return self._read(lambda source: answer_inbox(source.database, question, wanted, by=by))

    def revoke(self, grant: str) -> Any:
        """Remove a rule that an agent was granted.

        Raises:
            UsageError: There is no such grant.
            InfrastructureFault: The database cannot be written.
        """
        return self._read(lambda source: revoke_grant(source.database, grant))

    def _read(self, read: Callable[[FleetSource], Awaitable[_Result]]) -> Any:
        async def run() -> _Result:
            database = Database(self._found.url)
            try:
                return await read(FleetSource(database, self._state, self._found.fleet, self._found.file))
            finally:
                database.close()

        return _plain(anyio.run(run))


async def _respond(source: FleetSource, parts: tuple[str, ...], query: Mapping[str, Any]) -> Any:
    match parts:
        case ("status",):
            return await read_status(source)
        case ("jobs",):
            return await list_jobs(source, _filters(query))
        case ("jobs", reference):
            return await show_job(source, reference)
        case ("jobs", reference, "attempts"):
            return await list_attempts(source, await find_job(source, reference))
        case ("agents",):
            return await list_agents(source)
        case ("agents", name):
            return await show_agent(source, name)
        case ("schedules",):
            return await list_schedules(source)
        case ("inbox" | "grants", *_):
            return await _respond_inbox(source, parts, query)
        case ("spend",):
            return await report_spend(source, **query)
        case _:
            raise NoDaemon


async def _respond_inbox(source: FleetSource, parts: tuple[str, ...], query: Mapping[str, Any]) -> Any:
    match parts:
        case ("inbox",):
            is_open = None if query.get("open") is None else query["open"] in (True, "true")
            more = {name: query[name] for name in ("agent", "limit") if query.get(name) is not None}
            return await list_inbox(source.database, is_open=is_open, **more)
        case ("inbox", question):
            return await show_inbox(source.database, question)
        case ("grants",):
            return await list_grants(source.database)
        case _:
            raise NoDaemon


def _filters(query: Mapping[str, Any]) -> JobFilters:
    known = {name: value for name, value in query.items() if value is not None}
    states = known.pop("state", ())
    for name in ("since", "until"):
        if isinstance(known.get(name), str):
            known[name] = datetime.fromisoformat(known[name])
    return JobFilters(**known, states=_states([states] if isinstance(states, str) else states))


def _states(names: list[str]) -> list[JobState]:
    try:
        return [JobState(name) for name in names]
    except ValueError as exc:
        raise UsageError(f"{exc}; the states are: {', '.join(JobState)}") from None


def _plain(found: Any) -> Any:
    """Convert models to the values that JSON can represent."""
    if isinstance(found, BaseModel):
        return found.model_dump(mode="json")
    return [_plain(each) for each in found] if isinstance(found, list) else found

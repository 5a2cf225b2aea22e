"""Reads a fleet's jobs from its database while no daemon runs, in the form of the daemon's responses."""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import anyio

from ringfence import __version__
from ringfence.config.document import find_project_file
from ringfence.config.paths import state_dir
from ringfence.errors import ConfigurationError, PolicyRefused, UsageError
from ringfence.fleet.api.models import JobAnswer, JobDetail, counts_of_agent, job_answer, text_of
from ringfence.fleet.client import FleetClient, NoDaemon, socket_path
from ringfence.fleet.config.loader import load_trusted
from ringfence.fleet.retention_command import DATABASE
from ringfence.fleet.state_directory import database_file, noted_file, owns_first
from ringfence.fleet.store.agents import AgentStates
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import is_job_id
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.job.state import JobState

NOT_RUNNING = "no daemon is running; `ringfence fleet up` starts it"
_LIMIT = 50

Answer = TypeVar("Answer")


def open_reader(state: Path | None = None) -> "FleetClient | History":
    """The daemon, if it runs; else what its database holds.

    Raises:
        NoDaemon: There is neither.
    """
    place = state or state_dir()
    client = FleetClient(socket_path(place))
    if client.is_up():
        return client
    file = _file(place)
    url = _url(place, file, os.environ)
    if url is None:
        raise NoDaemon
    return History(url, file=file)


def _file(state: Path) -> Path | None:
    """The file of the fleet whose history is read: that of the project here, if it has one; else the last one's."""
    here = find_project_file(Path.cwd())
    folder = state / "fleet"
    if here is not None and database_file(folder, here) != database_file(folder, None):
        return here if database_file(folder, here).exists() else noted_file(state)
    if here is not None and owns_first(folder, here):
        return here
    return noted_file(state)


def _url(state: Path, file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Of the database; on a machine with mere workers the environment names it. None: there is no fleet yet."""
    own = database_file(state / "fleet", file)
    named = environ.get(DATABASE) or None
    if file is not None and file.exists():
        try:
            named = load_trusted(file, environ=environ).settings.engine.url or named
        except (ConfigurationError, PolicyRefused):
            if not own.exists():
                raise
    return named or (f"sqlite:///{own}" if own.exists() else None)


class History:
    """Answers the questions of `job ls`, `job show` and `fleet status` as `FleetClient.get` does. Changes nothing.

    Args:
        url: Of the database.
        file: The fleet's, as it was last started.
    """

    def __init__(self, url: str, *, file: Path | None) -> None:
        self._url = url
        self._file = file

    def get(self, *parts: str, **query: Any) -> Any:
        """What the daemon would answer to a question.

        Raises:
            UsageError: There is no such job.
            NoDaemon: Only a daemon can answer that.
            InfrastructureFault: The database cannot be read.
        """
        match parts:
            case ("jobs",):
                return self._ask(lambda database: _jobs(Jobs(database), **query))
            case ("jobs", reference):
                return self._ask(lambda database: _job(Jobs(database), reference))
            case ("agents",):
                return self._ask(_agents)
            case ("status",):
                return self._ask(self._status)
            case _:
                raise NoDaemon

    def _ask(self, act: "Callable[[Database], Awaitable[Answer]]") -> Answer:
        async def ask() -> Answer:
            database = Database(self._url)
            try:
                return await act(database)
            finally:
                database.close()

        return anyio.run(ask)

    async def _status(self, database: Database) -> dict[str, Any]:
        jobs = Jobs(database)
        counts = await jobs.counts()
        live = [count for by_state in counts.values() for count in by_state.items()]
        return {
            "version": __version__,
            "fleet": None,
            "file": None if self._file is None else str(self._file),
            "pid": None,
            "started_at": None,
            "is_ready": False,
            "workers": [],
            "agents": len(counts),
            "queued": sum(count for state, count in live if state is JobState.QUEUED),
            "active": sum(count for state, count in live if state in (JobState.STARTING, JobState.RUNNING)),
            "unreadable": len(await jobs.unreadable()),
        }


async def _jobs(
    jobs: Jobs,
    *,
    agent: str | None = None,
    state: list[str] | None = None,
    before: str | None = None,
    limit: int = _LIMIT,
) -> list[dict[str, Any]]:
    if before is not None and not is_job_id(before):
        before = (await jobs.resolve(before)).id
    found = await jobs.list(agent=agent, states=_states(state or []), before=before, limit=limit)
    return [_answer(job).model_dump(mode="json") for job in found]


async def _job(jobs: Jobs, reference: str) -> dict[str, Any]:
    job = await jobs.resolve(reference)
    beside = await jobs.blobs(job.id, ("prompt", "answer"))
    detail = JobDetail(
        **_answer(job).model_dump(),
        prompt=text_of(beside.get("prompt")),
        answer=text_of(beside.get("answer")),
    )
    return detail.model_dump(mode="json")


async def _agents(database: Database) -> list[dict[str, Any]]:
    counts, states = await Jobs(database).counts(), await AgentStates(database).all()
    return [
        {
            "name": name,
            "is_enabled": name not in states or states[name].is_enabled,
            "waits_for": NOT_RUNNING,
            **counts_of_agent(counts[name]),
        }
        for name in sorted(counts)
    ]


def _answer(job: Job) -> JobAnswer:
    """A job that has not ended waits for a daemon, also where one left it in the middle."""
    return job_answer(job, None if job.state.is_terminal else NOT_RUNNING)


def _states(names: list[str]) -> list[JobState]:
    try:
        return [JobState(name) for name in names]
    except ValueError as exc:
        raise UsageError(f"{exc}; the states are: {', '.join(JobState)}") from None

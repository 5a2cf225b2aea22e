"""Applies a fleet's retention from the command line, whether its daemon runs or not."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ringfence.config.old_names import fleet_database
from ringfence.fleet.client import FleetClient, socket_path
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.loader import load_trusted
from ringfence.fleet.record_store import open_record_store
from ringfence.fleet.retention import Retention, RetentionResult
from ringfence.fleet.state_directory import held, noted_file
from ringfence.fleet.store.database import Database, sqlite_url
from ringfence.fleet.store.ended_jobs import runs_of_jobs

DATABASE = "RINGFENCE_FLEET_DATABASE"
_TIMEOUT_S = 600.0


async def apply_retention(
    state: Path, environ: Mapping[str, str], *, dry_run: bool
) -> RetentionResult | None:
    """Remove jobs that the fleet need not keep, through its daemon if that runs. Returns None if there is no fleet.

    Raises:
        ConfigurationError, PolicyRefused: The fleet's file is invalid, or not trusted in its present form.
        InfrastructureFault: The database cannot be reached, or a record cannot be removed.
    """
    file = noted_file(state)
    if file is None:
        return None
    with held(state) as daemon:
        if daemon is not None:
            return await _through_daemon(state, dry_run=dry_run)
        if not file.exists():
            return None
        return await _without_daemon(load_trusted(file, environ=environ), state, dry_run=dry_run)


async def runs_of_fleets(state: Path, environ: Mapping[str, str], run_ids: Sequence[str]) -> frozenset[str]:
    """Return the runs that belong to a fleet's jobs, which are only removed together with their jobs.

    Raises:
        ConfigurationError, PolicyRefused, InfrastructureFault: As `apply_retention`.
    """
    named = _url(state, environ)
    urls = {f"sqlite:///{file}" for file in (state / "fleet").glob("fleet*.db")} | (
        {named} if named else set()
    )
    found: frozenset[str] = frozenset()
    for url in urls if run_ids else ():
        async with _opened(url) as database:
            found |= await runs_of_jobs(database, run_ids)
    return found


def _url(state: Path, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the fleet's database; on a machine that only has workers, the environment names it."""
    file = noted_file(state)
    if file is not None and file.exists():
        return load_trusted(file, environ=environ).settings.engine.url or sqlite_url(state, file)
    if environ.get(DATABASE):
        return environ[DATABASE]
    return sqlite_url(state, file) if fleet_database(state / "fleet").exists() else None


async def _without_daemon(fleet: Fleet, state: Path, *, dry_run: bool) -> RetentionResult:
    from ringfence.engine import open_engine

    url = fleet.settings.engine.url or sqlite_url(state, fleet.file)
    async with _opened(url) as database, open_engine(url) as engine:
        records = open_record_store(fleet.settings.records, state)
        retention = Retention(database, engine, records=records)
        return await _rounds(
            lambda: retention.round(fleet.settings.retention, dry_run=dry_run), dry_run=dry_run
        )


async def _through_daemon(state: Path, *, dry_run: bool) -> RetentionResult:
    import anyio.to_thread

    client = FleetClient(socket_path(state), timeout_s=_TIMEOUT_S)

    async def apply() -> RetentionResult:
        answer = await anyio.to_thread.run_sync(lambda: client.post("forget", dry_run=dry_run))
        return RetentionResult(**answer)

    return await _rounds(apply, dry_run=dry_run)


async def _rounds(apply: Callable[[], Awaitable[RetentionResult]], *, dry_run: bool) -> RetentionResult:
    """Run rounds until there is nothing more to remove, and return their total."""
    total = RetentionResult(is_all=False)
    while not total.is_all:
        done = await apply()
        total.jobs += done.jobs
        total.runs += done.runs
        total.size_bytes += done.size_bytes
        total.is_all = done.is_all
        if dry_run:
            break
    return total


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    try:
        database.create_tables()
        yield database
    finally:
        database.close()

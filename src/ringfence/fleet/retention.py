"""What is kept of jobs that have ended, by age, count and size; all that is of one goes together.

Its records go first, then what the engine remembers, then its row: who is interrupted in between does the rest the next
time. Never removed are records that are not sealed, sessions that an agent or a waiting job goes on with, and jobs whose
hooks still go on.
"""

import os
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from sqlalchemy import Connection, delete

from ringfence.errors import RingfenceError
from ringfence.fleet.config.model import RetentionSettings
from ringfence.fleet.record_store import RecordStore
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.ended_jobs import (
    FIRST,
    EndedJob,
    agents_of_jobs,
    beyond_count,
    ended_before,
    runs_gone_on_with,
)
from ringfence.fleet.store.job import milliseconds
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import remove_spend_before_in
from ringfence.fleet.store.tables import DELIVERIES
from ringfence.job.garbage_collection import abandoned_sessions, clear_removed, remove_all, remove_runs
from ringfence.job.store import JobStore
from ringfence.journal import creation_of, is_alive, run_dir, runs_dir, summarize

if TYPE_CHECKING:
    from ringfence.engine.client import Engine

_PAGE = 200
_MOST = 2000
"""Jobs in one round."""
_LONGEST_CHAIN = 10_000
_KEPT_SUMS = timedelta(days=400)


@dataclass
class Forgotten:
    """What a round removed, or would."""

    jobs: list[str] = field(default_factory=list)
    runs: int = 0
    size_bytes: int = 0
    """Of their records."""
    is_all: bool = True
    """False: there is more, for the next round."""


class Retention:
    """Applies what is configured to the jobs of a database, and to their records on this machine.

    Args:
        database: Where the jobs are.
        engine: Where their workflows are.
        records: Where copies of their records are; None: nowhere.
    """

    def __init__(self, database: Database, engine: "Engine", *, records: RecordStore | None = None) -> None:
        self._records = records
        self._database = database
        self._engine = engine
        self._jobs = Jobs(database)
        self._one = anyio.Lock()

    async def round(
        self, settings: RetentionSettings, *, dry_run: bool = False, most: int = _MOST
    ) -> Forgotten:
        """Forget what need not be kept any more, the oldest first.

        Args:
            settings: What is kept.
            dry_run: Only say what would go.
            most: At most so many jobs.

        Raises:
            InfrastructureFault: The database cannot be reached, or a record cannot be removed; the rest is done later.
        """
        async with self._one:
            done = Forgotten()
            kept = await anyio.to_thread.run_sync(_chains, await runs_gone_on_with(self._database))
            async for page in self._pages(settings, done):
                free = [job for job in await self._free(page, kept) if job.id not in done.jobs]
                free, rest = free[: most - len(done.jobs)], free[most - len(done.jobs) :]
                await self._forget(free, done, dry_run=dry_run)
                if rest:
                    done.is_all = False
                    break
            if not dry_run:
                await self._database.write(_remove_old_sums)
                await clear_removed()
                if done.runs:
                    await remove_all(await anyio.to_thread.run_sync(abandoned_sessions, JobStore()))
            return done

    async def _pages(self, settings: RetentionSettings, done: Forgotten) -> AsyncIterator[list[EndedJob]]:
        """The jobs that are too old, too many, or whose records are too large."""
        size = 0 if settings.size is None else await anyio.to_thread.run_sync(_size, [runs_dir()])
        if settings.age is not None:
            before = int((time.time() - settings.age) * 1000)
            async for page in self._by_age(before):
                yield page
        if settings.count is not None:
            for agent in await agents_of_jobs(self._database):
                place = FIRST
                while page := await beyond_count(
                    self._database, agent, settings.count, after=place, limit=_PAGE
                ):
                    place = (page[-1].ended_ms, page[-1].id)
                    yield page
                    if len(page) < _PAGE:
                        break
        if settings.size is not None:
            async for page in self._by_size(size - settings.size, done):
                yield page

    async def _by_age(self, before: int | None) -> AsyncIterator[list[EndedJob]]:
        place = FIRST
        while page := await ended_before(self._database, before, after=place, limit=_PAGE):
            place = (page[-1].ended_ms, page[-1].id)
            yield page

    async def _by_size(self, over_bytes: int, done: Forgotten) -> AsyncIterator[list[EndedJob]]:
        if over_bytes <= done.size_bytes:
            return
        async for page in self._by_age(None):
            for job in page:
                yield [job] if job.run_ids else []
                if over_bytes <= done.size_bytes:
                    return

    async def _free(self, page: list[EndedJob], kept: frozenset[str]) -> list[EndedJob]:
        """Those of which nothing must be kept."""
        ids = [each for job in page for each in job.workflow_ids]
        statuses = await self._engine.list(ids=ids, limit=max(1, len(ids))) if ids else []
        busy = {status.id for status in statuses if not status.state.is_end}

        def act() -> list[EndedJob]:
            return [
                job
                for job in page
                if not busy & {*job.workflow_ids}
                and not kept & {*job.run_ids}
                and all(map(_is_sealed, job.run_ids))
            ]

        return await anyio.to_thread.run_sync(act)

    async def _forget(self, jobs: list[EndedJob], done: Forgotten, *, dry_run: bool) -> None:
        if not jobs:
            return
        paths = [path for job in jobs for path in map(run_dir, job.run_ids) if path.is_dir()]
        size = await anyio.to_thread.run_sync(_size, paths)
        if not dry_run:
            run_ids = [run for job in jobs for run in job.run_ids]
            await remove_runs([run_dir(run) for run in run_ids], JobStore(), by="retention")
            if self._records is not None:
                await anyio.to_thread.run_sync(self._records.remove, run_ids)
            await self._engine.forget([each for job in jobs for each in job.workflow_ids])
            await self._jobs.forget([job.id for job in jobs])
        done.jobs += [job.id for job in jobs]
        done.runs += len(paths)
        done.size_bytes += size


def _remove_old_sums(connection: Connection) -> None:
    """Remove sums of spend that no page shows any more, and webhook deliveries that are too old to be sent again."""
    before = datetime.now(UTC) - _KEPT_SUMS
    remove_spend_before_in(connection, before)
    connection.execute(delete(DELIVERIES).where(DELIVERIES.c.received_ms < milliseconds(before)))


def _is_sealed(run_id: str) -> bool:
    """Whether a record may go: it is sealed, or is not on this machine."""
    path = run_dir(run_id)
    return not path.is_dir() or (not is_alive(path) and summarize(path).is_sealed)


def _chains(run_ids: Iterable[str]) -> frozenset[str]:
    """These runs, and those that they went on with: a conversation is read from all of them."""
    found: set[str] = set()
    waiting = [*run_ids]
    while waiting and len(found) < _LONGEST_CHAIN:
        run_id = waiting.pop()
        if run_id in found:
            continue
        found.add(run_id)
        try:
            path = run_dir(run_id)
            created = creation_of(path) if path.is_dir() else None
        except RingfenceError:
            continue  # nothing can be gone on with from a record that cannot be read
        waiting += [created.continues] if created is not None and created.continues else []
    return frozenset(found)


def _size(paths: Iterable[Path]) -> int:
    """Bytes of all files below."""
    total = 0
    for path in paths:
        for folder, _, names in os.walk(path):
            for name in names:
                try:
                    total += os.lstat(f"{folder}/{name}").st_size
                except OSError:  # gone meanwhile
                    continue
    return total

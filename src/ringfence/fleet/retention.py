"""Removes ended jobs by age, count and size, each with all of its data.

A job's records are removed first, then its workflows in the engine, then its row, so that the next round completes an
interrupted one. Records that are not sealed, sessions that an agent or a waiting job resumes, and jobs whose hooks still
run are never removed.
"""

import os
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence.errors import RingfenceError
from ringfence.fleet.config.model import RetentionSettings
from ringfence.fleet.record_store import TRANSFER_LIMIT_S, RecordStore, call_store
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.deliveries import remove_old_deliveries
from ringfence.fleet.store.ended_jobs import (
    FIRST,
    EndedJob,
    agents_of_jobs,
    beyond_count,
    ended_before,
    runs_gone_on_with,
)
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.spend import remove_spend_before_in
from ringfence.job.garbage_collection import abandoned_sessions, clear_removed, remove_all, remove_runs
from ringfence.job.store import JobStore
from ringfence.journal import creation_of, is_alive, run_dir, runs_dir, summarize

if TYPE_CHECKING:
    from ringfence.engine.client import Engine

_PAGE = 200
_MAX_JOBS = 2000
"""The most jobs that one round removes."""
_MAX_CHAIN = 10_000
_TOTALS_AGE = timedelta(days=400)
"""Older sums of spend are on no page."""


@dataclass
class RetentionResult:
    """What a round removed, or would remove."""

    jobs: list[str] = field(default_factory=list)
    runs: int = 0
    size_bytes: int = 0
    """The size of their records."""
    is_all: bool = True
    """False: the next round has more to remove."""


class Retention:
    """Applies the retention settings to the jobs of a database, and to their records on this machine.

    Args:
        database: The database that holds the jobs.
        engine: The engine that holds their workflows.
        records: The store of copies of their records; None if there is none.
    """

    def __init__(self, database: Database, engine: "Engine", *, records: RecordStore | None = None) -> None:
        self._records = records
        self._database = database
        self._engine = engine
        self._jobs = Jobs(database)
        self._lock = anyio.Lock()

    async def round(
        self, settings: RetentionSettings, *, dry_run: bool = False, most: int = _MAX_JOBS
    ) -> RetentionResult:
        """Remove jobs that need not be kept any more, the oldest first.

        Args:
            settings: The retention settings.
            dry_run: Only report what would be removed.
            most: The most jobs to remove.

        Raises:
            InfrastructureFault: The database cannot be reached, or a record cannot be removed; the rest is done later.
        """
        async with self._lock:
            done = RetentionResult()
            kept = await anyio.to_thread.run_sync(_with_resumed_runs, await runs_gone_on_with(self._database))
            async for page in self._pages(settings, done):
                removable = [job for job in await self._removable(page, kept) if job.id not in done.jobs]
                removable, rest = removable[: most - len(done.jobs)], removable[most - len(done.jobs) :]
                await self._remove(removable, done, dry_run=dry_run)
                if rest:
                    done.is_all = False
                    break
            if not dry_run:
                now = datetime.now(UTC)
                await self._database.write(partial(remove_spend_before_in, before=now - _TOTALS_AGE))
                await remove_old_deliveries(self._database, now)
                await clear_removed()
                if done.runs:
                    await remove_all(await anyio.to_thread.run_sync(abandoned_sessions, JobStore()))
            return done

    async def _pages(
        self, settings: RetentionSettings, done: RetentionResult
    ) -> AsyncIterator[list[EndedJob]]:
        """Yield the jobs that are too old, too many, or whose records are too large."""
        size = 0 if settings.size is None else await anyio.to_thread.run_sync(_total_bytes, [runs_dir()])
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

    async def _by_size(self, over_bytes: int, done: RetentionResult) -> AsyncIterator[list[EndedJob]]:
        if over_bytes <= done.size_bytes:
            return
        async for page in self._by_age(None):
            for job in page:
                yield [job] if job.run_ids else []
                if over_bytes <= done.size_bytes:
                    return

    async def _removable(self, page: list[EndedJob], kept: frozenset[str]) -> list[EndedJob]:
        """Return the jobs that may be removed."""
        ids = [each for job in page for each in job.workflow_ids]
        statuses = await self._engine.list(ids=ids, limit=max(1, len(ids))) if ids else []
        busy = {status.id for status in statuses if not status.state.is_end}

        def select() -> list[EndedJob]:
            return [
                job
                for job in page
                if not busy & {*job.workflow_ids}
                and not kept & {*job.run_ids}
                and all(map(_is_sealed, job.run_ids))
            ]

        return await anyio.to_thread.run_sync(select)

    async def _remove(self, jobs: list[EndedJob], done: RetentionResult, *, dry_run: bool) -> None:
        if not jobs:
            return
        paths = [path for job in jobs for path in map(run_dir, job.run_ids) if path.is_dir()]
        size = await anyio.to_thread.run_sync(_total_bytes, paths)
        if not dry_run:
            run_ids = [run for job in jobs for run in job.run_ids]
            await remove_runs([run_dir(run) for run in run_ids], JobStore(), by="retention")
            if self._records is not None:
                await call_store(partial(self._records.remove, run_ids), limit_s=TRANSFER_LIMIT_S)
            await self._engine.remove([each for job in jobs for each in job.workflow_ids])
            await self._jobs.remove_ended([job.id for job in jobs])
        done.jobs += [job.id for job in jobs]
        done.runs += len(paths)
        done.size_bytes += size


def _is_sealed(run_id: str) -> bool:
    """Whether a record may be removed: it is sealed, or is not on this machine."""
    path = run_dir(run_id)
    return not path.is_dir() or (not is_alive(path) and summarize(path).is_sealed)


def _with_resumed_runs(run_ids: Iterable[str]) -> frozenset[str]:
    """Return these runs and those that they resumed, since a conversation is read from all of them."""
    found: set[str] = set()
    waiting = [*run_ids]
    while waiting and len(found) < _MAX_CHAIN:
        run_id = waiting.pop()
        if run_id in found:
            continue
        found.add(run_id)
        try:
            path = run_dir(run_id)
            created = creation_of(path) if path.is_dir() else None
        except RingfenceError:
            continue  # a run whose record cannot be read cannot be resumed
        waiting += [created.continues] if created is not None and created.continues else []
    return frozenset(found)


def _total_bytes(paths: Iterable[Path]) -> int:
    """Return the size of all files below some paths, in bytes."""
    total = 0
    for path in paths:
        for folder, _, names in os.walk(path):
            for name in names:
                try:
                    total += os.lstat(f"{folder}/{name}").st_size
                except OSError:  # removed in the meantime
                    continue
    return total

"""Lists the jobs that have ended, oldest first, for retention."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, select, tuple_

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import AGENTS, ATTEMPTS, JOBS
from ringfence.job.state import JobState


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended, with the workflows and runs that belong to it."""

    id: str
    ended_ms: int
    workflow_ids: tuple[str, ...]
    run_ids: tuple[str, ...]


Place = tuple[int, str]
"""A position in the list: the end time and the id of the last job that was examined."""
FIRST: Place = (-1, "")
_AT_ONCE = 500


async def ended_before(database: Database, ms: int | None, *, after: Place, limit: int) -> list[EndedJob]:
    """Jobs that ended before a moment (None: at any time), oldest first."""
    which = [] if ms is None else [JOBS.c.ended_ms < ms]
    return await database.read(lambda connection: _ended(connection, which, after, limit))


async def beyond_count(
    database: Database, agent: str, count: int, *, after: Place, limit: int
) -> list[EndedJob]:
    """An agent's ended jobs except the newest `count`, oldest first."""

    def act(connection: Connection) -> list[EndedJob]:
        mine = (JOBS.c.agent == agent, JOBS.c.ended_ms.is_not(None))
        newest_first = (
            select(JOBS.c.ended_ms, JOBS.c.id)
            .where(*mine)
            .order_by(JOBS.c.ended_ms.desc(), JOBS.c.id.desc())
            .offset(count)
            .limit(1)
        )
        bound = connection.execute(newest_first).first()
        if bound is None:
            return []
        return _ended(connection, [*mine, tuple_(JOBS.c.ended_ms, JOBS.c.id) <= tuple(bound)], after, limit)

    return await database.read(act)


async def agents_of_jobs(database: Database) -> list[str]:
    """The names of all agents that have jobs."""
    query = select(JOBS.c.agent).group_by(JOBS.c.agent).order_by(JOBS.c.agent)
    return await database.read(lambda connection: [*connection.execute(query).scalars()])


async def runs_gone_on_with(database: Database) -> list[str]:
    """Runs whose sessions may be resumed by an agent, or by a job that has not ended."""

    def act(connection: Connection) -> list[str]:
        live = [state.value for state in JobState if not state.is_terminal]
        of_agents = select(AGENTS.c.session_run_id).where(AGENTS.c.session_run_id.is_not(None))
        of_jobs = select(JOBS.c.session_id).where(JOBS.c.session_id.is_not(None), JOBS.c.state.in_(live))
        asked = select(JOBS.c.run_id).where(JOBS.c.run_id.is_not(None), JOBS.c.state.in_(live))
        return [run for query in (of_agents, of_jobs, asked) for run in connection.execute(query).scalars()]

    return await database.read(act)


async def runs_of_jobs(database: Database, run_ids: Sequence[str]) -> frozenset[str]:
    """The subset of the runs that belong to jobs in the database."""

    def act(connection: Connection) -> frozenset[str]:
        found: set[str] = set()
        for start in range(0, len(run_ids), _AT_ONCE):
            some = run_ids[start : start + _AT_ONCE]
            query = select(ATTEMPTS.c.run_id).where(ATTEMPTS.c.run_id.in_(some))
            found.update(connection.execute(query).scalars())
        return frozenset(found)

    return await database.read(act)


def _ended(
    connection: Connection, which: Sequence[ColumnElement[bool]], after: Place, limit: int
) -> list[EndedJob]:
    """Ended jobs whose successors exist; for others, removal would lose the jobs that are to follow them."""
    query = (
        select(JOBS.c.id, JOBS.c.ended_ms, JOBS.c.admissions)
        .where(
            *which,
            JOBS.c.ended_ms.is_not(None),
            JOBS.c.is_followed.is_(True),
            tuple_(JOBS.c.ended_ms, JOBS.c.id) > after,
        )
        .order_by(JOBS.c.ended_ms, JOBS.c.id)
        .limit(limit)
    )
    rows = connection.execute(query).all()
    runs: dict[str, list[str]] = {}
    ids = [row.id for row in rows]
    for job, run in connection.execute(
        select(ATTEMPTS.c.job, ATTEMPTS.c.run_id).where(ATTEMPTS.c.job.in_(ids))
    ):
        runs.setdefault(job, []).append(run)
    return [
        EndedJob(
            row.id,
            row.ended_ms,
            tuple(f"{row.id}.{number}" for number in range(1, row.admissions + 1)),
            tuple(runs.get(row.id, ())),
        )
        for row in rows
    ]

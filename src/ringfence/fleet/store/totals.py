"""Computes totals over all jobs, including removed ones, so that they never decrease."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, insert, select, true, update

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import milliseconds
from ringfence.fleet.store.tables import ATTEMPTS, JOBS, TOTALS
from ringfence.job.state import JobState

START_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0)
DURATION_BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
MetricTotals = dict[tuple[str, str], float]
"""Totals by agent and name: `ended/STATE`, `admissions`, `attempts`, `retries`, `tokens`, `cost_usd`; and for the
histograms `start` and `duration`: `NAME/BOUND` (how many took no longer), `NAME/sum` and `NAME/count`."""


@dataclass(frozen=True)
class Census:
    """The metrics of all jobs at one moment."""

    states: Mapping[tuple[str, JobState], int]
    """The number of jobs by agent and state."""
    totals: MetricTotals
    oldest_s: Mapping[str, float]
    """For how many seconds the longest waiting job of each agent could have started."""


async def census(database: Database) -> Census:
    """Count all jobs.

    Raises:
        InfrastructureFault: The database cannot be reached.
    """

    def act(connection: Connection) -> Census:
        return Census(_states(connection), _all_totals(connection), _oldest(connection))

    return await database.read(act)


def keep_totals(connection: Connection, ids: list[str]) -> None:
    """Add jobs that are about to be removed to the stored totals, within the transaction that removes them."""
    for (agent, metric), value in _totals(connection, JOBS.c.id.in_(ids)).items():
        if not value:
            continue
        mine = (TOTALS.c.agent == agent, TOTALS.c.figure == metric)
        done = connection.execute(update(TOTALS).where(*mine).values(value=TOTALS.c.value + value))
        if not done.rowcount:
            connection.execute(insert(TOTALS).values(agent=agent, figure=metric, value=value))


def _states(connection: Connection) -> dict[tuple[str, JobState], int]:
    known = JOBS.c.state.in_([state.value for state in JobState])  # a newer version may have added others
    query = select(JOBS.c.agent, JOBS.c.state, func.count()).where(known).group_by(JOBS.c.agent, JOBS.c.state)
    return {(agent, JobState(state)): count for agent, state, count in connection.execute(query)}


def _oldest(connection: Connection) -> dict[str, float]:
    now = milliseconds(datetime.now(UTC))
    since = func.min(
        case((JOBS.c.not_before_ms > JOBS.c.created_ms, JOBS.c.not_before_ms), else_=JOBS.c.created_ms)
    )
    query = (
        select(JOBS.c.agent, since)
        .where(JOBS.c.state == JobState.QUEUED, JOBS.c.not_before_ms <= now)
        .group_by(JOBS.c.agent)
    )
    return {agent: max(0.0, (now - began) / 1000) for agent, began in connection.execute(query)}


def _all_totals(connection: Connection) -> MetricTotals:
    found = _totals(connection, true())
    for agent, metric, value in connection.execute(select(TOTALS)):
        found[agent, metric] = found.get((agent, metric), 0.0) + value
    return found


def _totals(connection: Connection, which: ColumnElement[bool]) -> MetricTotals:
    sums = select(
        JOBS.c.agent,
        func.sum(JOBS.c.admissions).label("admissions"),
        func.sum(JOBS.c.attempt).label("attempts"),
        func.sum(case((JOBS.c.attempt > 1, JOBS.c.attempt - 1), else_=0)).label("retries"),
        func.sum(JOBS.c.tokens).label("tokens"),
        func.sum(JOBS.c.cost_usd).label("cost_usd"),
    ).where(which)
    ended = (
        select(JOBS.c.agent, JOBS.c.state, func.count())
        .where(which, JOBS.c.ended_ms.is_not(None))
        .group_by(JOBS.c.agent, JOBS.c.state)
    )
    found = _by_agent(connection, sums.group_by(JOBS.c.agent))
    found |= {(agent, f"ended/{state}"): float(count) for agent, state, count in connection.execute(ended)}
    return found | _by_agent(connection, _times(which))


def _times(which: ColumnElement[bool]) -> Select[tuple[object, ...]]:
    """Histograms of the time from a job's creation to its first attempt, and from there to its end."""
    start = ATTEMPTS.c.started_ms - JOBS.c.created_ms
    duration = JOBS.c.ended_ms - ATTEMPTS.c.started_ms
    return (
        select(
            JOBS.c.agent,
            *_histogram("start", start, START_BOUNDS_S),
            *_histogram("duration", duration, DURATION_BOUNDS_S),
        )
        .join(ATTEMPTS, and_(ATTEMPTS.c.job == JOBS.c.id, ATTEMPTS.c.number == 1))
        .where(which)
        .group_by(JOBS.c.agent)
    )


def _histogram(
    name: str, took_ms: ColumnElement[int], bounds_s: tuple[float, ...]
) -> list[ColumnElement[Any]]:
    within = [
        func.count(case((took_ms <= int(bound * 1000), 1))).label(f"{name}/{bound:g}") for bound in bounds_s
    ]
    return [
        *within,
        func.count(took_ms).label(f"{name}/count"),
        (func.sum(took_ms) / 1000.0).label(f"{name}/sum"),
    ]


def _by_agent(connection: Connection, query: Select[tuple[object, ...]]) -> MetricTotals:
    return {
        (str(row["agent"]), metric): float(value or 0)
        for row in connection.execute(query).mappings()
        for metric, value in row.items()
        if metric != "agent"
    }

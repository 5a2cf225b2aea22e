"""Caches the counts of jobs by agent and state, and each agent's last job, until a job changes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import anyio
from sqlalchemy import Connection, func, select

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job, milliseconds
from ringfence.fleet.store.jobs import readable
from ringfence.fleet.store.spend import Usage, spend_since_in
from ringfence.fleet.store.tables import JOBS
from ringfence.job.state import JobState

_UNVERIFIED = (JobState.UNVERIFIED, JobState.ENDED)
_FRESH_S = 1.0
"""How long counts are used if no job changes: the removal of jobs is seen only after this time."""
_STATES = frozenset(state.value for state in JobState)


@dataclass(frozen=True)
class FleetCounts:
    """The jobs of a fleet at one moment."""

    states: Mapping[str, Mapping[JobState, int]]
    """The number of jobs by agent and state."""
    unreadable: int
    """The number of jobs in states that this version does not know."""
    today: Mapping[str, Mapping[JobState, int]]
    """The number of jobs that ended today, by agent and end state."""
    last_jobs: Mapping[str, Job]
    """The newest job of each agent."""
    spend: Mapping[str, Usage]
    """What each agent spent today."""

    def total(self, *states: JobState) -> int:
        """The number of jobs of all agents in any of the given states."""
        return sum(counts.get(state, 0) for counts in self.states.values() for state in states)

    def succeeded_today(self, agent: str | None = None) -> int:
        """The number of jobs of an agent, or of all agents, that ended today and passed their check."""
        return self._today(agent, lambda state: state is JobState.SUCCEEDED)

    def unverified_today(self, agent: str | None = None) -> int:
        """The number of jobs of an agent, or of all agents, that ended today without a failure and without a check."""
        return self._today(agent, lambda state: state in _UNVERIFIED)

    def failed_today(self, agent: str | None = None) -> int:
        """The number of jobs of an agent, or of all, that ended today in another state, except cancelled ones."""
        others = (JobState.SUCCEEDED, *_UNVERIFIED, JobState.CANCELLED)
        return self._today(agent, lambda state: state not in others)

    def _today(self, agent: str | None, is_counted: Callable[[JobState], bool]) -> int:
        chosen = self.today.values() if agent is None else [self.today.get(agent, {})]
        return sum(count for counts in chosen for state, count in counts.items() if is_counted(state))


class CountsCache:
    """Reads the counts of a database again only when they have changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = anyio.Lock()
        self._key: tuple[int, datetime] | None = None
        self._counts: FleetCounts | None = None
        self._fresh_until = float("-inf")

    async def get(self, day_began: datetime) -> FleetCounts:
        """The current counts.

        Args:
            day_began: The start of today in the fleet's time zone.

        Raises:
            InfrastructureFault: The database cannot be read.
        """
        async with self._lock:
            last_change = await self._database.read(_last_change)
            key = (last_change, day_began)
            if self._counts is None or key != self._key or time.monotonic() > self._fresh_until:
                self._counts = await self._database.read(lambda connection: _count(connection, day_began))
                self._key, self._fresh_until = key, time.monotonic() + _FRESH_S
            return self._counts


def _last_change(connection: Connection) -> int:
    return connection.execute(select(func.max(JOBS.c.changed_ms))).scalar() or 0


def _count(connection: Connection, day_began: datetime) -> FleetCounts:
    states: dict[str, dict[JobState, int]] = {}
    unreadable = 0
    by_state = select(JOBS.c.agent, JOBS.c.state, func.count()).group_by(JOBS.c.agent, JOBS.c.state)
    for agent, state, count in connection.execute(by_state):
        if state in _STATES:
            states.setdefault(agent, {})[JobState(state)] = count
        else:
            unreadable += count
    return FleetCounts(
        states,
        unreadable,
        _count_ends(connection, day_began),
        {agent: job for agent in states if (job := _last_job(connection, agent)) is not None},
        spend_since_in(connection, day_began),
    )


def _count_ends(connection: Connection, day_began: datetime) -> dict[str, dict[JobState, int]]:
    """Count the jobs that ended today. Grouping by an expression keeps SQLite off the index by agent and state."""
    agent = JOBS.c.agent.concat("")
    query = (
        select(agent, JOBS.c.state, func.count())
        .where(JOBS.c.ended_ms >= milliseconds(day_began))
        .group_by(agent, JOBS.c.state)
    )
    found: dict[str, dict[JobState, int]] = {}
    for name, state, count in connection.execute(query):
        if state in _STATES:
            found.setdefault(name, {})[JobState(state)] = count
    return found


def _last_job(connection: Connection, agent: str) -> Job | None:
    query = select(JOBS).where(JOBS.c.agent == agent).order_by(JOBS.c.id.desc()).limit(1)
    return next(iter(readable(connection.execute(query).mappings())), None)

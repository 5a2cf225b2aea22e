"""Which queued jobs may start: by concurrency, rate and budget, whatever triggered them.

Only the daemon admits. What a job may spend is set aside for it at admission, so that jobs that run side by side cannot
spend more than a budget together.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, and_, func, or_, select, update

from ringfence.config.units import format_duration
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import ACTIVE, Job, milliseconds
from ringfence.fleet.store.jobs import get_in, readable
from ringfence.fleet.store.tables import AGENTS, JOBS
from ringfence.job.state import JobState

_AHEAD = 16
"""Jobs that are read at once: to ask for each takes longer than to leave some."""
_FAR_MS = 24 * 3600 * 1000
"""What comes later than this need not be known yet."""


@dataclass(frozen=True)
class Budget:
    """What may be spent on a day; None: no bound."""

    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True)
class Rate:
    """At most `count` starts in any `window_s` seconds."""

    count: int
    window_s: float


@dataclass(frozen=True)
class AgentBounds:
    """Bounds of one agent."""

    concurrency: int = 1
    rate: Rate | None = None
    job: Budget = Budget()
    """What one job may spend."""
    day: Budget = Budget()


@dataclass(frozen=True)
class Bounds:
    """Bounds of the fleet."""

    agents: Mapping[str, AgentBounds]
    """Of every agent there is; jobs of others wait."""
    concurrency: int = 8
    """Jobs at once."""
    day: Budget = Budget()
    """Of all agents together."""


@dataclass
class _Blocked:
    """What cannot start now, found out on the way; with the reason that is told."""

    agents: dict[str, str] = field(default_factory=dict)
    workspaces: dict[str, str] = field(default_factory=dict)
    everything: str = ""


@dataclass(frozen=True)
class Admitted:
    """What came of it."""

    jobs: list[Job]
    waiting: dict[str, str]
    """Why the jobs of an agent or workspace that are still queued wait, by its name."""
    next_at: datetime | None
    """When to look again, if nothing ends before."""
    active: int
    """How many run now, these among them."""


class Admission:
    """Admits queued jobs of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def admit(self, bounds: Bounds, *, now: datetime, day_began: datetime) -> Admitted:
        """Move every job that may start now from queued to starting, the most urgent and oldest first.

        Args:
            bounds: What is allowed.
            now: The time.
            day_began: Since when budgets of a day count, in the time zone whose day it is.
        """
        return await self._database.write(
            lambda connection: _Round(connection, bounds, now=now, day_began=day_began).admitted()
        )


class _Round:
    """One look at the queue, in one transaction."""

    def __init__(self, connection: Connection, bounds: Bounds, *, now: datetime, day_began: datetime) -> None:
        self._connection = connection
        self._bounds = bounds
        self._now = now
        self._day_ms = milliseconds(day_began)
        # By the clock on the wall: where it changes, a day has 23 or 25 hours.
        self._tomorrow = (day_began + timedelta(days=1)).astimezone(UTC)
        self._blocked = _Blocked()
        self._next: list[datetime] = []
        self._ahead: deque[Job] = deque()
        self._is_all = False
        """Whether none comes behind those that were found."""
        self._unreadable: set[str] = set()
        """Ids of jobs that this version cannot read: they keep no other from starting."""
        active = _active(connection)
        self._by_agent = Counter(agent for agent, _ in active)
        for _, workspace in active:
            self._hold_workspace(workspace)

    def admitted(self) -> Admitted:
        self._block_disabled()
        self._block_full()
        jobs = []
        while not self._blocked.everything:
            job = self._first()
            if job is None:
                break
            allowed = self._allowed(job)
            if allowed is not None:
                jobs.append(self._start(job, allowed))
        waiting = {**self._blocked.agents, **self._blocked.workspaces}
        if self._blocked.everything:
            waiting[""] = self._blocked.everything
        return Admitted(jobs, waiting, self._next_at(), sum(self._by_agent.values()))

    def _block_disabled(self) -> None:
        disabled = select(AGENTS.c.name).where(AGENTS.c.is_enabled.is_(False))
        for name in self._connection.execute(disabled).scalars():
            self._blocked.agents[name] = "the agent is disabled"

    def _block_full(self) -> None:
        for name, bounds in self._bounds.agents.items():
            self._check_agent(name, bounds)
        self._check_all()

    def _check_agent(self, name: str, bounds: AgentBounds) -> None:
        if self._by_agent[name] >= bounds.concurrency:
            self._blocked.agents[name] = f"{bounds.concurrency} of its jobs at once is the limit"

    def _hold_workspace(self, workspace: str) -> None:
        if workspace:
            self._blocked.workspaces[workspace] = "another job has the workspace"

    def _check_all(self) -> None:
        if sum(self._by_agent.values()) >= self._bounds.concurrency:
            self._blocked.everything = f"{self._bounds.concurrency} jobs at once is the limit of the fleet"

    def _first(self) -> Job | None:
        """The most urgent job that nothing known so far holds back."""
        while True:
            while self._ahead:
                job = self._ahead.popleft()
                # What holds back only grows while we look: what was found stays in order.
                if job.agent not in self._blocked.agents and job.workspace not in self._blocked.workspaces:
                    return job
            if self._is_all:
                return None
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Find the jobs that come next."""
        known = set(self._bounds.agents) - set(self._blocked.agents)
        query = (
            select(JOBS)
            .where(
                JOBS.c.state == JobState.QUEUED,
                JOBS.c.not_before_ms <= milliseconds(self._now),
                JOBS.c.agent.in_(sorted(known)),
                JOBS.c.workspace.not_in(sorted(self._blocked.workspaces)),
                JOBS.c.id.not_in(sorted(self._unreadable)),
            )
            .order_by(JOBS.c.priority.desc(), JOBS.c.id)
        )
        rows = self._connection.execute(query.limit(_AHEAD)).mappings().all()
        self._ahead.extend(readable(rows))
        self._unreadable |= {row["id"] for row in rows} - {job.id for job in self._ahead}
        self._is_all = len(rows) < _AHEAD

    def _allowed(self, job: Job) -> Budget | None:
        """What a job may spend; None if it may not start, which is noted for its whole agent."""
        bounds = self._bounds.agents[job.agent]
        if bounds.rate is not None and not self._within(job.agent, bounds.rate):
            return None
        allowed = _without(bounds.job, tokens=job.tokens, cost_usd=job.cost_usd)
        for name, budget in ((job.agent, bounds.day), (None, self._bounds.day)):
            left = self._left(name, budget)
            if not _has_any(left):
                self._used_up(name, _spent_bounds(budget, left))
                return None
            allowed = _smaller(allowed, left)
        return allowed

    def _within(self, agent: str, rate: Rate) -> bool:
        since = milliseconds(self._now - timedelta(seconds=rate.window_s))
        starts = (
            select(JOBS.c.started_ms)
            .where(JOBS.c.agent == agent, JOBS.c.started_ms > since)
            .order_by(JOBS.c.started_ms.desc())
            .limit(rate.count)
        )
        found = self._connection.execute(starts).scalars().all()
        if len(found) < rate.count:
            return True
        self._blocked.agents[agent] = (
            f"{rate.count} start{'' if rate.count == 1 else 's'} in {format_duration(rate.window_s)} is the limit"
        )
        self._next.append(self._now + timedelta(milliseconds=found[-1] - since))
        return False

    def _left(self, agent: str | None, budget: Budget) -> Budget:
        """What is left of a day's budget, with what is set aside for running jobs taken off."""
        if budget == Budget():
            return budget
        is_active = JOBS.c.state.in_([state.value for state in ACTIVE])
        is_tried_again = and_(JOBS.c.state == JobState.QUEUED, JOBS.c.tokens > 0)
        sums = select(
            func.coalesce(func.sum(func.coalesce(JOBS.c.reserved_tokens, JOBS.c.tokens)), 0),
            func.coalesce(func.sum(func.coalesce(JOBS.c.reserved_usd, JOBS.c.cost_usd)), 0.0),
        ).where(or_(is_active, is_tried_again, JOBS.c.ended_ms >= self._day_ms))
        if agent is not None:
            sums = sums.where(JOBS.c.agent == agent)
        tokens, cost = self._connection.execute(sums).one()
        return _without(budget, tokens=int(tokens), cost_usd=float(cost))

    def _used_up(self, agent: str | None, budget: str) -> None:
        self._next.append(self._tomorrow)
        why = f"is used up, or set aside for running jobs; the next day begins {self._tomorrow:%Y-%m-%d %H:%M} UTC"
        if agent is None:
            self._blocked.everything = f"the fleet's budget for the day ({budget}) {why}"
        else:
            self._blocked.agents[agent] = f"its budget for the day ({budget}) {why}"

    def _start(self, job: Job, allowed: Budget) -> Job:
        self._connection.execute(
            update(JOBS)
            .where(JOBS.c.id == job.id, JOBS.c.state == JobState.QUEUED)
            .values(
                state=JobState.STARTING,
                admissions=JOBS.c.admissions + 1,
                started_ms=milliseconds(self._now),
                reserved_tokens=allowed.tokens,
                reserved_usd=allowed.cost_usd,
            )
        )
        self._by_agent[job.agent] += 1
        self._check_agent(job.agent, self._bounds.agents[job.agent])
        self._hold_workspace(job.workspace)
        self._check_all()
        started = get_in(self._connection, job.id)
        assert started is not None
        return started

    def _next_at(self) -> datetime | None:
        now = milliseconds(self._now)
        later = select(func.min(JOBS.c.not_before_ms)).where(
            JOBS.c.state == JobState.QUEUED, JOBS.c.not_before_ms > now, JOBS.c.not_before_ms < now + _FAR_MS
        )
        due = self._connection.execute(later).scalar()
        known = [*self._next]
        if due is not None:
            known.append(self._now + timedelta(milliseconds=int(due) - now))
        return min(known, default=None)


def _active(connection: Connection) -> Sequence[tuple[str, str]]:
    """Agent and workspace of each job that runs now."""
    query = select(JOBS.c.agent, JOBS.c.workspace).where(JOBS.c.state.in_([state.value for state in ACTIVE]))
    return [(row.agent, row.workspace) for row in connection.execute(query)]


def _without(budget: Budget, *, tokens: int, cost_usd: float) -> Budget:
    return Budget(
        None if budget.tokens is None else max(0, budget.tokens - tokens),
        None if budget.cost_usd is None else max(0.0, budget.cost_usd - cost_usd),
    )


def _has_any(left: Budget) -> bool:
    return left.tokens != 0 and left.cost_usd != 0.0


def _spent_bounds(budget: Budget, left: Budget) -> str:
    """Those of a budget of which nothing is left."""
    tokens = [f"{budget.tokens} tokens"] if left.tokens == 0 else []
    return ", ".join([*tokens, *([f"${budget.cost_usd:.2f}"] if left.cost_usd == 0.0 else [])])


def _smaller(one: Budget, other: Budget) -> Budget:
    tokens = [each for each in (one.tokens, other.tokens) if each is not None]
    costs = [each for each in (one.cost_usd, other.cost_usd) if each is not None]
    return Budget(min(tokens, default=None), min(costs, default=None))

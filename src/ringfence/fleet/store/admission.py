"""Admits queued jobs within the limits on concurrency, rate and budget, whatever triggered them.

Only the daemon admits jobs. What a job may spend is reserved at its admission, so that concurrent jobs cannot exceed a
budget together. Spend is read from running sums (`ringfence.fleet.store.spend`), not from the history.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, func, select, update

from ringfence.config.units import format_duration
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.grants import agent_grants_in, granted_limits_in
from ringfence.fleet.store.job import ACTIVE, Job, milliseconds
from ringfence.fleet.store.jobs import get_in, readable
from ringfence.fleet.store.spend import Usage, reserved_in, spend_since_in
from ringfence.fleet.store.tables import AGENTS, JOBS
from ringfence.fleet.store.workers import labels_in, workers_in
from ringfence.job.state import JobState

_AHEAD = 16
"""How many jobs of an agent are read at once: reading each alone takes longer than reading some without need."""
_AGENTS_AT_ONCE = 500
_MAX_SKIPPED = 500
"""How many jobs of an agent one pass skips because they wait for a workspace or a label; it looks at no more."""
_FAR_MS = 24 * 3600 * 1000
"""Due times further ahead than this are ignored for now."""


@dataclass(frozen=True)
class Budget:
    """What may be spent in a day, or by one job; None: unlimited."""

    tokens: int | None = None
    cost_usd: float | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing may be spent."""
        return self.tokens == 0 or self.cost_usd == 0.0


@dataclass(frozen=True)
class Rate:
    """At most `count` starts in any `window_s` seconds."""

    count: int
    window_s: float


@dataclass(frozen=True)
class AgentBounds:
    """The limits of one agent."""

    concurrency: int = 1
    rate: Rate | None = None
    job: Budget = Budget()
    """What one job may spend."""
    day: Budget = Budget()


@dataclass(frozen=True)
class Bounds:
    """The limits of the fleet."""

    agents: Mapping[str, AgentBounds]
    """The limits of every existing agent; jobs of other agents wait."""
    concurrency: int = 8
    """The number of jobs at once."""
    day: Budget = Budget()
    """The budget for a day of all agents together."""
    needs_workers: bool = False
    """Whether a job starts only if a live worker with free capacity and the label of the job can take it."""


@dataclass
class WaitReasons:
    """Why queued jobs do not start: the reasons of one pass over the queue."""

    agents: dict[str, str] = field(default_factory=dict)
    """By the agent's name."""
    workspaces: dict[str, str] = field(default_factory=dict)
    """By the workspace that another job has."""
    labels: dict[str, str] = field(default_factory=dict)
    """By the label for which no worker takes jobs."""
    fleet: str | None = None
    """Why no job of the fleet starts."""

    def of_place(self, workspace: str, label: str) -> str | None:
        """Why a job with this workspace and label does not start, although its agent and the fleet may."""
        return self.workspaces.get(workspace) or self.labels.get(label)


@dataclass(frozen=True)
class Admitted:
    """The result of a pass over the queue."""

    jobs: list[Job]
    waiting: WaitReasons
    """Why jobs are still queued."""
    next_at: datetime | None
    """When to try again, unless a job ends earlier."""
    active: int
    """The number of active jobs, including those just admitted."""
    lacks_workers: bool = False
    """Whether jobs wait for a worker, which may register, or take jobs again, at any moment."""


class Admission:
    """Admits queued jobs of a database.

    Args:
        database: The database of the jobs.
        enqueue: Called for each admitted job in the admitting transaction; its writes are committed together with the
            job's new state. None: nothing else is written.
    """

    def __init__(
        self, database: Database, *, enqueue: Callable[[Connection, Job], None] | None = None
    ) -> None:
        self._database = database
        self._enqueue = enqueue

    async def admit(self, bounds: Bounds, *, now: datetime, day_began: datetime) -> Admitted:
        """Move every job that may start now from queued to starting, the most urgent and oldest first.

        Args:
            bounds: The limits.
            now: The current time.
            day_began: The start of the day for budgets, in the time zone of that day.
        """

        def act(connection: Connection) -> Admitted:
            admitted = _Pass(connection, bounds, now=now, day_began=day_began).admitted()
            if self._enqueue is not None:
                for job in admitted.jobs:
                    self._enqueue(connection, job)
            return admitted

        return await self._database.write(act)


class _Pass:
    """One pass over the queue, in one transaction."""

    def __init__(self, connection: Connection, bounds: Bounds, *, now: datetime, day_began: datetime) -> None:
        self._connection = connection
        self._bounds = bounds
        self._now = now
        self._day_began = day_began
        # In local time: on the days when the clocks change, a day has 23 or 25 hours.
        self._tomorrow = (day_began + timedelta(days=1)).astimezone(UTC)
        self._blocked = WaitReasons()
        self._is_full = False
        self._next: list[datetime] = []
        self._queues: dict[str, _AgentQueue] = {}
        self._grants = agent_grants_in(connection)
        active = _active(connection)
        self._by_agent = Counter(agent for agent, _, _ in active)
        for _, workspace, _ in active:
            self._hold_workspace(workspace)
        self._capacity = _Capacity.of(connection, active) if bounds.needs_workers else None

    def admitted(self) -> Admitted:
        self._block_disabled()
        self._block_full()
        self._block_spent()
        self._find_queues()
        jobs = []
        while not self._blocked.fleet:
            job = self._first()
            if job is None:
                break
            allowed = self._allowed(job)
            if allowed is not None:
                jobs.append(self._start(job, allowed))
        return Admitted(
            jobs,
            self._blocked,
            self._next_at(),
            sum(self._by_agent.values()),
            lacks_workers=bool(self._queues) and (self._is_full or bool(self._blocked.labels)),
        )

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
            self._blocked.agents[name] = f"its limit of {_jobs(bounds.concurrency)} is reached"

    def _hold_workspace(self, workspace: str) -> None:
        if workspace:
            self._blocked.workspaces[workspace] = "another job has the workspace"

    def _check_all(self) -> None:
        if sum(self._by_agent.values()) >= self._bounds.concurrency:
            self._blocked.fleet = f"the fleet's limit of {_jobs(self._bounds.concurrency)} is reached"
        elif self._capacity is not None and self._capacity.free <= 0:
            self._blocked.fleet, self._is_full = self._capacity.why_full, True

    def _block_spent(self) -> None:
        """Block the agents, or the whole fleet, whose budget for the day is used up."""
        budgets = {name: bounds.day for name, bounds in self._bounds.agents.items() if bounds.day != Budget()}
        self._committed: dict[str, Usage] = {}
        """What each agent spent today, plus what is reserved for its active jobs."""
        if not budgets and self._bounds.day == Budget():
            return
        for usages in (spend_since_in(self._connection, self._day_began), reserved_in(self._connection)):
            for agent, usage in usages.items():
                self._committed[agent] = self._committed.get(agent, Usage()) + usage
        for name, budget in budgets.items():
            self._check_budget(name, budget)
        self._check_budget(None, self._bounds.day)

    def _remaining(self, agent: str | None, budget: Budget) -> Budget:
        """What is left of the day's budget of an agent, or of the fleet."""
        known = self._committed
        committed = sum(known.values(), Usage()) if agent is None else known.get(agent, Usage())
        return _without(budget, tokens=committed.tokens, cost_usd=committed.cost_usd)

    def _check_budget(self, agent: str | None, budget: Budget) -> None:
        left = self._remaining(agent, budget)
        if not left.is_exhausted:
            return
        if self._next[-1:] != [self._tomorrow]:
            self._next.append(self._tomorrow)
        spent = _spent_bounds(budget, left)
        why = (
            f"is spent, or reserved for running jobs; the next day begins {self._tomorrow:%Y-%m-%d %H:%M} UTC"
        )
        if agent is None:
            self._blocked.fleet, self._is_full = f"the fleet's budget for the day ({spent}) {why}", False
        else:
            self._blocked.agents[agent] = f"its budget for the day ({spent}) {why}"

    def _find_queues(self) -> None:
        """Find the agents with queued jobs, and the priority of these, except agents that are blocked."""
        names = sorted(set(self._bounds.agents) - set(self._blocked.agents))
        for start in range(0, len(names), _AGENTS_AT_ONCE):
            some = JOBS.c.agent.in_(names[start : start + _AGENTS_AT_ONCE])
            query = (
                select(JOBS.c.agent, func.max(JOBS.c.priority), func.min(JOBS.c.id))
                .where(some, JOBS.c.state == JobState.QUEUED)
                .group_by(JOBS.c.agent)
            )
            for agent, priority, oldest in self._connection.execute(query):
                queue = _AgentQueue(self._connection, agent, now_ms=milliseconds(self._now))
                queue.priority, queue.oldest = priority, oldest
                self._queues[agent] = queue

    def _first(self) -> Job | None:
        """The job to start next: the most urgent, then the one whose agent has the fewest active jobs, then the oldest.

        This order makes agents of equal priority share the fleet, however many jobs one of them has.
        """
        while True:
            open_queues = [
                queue for agent, queue in self._queues.items() if agent not in self._blocked.agents
            ]
            if not open_queues:
                return None
            first = min(open_queues, key=self._order)
            expected = self._order(first)
            job = first.first(self._is_startable)
            if job is None:
                del self._queues[first.agent]
            elif self._order(first) == expected or first is min(open_queues, key=self._order):
                return job

    def _is_startable(self, job: Job) -> bool:
        """Whether the workspace of a job is free, and a worker with its label takes jobs."""
        if job.workspace in self._blocked.workspaces:
            return False
        if self._capacity is None or not job.placement or job.placement in self._capacity.labels:
            return True
        self._blocked.labels[job.placement] = f"no worker with the label {job.placement!r} takes jobs"
        return False

    def _order(self, queue: "_AgentQueue") -> tuple[int, int, str]:
        return (-queue.priority, self._by_agent[queue.agent], queue.oldest)

    def _allowed(self, job: Job) -> Budget | None:
        """What a job may spend; None, with its agent blocked, if it may not start."""
        bounds = self._bounds.agents[job.agent]
        if bounds.rate is not None and not self._is_within_rate(job.agent, bounds.rate):
            return None
        allowed = _without(self._job_budget(job, bounds), tokens=job.tokens, cost_usd=job.cost_usd)
        for name, budget in ((job.agent, bounds.day), (None, self._bounds.day)):
            if budget != Budget():
                allowed = _smaller(allowed, self._remaining(name, budget))
        return allowed

    def _job_budget(self, job: Job, bounds: AgentBounds) -> Budget:
        """What one job may spend, by its agent's configuration or by a person's grant."""
        asked = job.id if job.attempt else None
        granted = granted_limits_in(self._connection, self._grants, job.agent, asked)
        tokens = int(granted["tokens"]) if "tokens" in granted else bounds.job.tokens
        return Budget(tokens, granted.get("cost_usd", bounds.job.cost_usd))

    def _is_within_rate(self, agent: str, rate: Rate) -> bool:
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
            f"its limit of {_counted(rate.count, 'start')} in {format_duration(rate.window_s)} is reached"
        )
        self._next.append(self._now + timedelta(milliseconds=found[-1] - since))
        return False

    def _start(self, job: Job, allowed: Budget) -> Job:
        self._connection.execute(
            update(JOBS)
            .where(JOBS.c.id == job.id, JOBS.c.state == JobState.QUEUED)
            .values(
                state=JobState.STARTING,
                admissions=JOBS.c.admissions + 1,
                started_ms=milliseconds(self._now),
                changed_ms=milliseconds(self._now),
                reserved_tokens=allowed.tokens,
                reserved_usd=allowed.cost_usd,
            )
        )
        agent = job.agent
        self._queues[agent].ahead.remove(job)
        self._by_agent[agent] += 1
        self._committed[agent] = self._committed.get(agent, Usage()) + Usage(
            allowed.tokens or 0, allowed.cost_usd or 0.0
        )
        self._check_agent(agent, self._bounds.agents[agent])
        self._hold_workspace(job.workspace)
        if self._capacity is not None:
            self._capacity.free -= 1
        self._check_all()
        self._check_budget(agent, self._bounds.agents[agent].day)
        self._check_budget(None, self._bounds.day)
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


class _AgentQueue:
    """The queued jobs of an agent, in order, read in batches."""

    def __init__(self, connection: Connection, agent: str, *, now_ms: int) -> None:
        self._connection = connection
        self.agent = agent
        self._now_ms = now_ms
        self.priority = 0
        """The priority of the first job; until a job was read, an upper bound of it."""
        self.oldest = ""
        """The id of the first job; until a job was read, a lower bound of it."""
        self._skipped: set[str] = set()
        """Ids of jobs that this version cannot read, or that may not start now: they do not hold up other jobs."""
        self.ahead: deque[Job] = deque()

    def first(self, is_startable: Callable[[Job], bool]) -> Job | None:
        """The first job that may start; None if there is none. A job that may not start is skipped for this pass."""
        while True:
            while self.ahead and not is_startable(self.ahead[0]):
                self._skipped.add(self.ahead.popleft().id)
            if self.ahead:
                self.priority, self.oldest = self.ahead[0].priority, self.ahead[0].id
                return self.ahead[0]
            if not self._read():
                return None

    def _read(self) -> bool:
        """Read the next jobs; False if there are none."""
        query = (
            select(JOBS)
            .where(
                JOBS.c.agent == self.agent,
                JOBS.c.state == JobState.QUEUED,
                JOBS.c.not_before_ms <= self._now_ms,
                JOBS.c.id.not_in(sorted(self._skipped)),
            )
            .order_by(JOBS.c.priority.desc(), JOBS.c.id)
            .limit(_AHEAD)
        )
        rows = self._connection.execute(query).mappings().all()
        self.ahead.extend(readable(rows))
        self._skipped |= {row["id"] for row in rows} - {job.id for job in self.ahead}
        return bool(rows) and len(self._skipped) < _MAX_SKIPPED


@dataclass
class _Capacity:
    """The capacity of the workers that take jobs."""

    labels: frozenset[str]
    """Their labels, and the names of their machines."""
    free: int
    """The number of jobs that they can start now."""
    why_full: str

    @classmethod
    def of(cls, connection: Connection, active: Sequence[tuple[str, str, str | None]]) -> "_Capacity":
        workers = workers_in(connection)
        open_workers = [worker for worker in workers if worker.is_alive and not worker.is_draining]
        draining = {worker.id for worker in workers if worker.is_draining}
        total = sum(worker.capacity for worker in open_workers)
        busy = sum(worker not in draining for _, _, worker in active)
        if open_workers:
            why = f"the workers' limit of {_jobs(total)} is reached"
        elif any(worker.is_alive for worker in workers):
            why = "all workers are draining; `ringfence fleet workers resume` lets them take jobs again"
        else:
            why = "no worker is connected"
        return cls(labels_in(workers), total - busy, why)


def _active(connection: Connection) -> Sequence[tuple[str, str, str | None]]:
    """Agent, workspace and worker of each active job; a job that was just admitted has no worker yet."""
    query = select(JOBS.c.agent, JOBS.c.workspace, JOBS.c.worker, JOBS.c.state).where(
        JOBS.c.state.in_([state.value for state in ACTIVE])
    )
    return [
        (row.agent, row.workspace, row.worker if row.state == JobState.RUNNING else None)
        for row in connection.execute(query)
    ]


def _without(budget: Budget, *, tokens: int, cost_usd: float) -> Budget:
    return Budget(
        None if budget.tokens is None else max(0, budget.tokens - tokens),
        None if budget.cost_usd is None else max(0.0, budget.cost_usd - cost_usd),
    )


def _jobs(number: int) -> str:
    return _counted(number, "concurrent job")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _spent_bounds(budget: Budget, left: Budget) -> str:
    """The limits of a budget that are used up, as text."""
    tokens = [f"{budget.tokens} tokens"] if left.tokens == 0 else []
    return ", ".join([*tokens, *([f"${budget.cost_usd:.2f}"] if left.cost_usd == 0.0 else [])])


def _smaller(one: Budget, other: Budget) -> Budget:
    tokens = [each for each in (one.tokens, other.tokens) if each is not None]
    costs = [each for each in (one.cost_usd, other.cost_usd) if each is not None]
    return Budget(min(tokens, default=None), min(costs, default=None))

"""Gives access to a fleet's state: its database, its configuration, and its daemon if one runs."""

import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio.to_thread

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.queries.counts import CountsCache, FleetCounts
from ringfence.fleet.schedule.zone import zone
from ringfence.fleet.store.admission import WaitReasons
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.workers import Workers, WorkerState
from ringfence.job.state import JobState

NOT_RUNNING = "no daemon is running; `ringfence fleet up` starts it"
NOT_RUNNING_HERE = (
    "no daemon is running on this machine; unless another machine runs it, `ringfence fleet up` starts it"
)
"""For a database that several machines share."""
NO_WORKER = "no worker is running; `ringfence fleet worker` or `fleet.workers` starts one"
_MIN_FREE_BYTES = 16 * 1024**2
"""With less free disk space, SQLite and the records of runs may fail at any moment."""
_CACHE_S = 1.0


@dataclass(frozen=True)
class LiveWorkers:
    """The workers that are alive."""

    known: tuple[WorkerState, ...]
    """The live workers that have registered."""
    count: int
    """The number of all live workers."""


@dataclass(frozen=True)
class StartBlockers:
    """What keeps jobs from starting, or keeps started ones from running."""

    blocked: str | None
    """The reason why no job at all can start: there is no daemon, no worker, or no disk space; None: none of them."""
    queue: WaitReasons
    """The reasons that the last pass over the queue found."""
    is_unattended: bool
    """Whether no worker is alive, so that nothing executes the jobs that are marked as running."""
    disabled: Collection[str]
    """The agents that their configuration disables."""
    agents: Collection[str] | None
    """The configured agents; None: not known."""

    @property
    def fleet_reason(self) -> str | None:
        """The reason that keeps all jobs from starting."""
        return self.blocked or self.queue.fleet

    def explain_agent(self, name: str) -> str | None:
        """The reason why the queued jobs of an agent do not start."""
        return self._explain_agent_alone(name) or self.fleet_reason

    def explain_job(self, job: Job) -> str | None:
        """The reason why a job waits, or does not run although it began; None if neither holds."""
        if job.state.is_terminal:
            return None
        if job.state is JobState.WAITING:
            return "a person's answer; `ringfence inbox ls` lists the questions"
        if job.state is not JobState.QUEUED:
            return self.fleet_reason if self.is_unattended else None
        return (
            self._explain_agent_alone(job.agent)
            or self.queue.of_place(job.workspace, job.placement)
            or self.queue.fleet
        )

    def _explain_agent_alone(self, name: str) -> str | None:
        if self.agents is not None and name not in self.agents:
            return "there is no such agent any more"
        if name in self.disabled:
            return "the agent is disabled by its configuration"
        return self.blocked or self.queue.agents.get(name)


@dataclass
class FleetSource:
    """The sources of a fleet's state.

    Args:
        database: The fleet's database.
        state: The state directory.
        configured: The configuration in the fleet's file, if this process is not the daemon and the file can be read.
        file: The fleet's file, if this process is not the daemon.
        daemon: The fleet's daemon, if it is this process.
    """

    database: Database
    state: Path
    configured: Fleet | None = None
    file: Path | None = None
    daemon: Daemon | None = None
    _counts: CountsCache = field(init=False)
    _workers: LiveWorkers | None = field(init=False, default=None)
    _workers_until: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        self._counts = CountsCache(self.database)

    @property
    def fleet(self) -> Fleet | None:
        """The configuration in effect; None: not known."""
        return self.configured if self.daemon is None else self.daemon.fleet

    @property
    def timezone(self) -> ZoneInfo:
        """The time zone in which days begin."""
        try:
            return zone(self.fleet.settings.timezone if self.fleet is not None else None)
        except UsageError:  # the machine's time zone is not known
            return ZoneInfo("UTC")

    def start_of_day(self) -> datetime:
        """The last midnight in the fleet's time zone."""
        return datetime.now(UTC).astimezone(self.timezone).replace(hour=0, minute=0, second=0, microsecond=0)

    async def counts(self) -> FleetCounts:
        """Counts of jobs by agent and state.

        Raises:
            InfrastructureFault: The database cannot be read.
        """
        return await self._counts.get(self.start_of_day())

    async def live_workers(self) -> LiveWorkers:
        """The workers that are alive, on all machines; read at most once a second.

        Raises:
            InfrastructureFault: The database cannot be read.
        """
        if self._workers is None or time.monotonic() > self._workers_until:
            self._workers = await self._read_workers()
            self._workers_until = time.monotonic() + _CACHE_S
        return self._workers

    async def _read_workers(self) -> LiveWorkers:
        rows = [worker for worker in await Workers(self.database).all() if worker.is_alive]
        if self.daemon is None:
            return LiveWorkers(tuple(rows), len(rows))
        executors = {worker.id for worker in rows}
        with suppress(InfrastructureFault):
            executors = set(await self.daemon.engine.live_executors())
        known = tuple(worker for worker in rows if worker.id in executors)
        return LiveWorkers(known, max(len(executors), len(self.daemon.supervisor.pids)))

    async def read_blockers(self) -> StartBlockers:
        """What keeps jobs from starting now.

        Raises:
            InfrastructureFault: The database cannot be read.
        """
        workers = await self.live_workers()
        agents = {} if self.fleet is None else self.fleet.agents
        reason = self._find_missing_process(workers) or await anyio.to_thread.run_sync(self._full_disk)
        return StartBlockers(
            blocked=reason,
            queue=WaitReasons() if self.daemon is None else self.daemon.dispatcher.waiting,
            is_unattended=not workers.count,
            disabled={name for name, agent in agents.items() if not agent.settings.is_enabled},
            agents=None if self.daemon is None else agents,
        )

    def _find_missing_process(self, workers: LiveWorkers) -> str | None:
        if self.daemon is None:
            return NOT_RUNNING if self.database.is_local else NOT_RUNNING_HERE
        return None if workers.count else NO_WORKER

    def _full_disk(self) -> str | None:
        with suppress(OSError):
            if shutil.disk_usage(self.state).free < _MIN_FREE_BYTES:
                return f"the disk of the state directory {str(self.state)!r} is full; free some space"
        return None

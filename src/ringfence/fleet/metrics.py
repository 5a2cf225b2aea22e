"""Metrics of a fleet for Prometheus.

Most are read from the database at each scrape, so that they are right whichever process did the work, and after any
restart. Labels are configured names of agents and states of jobs, never text from outside.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import anyio
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ringfence.errors import InfrastructureFault
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.totals import DURATION_BOUNDS_S, START_BOUNDS_S, Census, census

FORMER = "(former)"
"""The label of agents that are no longer configured."""
_MIN_KEEP_S = 1.0
_KEEP_FACTOR = 10.0
"""Queries of the database take at most a tenth of the time: a result is kept this many times as long as it took."""
_LAG_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0, 3600.0, 86400.0)
_TOTALS = {
    "admissions": "Starts of jobs, each attempt counted.",
    "attempts": "Attempts at jobs that began.",
    "retries": "Attempts beyond a job's first.",
    "tokens": "Tokens that jobs used, cached ones included.",
    "cost_usd": "US dollars that jobs cost, as far as prices are known.",
}


class Counters:
    """The metrics that the daemon itself counts, since its start."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.lag_s = Histogram(
            "ringfence_schedule_lag_seconds",
            "How late due times of schedules fired.",
            ["agent"],
            buckets=_LAG_BOUNDS_S,
            registry=self.registry,
        )
        self.missed = Counter(
            "ringfence_schedule_missed_slots",
            "Due times of schedules that did not fire: no daemon ran, or it was too late.",
            ["agent"],
            registry=self.registry,
        )
        self.removed = Counter(
            "ringfence_jobs_forgotten", "Jobs that retention removed.", registry=self.registry
        )


@dataclass(frozen=True)
class Moment:
    """The state of a fleet at a scrape."""

    agents: Collection[str]
    """The configured agents."""
    census: Census | None
    """The jobs; None: the database cannot be reached."""
    is_ready: bool = True
    workers: int = 0
    """The workers of this machine."""
    executors: int | None = None
    """The workers of all machines; None: not known."""
    restarts: int = 0
    database_errors: int = 0
    pool: dict[str, int] = field(default_factory=dict)
    """How often a warm sandbox was available (`hits`), or not (`misses`)."""


class CensusCache:
    """Reads the database at most once a second, however many clients scrape.

    Args:
        database: The fleet's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = anyio.Lock()
        self._last: Census | None = None
        self._fresh_until = float("-inf")

    async def census(self) -> Census | None:
        """Return the jobs as of about now; None if the database cannot be reached."""
        async with self._lock:
            if time.monotonic() < self._fresh_until:
                return self._last
            began = time.monotonic()
            try:
                self._last = await census(self._database)
            except InfrastructureFault:
                self._last = None
            ended = time.monotonic()
            self._fresh_until = ended + max(_MIN_KEEP_S, _KEEP_FACTOR * (ended - began))
            return self._last


def exposition(moment: Moment, counters: Counters, *, accept: str) -> tuple[bytes, str]:
    """Return all metrics as text, and the content type.

    Args:
        moment: The present state.
        counters: The daemon's own counters.
        accept: The `Accept` header of the request.
    """
    registry = CollectorRegistry()
    registry.register(_MomentCollector(moment, counters))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _MomentCollector(Collector):
    def __init__(self, moment: Moment, counters: Counters) -> None:
        self._moment = moment
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        moment = self._moment
        yield from _of_daemon(moment)
        if moment.census is not None:
            yield from _of_jobs(moment.census, moment.agents)
        yield from self._counters.registry.collect()


def _of_daemon(moment: Moment) -> Iterator[Metric]:
    yield GaugeMetricFamily("ringfence_ready", "Whether the fleet takes jobs.", value=float(moment.is_ready))
    up = float(moment.census is not None)
    yield GaugeMetricFamily("ringfence_database_up", "Whether the database answers.", value=up)
    yield CounterMetricFamily(
        "ringfence_database_errors",
        "Faults of the database that the daemon encountered.",
        value=moment.database_errors,
    )
    yield GaugeMetricFamily("ringfence_workers", "Workers that run on this machine.", value=moment.workers)
    yield CounterMetricFamily(
        "ringfence_worker_restarts",
        "Workers of this machine that ended and were started again.",
        value=moment.restarts,
    )
    if moment.executors is not None:
        yield GaugeMetricFamily(
            "ringfence_executors", "Live workers on all machines of the fleet.", value=moment.executors
        )
    for name, value in moment.pool.items():
        yield CounterMetricFamily(f"ringfence_pool_{name}", f"Warm sandboxes: {name}.", value=value)


def _of_jobs(jobs: Census, agents: Collection[str]) -> Iterator[Metric]:
    states = GaugeMetricFamily("ringfence_jobs", "Jobs in the database.", labels=["agent", "state"])
    active = GaugeMetricFamily("ringfence_jobs_active", "Jobs that run, or are about to.", labels=["agent"])
    oldest = GaugeMetricFamily(
        "ringfence_queue_oldest_seconds",
        "How long the oldest job in the queue has been ready to run.",
        labels=["agent"],
    )
    counted: dict[tuple[str, str], int] = {}
    for (agent, state), count in jobs.states.items():
        key = _label(agent, agents), state.value
        counted[key] = counted.get(key, 0) + count
    for key, count in sorted(counted.items()):
        states.add_metric(key, count)
    for agent in sorted(agents):
        active.add_metric([agent], counted.get((agent, "starting"), 0) + counted.get((agent, "running"), 0))
        oldest.add_metric([agent], jobs.oldest_s.get(agent, 0.0))
    yield from (states, active, oldest)
    yield from _totals(_by_label(jobs, agents), sorted({*agents, *(agent for agent, _ in counted)}))


def _totals(totals: dict[tuple[str, str], float], agents: list[str]) -> Iterator[Metric]:
    for metric, text in _TOTALS.items():
        family = CounterMetricFamily(f"ringfence_{metric}", text, labels=["agent"])
        for agent in agents:
            family.add_metric([agent], totals.get((agent, metric), 0.0))
        yield family
    ended = CounterMetricFamily("ringfence_jobs_ended", "Jobs that ended.", labels=["agent", "state"])
    for (agent, metric), value in sorted(totals.items()):
        kind, _, state = metric.partition("/")
        if kind == "ended":
            ended.add_metric([agent, state], value)
    yield ended
    for name, text, bounds in (
        ("start", "From a job's trigger to the start of its first attempt.", START_BOUNDS_S),
        ("duration", "From the start of a job's first attempt to its end.", DURATION_BOUNDS_S),
    ):
        histogram = HistogramMetricFamily(f"ringfence_job_{name}_seconds", text, labels=["agent"])
        for agent in agents:
            values = [(f"{bound:g}", totals.get((agent, f"{name}/{bound:g}"), 0.0)) for bound in bounds]
            values.append(("+Inf", totals.get((agent, f"{name}/count"), 0.0)))
            histogram.add_metric([agent], values, totals.get((agent, f"{name}/sum"), 0.0))
        yield histogram


def _by_label(jobs: Census, agents: Collection[str]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for (agent, metric), value in jobs.totals.items():
        key = _label(agent, agents), metric
        found[key] = found.get(key, 0.0) + value
    return found


def _label(agent: str, agents: Collection[str]) -> str:
    return agent if agent in agents else FORMER

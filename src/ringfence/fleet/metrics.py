"""Figures of a fleet for Prometheus.

Most are asked from the database when somebody asks us, so that they are right whichever process did the work, and after
any restart. Labels are agents' configured names, states and schedules of ours; never text from outside.
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
"""Stands for agents that are not in the configuration any more."""
_FRESH_S = 1.0
_SHARE = 10.0
"""Of the time between two looks at the database, at most a tenth is spent looking."""
_LAG_BOUNDS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0, 3600.0, 86400.0)
_TOTALS = {
    "admissions": "Jobs that were let start, each time.",
    "attempts": "Attempts at jobs that were begun.",
    "retries": "Attempts beyond a job's first.",
    "tokens": "Tokens that jobs used, cached ones included.",
    "cost_usd": "US dollars that jobs cost, as far as prices are known.",
}


class Counters:
    """What the daemon counts by itself, since it was started."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.lag_s = Histogram(
            "ringfence_schedule_lag_seconds",
            "How late slots of schedules were fired.",
            ["agent"],
            buckets=_LAG_BOUNDS_S,
            registry=self.registry,
        )
        self.missed = Counter(
            "ringfence_schedule_missed_slots",
            "Slots of schedules that were not fired: nobody was there, or it was too late.",
            ["agent"],
            registry=self.registry,
        )
        self.forgotten = Counter(
            "ringfence_jobs_forgotten", "Jobs that retention removed.", registry=self.registry
        )


@dataclass(frozen=True)
class Moment:
    """What is known when somebody asks."""

    agents: Collection[str]
    """Those that are configured."""
    census: Census | None
    """None: the database cannot be reached."""
    is_ready: bool = True
    workers: int = 0
    """Of this machine."""
    executors: int | None = None
    """Of all machines; None: not known."""
    restarts: int = 0
    database_errors: int = 0
    pool: dict[str, int] = field(default_factory=dict)
    """How often a warm sandbox was there (`hits`), or not (`misses`)."""


class CensusCache:
    """Looks at the database at most once a second, however many ask.

    Args:
        database: Which.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = anyio.Lock()
        self._last: Census | None = None
        self._fresh_until = float("-inf")

    async def census(self) -> Census | None:
        """The jobs of this moment, or nearly; None if the database cannot be reached."""
        async with self._lock:
            if time.monotonic() < self._fresh_until:
                return self._last
            began = time.monotonic()
            try:
                self._last = await census(self._database)
            except InfrastructureFault:
                self._last = None
            ended = time.monotonic()
            self._fresh_until = ended + max(_FRESH_S, _SHARE * (ended - began))
            return self._last


def exposition(moment: Moment, counters: Counters, *, accept: str) -> tuple[bytes, str]:
    """All figures as text, and its content type.

    Args:
        moment: What is known now.
        counters: What the daemon counted.
        accept: The header of the request.
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
        yield from _plain(moment)
        if moment.census is not None:
            yield from _of_jobs(moment.census, moment.agents)
        yield from self._counters.registry.collect()


def _plain(moment: Moment) -> Iterator[Metric]:
    yield GaugeMetricFamily("ringfence_ready", "Whether the fleet takes jobs.", value=float(moment.is_ready))
    up = float(moment.census is not None)
    yield GaugeMetricFamily("ringfence_database_up", "Whether the database answers.", value=up)
    yield CounterMetricFamily(
        "ringfence_database_errors",
        "Faults of the database, as the daemon met them.",
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
            "ringfence_executors", "Workers that live, on all machines of the fleet.", value=moment.executors
        )
    for name, value in moment.pool.items():
        yield CounterMetricFamily(f"ringfence_pool_{name}", f"Warm sandboxes: {name}.", value=value)


def _of_jobs(jobs: Census, agents: Collection[str]) -> Iterator[Metric]:
    states = GaugeMetricFamily("ringfence_jobs", "Jobs that are known.", labels=["agent", "state"])
    active = GaugeMetricFamily("ringfence_jobs_active", "Jobs that run, or are about to.", labels=["agent"])
    oldest = GaugeMetricFamily(
        "ringfence_queue_oldest_seconds",
        "For how long the oldest job in the queue could have run.",
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


def _totals(figures: dict[tuple[str, str], float], agents: list[str]) -> Iterator[Metric]:
    for figure, text in _TOTALS.items():
        family = CounterMetricFamily(f"ringfence_{figure}", text, labels=["agent"])
        for agent in agents:
            family.add_metric([agent], figures.get((agent, figure), 0.0))
        yield family
    ended = CounterMetricFamily(
        "ringfence_jobs_ended", "Jobs that came to an end.", labels=["agent", "state"]
    )
    for (agent, figure), value in sorted(figures.items()):
        kind, _, state = figure.partition("/")
        if kind == "ended":
            ended.add_metric([agent, state], value)
    yield ended
    for name, text, bounds in (
        ("start", "From a job's trigger to the start of its first attempt.", START_BOUNDS_S),
        ("duration", "From the start of a job's first attempt to its end.", DURATION_BOUNDS_S),
    ):
        histogram = HistogramMetricFamily(f"ringfence_job_{name}_seconds", text, labels=["agent"])
        for agent in agents:
            values = [(f"{bound:g}", figures.get((agent, f"{name}/{bound:g}"), 0.0)) for bound in bounds]
            values.append(("+Inf", figures.get((agent, f"{name}/count"), 0.0)))
            histogram.add_metric([agent], values, figures.get((agent, f"{name}/sum"), 0.0))
        yield histogram


def _by_label(jobs: Census, agents: Collection[str]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for (agent, figure), value in jobs.totals.items():
        key = _label(agent, agents), figure
        found[key] = found.get(key, 0.0) + value
    return found


def _label(agent: str, agents: Collection[str]) -> str:
    return agent if agent in agents else FORMER

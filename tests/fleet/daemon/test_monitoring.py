"""Monitoring of a fleet from outside: real requests to a real daemon."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.fleet.running_fleet import standing
from tests.ports import kept_port

from ringfence.fleet.client import socket_path
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds
from ringfence.fleet.store.attempts import AttemptResult, Attempts
from ringfence.fleet.store.job import Job, NewJob
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.submission import JobRequest
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
BOUNDS = Bounds(
    {"mender": AgentBounds(concurrency=100), "gone": AgentBounds(concurrency=100)}, concurrency=100
)


@asynccontextmanager
async def on_socket(daemon: Daemon) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the daemon's socket."""
    transport = httpx2.AsyncHTTPTransport(uds=str(socket_path(daemon.state)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://daemon", timeout=30) as client:
        yield client


def figures(text: str) -> dict[str, float]:
    """Return each sample as `name{label=value}`."""
    return {
        sample.name + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def read(client: httpx2.AsyncClient) -> dict[str, float]:
    """Request the metrics, which the daemon caches for a second."""
    answer = await client.get("/metrics")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    return figures(answer.text)


async def ended(daemon: Daemon, agent: str, state: JobState, spent: Usage, *, priority: int = 9) -> Job:
    """Add a job that has ended after one attempt, without a worker."""
    job, _ = await daemon.jobs.add(NewJob(agent=agent, trigger="manual", prompt="p", priority=priority))
    await Admission(daemon.database).admit(BOUNDS, now=datetime.now(UTC), day_began=datetime.now(UTC))
    attempts = Attempts(daemon.database)
    attempt = await attempts.begin(job.id, worker="w", host="h")
    assert attempt is not None
    done = await attempts.end(attempt, AttemptResult(state, spent=spent))
    assert done is not None
    return done


async def test_figures_are_those_of_the_database(tmp_path: Path):
    """Jobs, totals and durations by agent match the database, as a Prometheus parser reads them."""
    async with standing(tmp_path) as daemon, on_socket(daemon) as client:
        daemon.dispatcher.is_accepting = False
        await ended(daemon, "mender", JobState.SUCCEEDED, Usage(100, 0.5))
        await ended(daemon, "mender", JobState.FAILED, Usage(11, 0.25))
        await daemon.submit(JobRequest(daemon.fleet.agent("tester"), "manual"))
        found = await read(client)
    assert {
        "ringfence_jobs agent=mender state=succeeded": 1,
        "ringfence_jobs agent=tester state=queued": 1,
        "ringfence_jobs_ended_total agent=mender state=failed": 1,
        "ringfence_jobs_active agent=mender": 0,
        "ringfence_admissions_total agent=mender": 2,
        "ringfence_attempts_total agent=mender": 2,
        "ringfence_retries_total agent=mender": 0,
        "ringfence_tokens_total agent=mender": 111,
        "ringfence_cost_usd_total agent=mender": 0.75,
        "ringfence_job_start_seconds_count agent=mender": 2,
        "ringfence_job_start_seconds_bucket agent=mender le=+Inf": 2,
        "ringfence_job_duration_seconds_count agent=mender": 2,
        "ringfence_database_up": 1,
        "ringfence_ready": 1,
        "ringfence_workers": 0,
    }.items() <= found.items()
    assert found["ringfence_queue_oldest_seconds agent=tester"] > 0


@pytest.mark.slow
async def test_totals_never_go_down(tmp_path: Path):
    """Totals include jobs that were removed, each once."""
    async with standing(tmp_path) as daemon, on_socket(daemon) as client:
        first = await ended(daemon, "mender", JobState.SUCCEEDED, Usage(100, 0.5))
        second = await ended(daemon, "mender", JobState.SUCCEEDED, Usage(7, 0.25))
        assert await daemon.jobs.remove_ended([first.id, second.id, "unknown"]) == [first.id, second.id]
        assert await daemon.jobs.remove_ended([first.id, second.id]) == []
        await ended(daemon, "mender", JobState.SUCCEEDED, Usage(3, 0))
        found = await read(client)
    assert {
        "ringfence_jobs agent=mender state=succeeded": 1,
        "ringfence_jobs_ended_total agent=mender state=succeeded": 3,
        "ringfence_tokens_total agent=mender": 110,
        "ringfence_cost_usd_total agent=mender": 0.75,
        "ringfence_job_duration_seconds_count agent=mender": 3,
        "ringfence_job_start_seconds_bucket agent=mender le=+Inf": 3,
    }.items() <= found.items()


async def test_labels_are_the_names_that_are_configured(tmp_path: Path):
    """All agents that are no longer configured share one label, however many there were."""
    async with standing(tmp_path) as daemon, on_socket(daemon) as client:
        for name in ("gone", "left"):
            await daemon.jobs.add(NewJob(agent=name, trigger="manual", prompt="p", trigger_name='"}\n# HELP'))
        found = await read(client)
    assert found["ringfence_jobs agent=(former) state=queued"] == 2
    assert not [name for name in found if "gone" in name or "left" in name or "HELP" in name]


async def test_many_who_ask_make_one_look(tmp_path: Path):
    """The database is read at most once a second, so a new job may be counted a little later."""
    async with standing(tmp_path) as daemon, on_socket(daemon) as client:
        before = await read(client)
        await daemon.submit(JobRequest(daemon.fleet.agent("tester"), "manual"))
        assert {
            name: value for name, value in (await read(client)).items() if name.startswith("ringfence_jobs")
        } == {name: value for name, value in before.items() if name.startswith("ringfence_jobs")}


@pytest.mark.slow
async def test_a_database_that_is_away_is_told(tmp_path: Path):
    """While the database is unavailable the daemon's own metrics are still served, and one of them says so."""
    told: list[str] = []
    async with standing(tmp_path, log=told.append) as daemon, on_socket(daemon) as client:
        file = tmp_path / "s" / "fleet" / "fleet.db"
        daemon.database.close()
        kept = {each: each.read_bytes() for each in file.parent.glob("fleet.db*")}
        for each in kept:
            each.unlink()
        file.mkdir()
        found = await read(client)
        file.rmdir()
        for each, content in kept.items():
            each.write_bytes(content)
    assert (found["ringfence_database_up"], found["ringfence_database_errors_total"] > 0) == (0, True)
    assert not [name for name in found if name.startswith(("ringfence_jobs ", "ringfence_tokens"))]


async def test_nothing_else_answers_at_the_address(tmp_path: Path):
    """`fleet.metrics.address` serves the metrics and the two health checks, read-only, and nothing else."""
    async with AsyncExitStack() as stack:
        port = stack.enter_context(kept_port())
        daemon = await stack.enter_async_context(
            standing(tmp_path, fleet=f"metrics: {{address: '127.0.0.1:{port}'}}")
        )
        client = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30)
        )
        assert "ringfence_ready" in await read(client)
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        for path in ("/", "/v1/status", "/v1/jobs", "/openapi.json", "/docs", "/hooks/mender/x"):
            assert (await client.get(path)).status_code == 404, path
        for path in ("/metrics", "/healthz", "/readyz"):
            assert (await client.post(path)).status_code == 405, path
        daemon.is_ready = False
        assert (await client.get("/readyz")).status_code == 503

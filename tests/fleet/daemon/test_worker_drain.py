"""How a worker that a person or a cluster started ends: its jobs may end first, and its records are kept."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fleet.chaos.holding import Holding
from tests.fleet.fleet_files import FleetFiles, StartedCommand
from tests.postgres import Cluster, cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres for these tests alone."""
    with cluster() as running:
        yield running


@pytest.fixture
def url(postgres: Cluster) -> str:
    """An empty database."""
    return postgres.make_database()


@pytest.fixture
def holding(crew: FleetFiles, url: str) -> Holding:
    """A fleet without workers of its own, whose agent works until it is released."""
    made = Holding(crew, {"workers": 0, "engine": {"type": "postgres", "url": url}})
    made.up()
    return made


@contextmanager
def _worker(crew: FleetFiles, url: str, *words: str) -> Iterator[StartedCommand]:
    """Run a worker that takes jobs."""
    environment = {**crew.environment, "RINGFENCE_FLEET_DATABASE": url}
    with crew.start("fleet", "worker", *words, env=environment) as worker:
        assert worker.stderr is not None
        assert "takes jobs" in worker.stderr.readline()
        yield worker


def test_a_worker_that_drains_lets_its_job_end(crew: FleetFiles, holding: Holding, url: str):
    """After SIGTERM a worker with --drain takes no new job, ends when its job has ended, and no attempt is repeated."""
    with _worker(crew, url, "--drain", "10m") as worker:
        job = holding.begin()
        worker.terminate()
        assert worker.stderr is not None
        assert any("running jobs have 10m to end" in line for line in worker.stderr)
        (seen,) = crew.waits(lambda: crew.client.get("workers"), lambda found: found[0]["is_draining"])
        assert (seen["is_alive"], crew.job(job)["state"]) == (True, "running")
        later = crew.trigger("a")
        holding.let_go()
        assert holding.ends(job, url) == ["unverified"]
        worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert crew.job(later)["ended_at"] is None
    assert crew.client.get("workers") == []


@pytest.mark.parametrize(("drain", "signals"), [("1s", 1), ("10m", 2)], ids=["time is up", "second signal"])
def test_a_drain_has_an_end(crew: FleetFiles, holding: Holding, url: str, drain: str, signals: int):
    """A job that outlasts the drain, or a second signal, is executed again elsewhere; no attempt is counted for it."""
    with _worker(crew, url, "--drain", drain) as worker:
        job = holding.begin()
        worker.terminate()
        assert worker.stderr is not None
        assert any("to end" in line for line in worker.stderr)
        if signals > 1:
            worker.terminate()
        worker.communicate(timeout=60)
    assert worker.returncode == 0
    holding.let_go()
    with _worker(crew, url) as other:
        assert holding.ends(job, url) == ["interrupted", "unverified"]
        other.terminate()
        other.communicate(timeout=60)


def test_the_record_of_an_interrupted_attempt_is_stored(crew: FleetFiles, postgres: Cluster, tmp_path: Path):
    """A worker that stops uploads the records of its attempts first, since its disk may end with it."""
    url, records = postgres.make_database(), tmp_path / "records"
    engine = {"type": "postgres", "url": url}
    holding = Holding(crew, {"workers": 0, "engine": engine, "records": {"url": str(records)}})
    holding.up()
    with _worker(crew, url, "--records", str(records)) as worker:
        job = holding.begin()
        worker.terminate()
        worker.communicate(timeout=60)
    (run,) = holding.runs(job, url)
    assert (records / f"{run}.tar.gz").is_file()


def test_a_heartbeat_tells_that_the_fleet_knows_the_worker(crew: FleetFiles, holding: Holding, url: str):
    """The file's time advances while the worker is registered, and the file is gone when the worker has ended."""
    file = crew.home / "heartbeat"
    with _worker(crew, url, "--heartbeat", str(file)) as worker:
        os.utime(crew.waits(lambda: file, Path.exists), (0, 0))
        crew.waits(lambda: file.stat().st_mtime, lambda time: time > 0)
        worker.terminate()
        worker.communicate(timeout=60)
    assert not file.exists()
    assert holding.crew.status()["workers"] == []


def test_a_drain_must_be_a_duration(crew: FleetFiles):
    """Anything else is refused with the option's name."""
    ended = crew.run(
        "fleet", "worker", "--drain", "soon", env={**crew.environment, "RINGFENCE_FLEET_DATABASE": "x"}
    )
    assert (ended.code, "--drain: 'soon' is not a duration" in ended.err) == (2, True)

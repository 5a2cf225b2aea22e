"""What happens to jobs when their database is unavailable or full, and on several machines that share one."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.chaos import accounts
from tests.fleet.chaos.holding import Holding
from tests.fleet.chaos.machine import Machine, send
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import COMMAND, FleetFiles
from tests.postgres import Cluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres for these tests alone."""
    with cluster() as running:
        yield running


def _on(url: str, workers: int) -> dict[str, object]:
    return {"engine": {"type": "postgres", "url": url}, "workers": workers}


@pytest.fixture(scope="module")
def url(postgres: Cluster) -> str:
    """The database of the fleet that tests share."""
    return postgres.make_database()


@pytest.fixture(scope="module")
def shared(make_crew: Make, url: str) -> Iterator[Holding]:
    """A fleet in which one agent also watches files; it stops before its database does."""
    files = {"type": "files", "paths": ["*.task"], "settle": "100ms"}
    made = Holding(make_crew(), _on(url, 1), others={"watches": {"triggers": {"files": files}}})
    made.up()
    yield made
    made.crew.down()


@pytest.fixture
def holding(shared: Holding) -> Iterator[Holding]:
    """The fleet with all of its workers, and with agents that wait for the test."""
    shared.repeat_request()
    yield shared
    shared.let_go()


def test_an_end_while_the_database_is_away_is_kept(holding: Holding, postgres: Cluster, url: str):
    """The outcome and answer of an agent that ends during an outage are stored once the database is back."""
    crew = holding.crew
    job = holding.begin()
    run = crew.job(job)["run_id"]
    worker = holding.worker()
    postgres.stop()
    try:
        holding.let_go()
        crew.waits(lambda: accounts.records(crew)[run][0], lambda status: status == "sealed")
    finally:
        postgres.start()
    assert holding.ends(job, url) == ["unverified"]
    assert crew.job(job)["answer"] == "done"
    assert holding.machine.workers() == [worker]


def test_a_database_that_restarts_in_mid_run_is_not_noticed(holding: Holding, postgres: Cluster, url: str):
    """A running job survives a restart of the database: it has one attempt, and one end."""
    job = holding.begin()
    postgres.stop()
    postgres.start()
    holding.let_go()
    assert holding.ends(job, url) == ["unverified"]


def test_a_change_while_the_database_is_away_is_not_forgotten(holding: Holding, postgres: Cluster, url: str):
    """A watched file that changes during an outage creates its job once the database is back, and only one job."""
    crew = holding.crew
    holding.let_go()

    def jobs() -> list[Any]:
        return crew.jobs(agent="watches")

    (crew.project / "first.task").touch()
    (first,) = crew.waits(jobs, lambda found: len(found) == 1)
    holding.ends(first["id"], url)
    postgres.stop()
    try:
        (crew.project / "second.task").touch()
        crew.waits(lambda: "trigger watches/files" in crew.log, lambda told: told)
    finally:
        postgres.start()
    second, _ = crew.waits(jobs, lambda found: len(found) == 2)
    assert holding.ends(second["id"], url) == ["unverified"]
    assert len(jobs()) == 2


def test_a_database_that_is_away_while_a_crew_stops_breaks_nothing_off(crew: FleetFiles, postgres: Cluster):
    """A job that runs while the fleet stops may still end in the same attempt, and the daemon exits normally."""
    url = postgres.make_database()
    holding = Holding(crew, {**_on(url, 1), "drain": "1h"})
    daemon = crew.start("fleet", "up", "--log-format", "json")
    crew.waits(crew.is_up, bool)
    job = holding.begin()
    daemon.send_signal(signal.SIGTERM)
    crew.waits(crew.status, lambda found: not found["is_ready"])
    postgres.stop()
    try:
        assert daemon.stderr is not None
        assert any('"database.failed"' in line for line in daemon.stderr)
    finally:
        postgres.start()
        holding.let_go()
    _, said = daemon.communicate(timeout=80)
    assert daemon.returncode == 0, said
    assert [row["state"] for row in accounts.read(url).of(job)] == ["unverified"]


_ELSEWHERE = ("unshare", "--uts", "sh", "-c", 'echo other >/proc/sys/kernel/hostname && exec "$@"', "sh")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a process another host name")
def test_a_stopped_machine_is_fenced(crew: FleetFiles, postgres: Cluster):
    """The job of a suspended machine's worker runs on another; once resumed, that worker exits and changes nothing."""
    url = postgres.make_database()
    holding = Holding(crew, _on(url, 0))
    holding.up()
    second = Machine(crew.home / "s2")
    environment = {**crew.environment, "RINGFENCE_FLEET_DATABASE": url}
    away = {**environment, "XDG_STATE_HOME": str(second.state), "XDG_CACHE_HOME": str(crew.home / "k2")}
    command = [*_ELSEWHERE, *COMMAND, "fleet", "worker"]
    with subprocess.Popen(
        command, env=away, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as other:
        try:
            job = holding.begin()
            assert send(other.pid, signal.SIGSTOP)
            with crew.start("fleet", "worker", env=environment) as here:
                holding.begun(2)
                holding.let_go()
                assert holding.ends(job, url) == ["interrupted", "unverified"]
                other.send_signal(signal.SIGCONT)
                _, said = other.communicate(timeout=90)
                here.terminate()
                here.communicate(timeout=90)
        finally:
            other.kill()
    assert (other.returncode, "lost its right to run jobs" in said) == (75, True)
    assert holding.ends(job, url) == ["interrupted", "unverified"]
    assert (crew.job(job)["state"], crew.job(job)["answer"]) == ("unverified", "done")
    hosts = [row["host"] for row in accounts.read(url).of(job)]
    assert hosts[0] == "other" != hosts[1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_fills_up_in_mid_run_loses_nothing(crew: FleetFiles):
    """While the disk is full, commands report it; a job that ran meanwhile still comes to one end."""
    crew.state.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=0700", "tmpfs", crew.state], check=True)
    try:
        holding = Holding(crew)
        holding.up()
        job = holding.begin()
        filler = crew.state / "filler"
        _fill(filler)
        refused = crew.run("fleet", "trigger", "a")
        holding.let_go()
        meanwhile = crew.run("fleet", "trigger", "a")  # accepted if the first job leaves enough room
        filler.unlink()
        assert (refused.code, refused.err.count("\n")) == (75, 1), refused
        assert holding.ends(job)[-1] == "unverified"
        assert meanwhile.code == 75 or holding.ends(meanwhile.out.strip())[-1] == "unverified", meanwhile
        after = crew.trigger("a")
        assert holding.ends(after) == ["unverified"]
        assert accounts.wrong_ends(accounts.read(holding.url)) == []
        assert {status for status, _ in accounts.records(crew).values()} == {"sealed"}
    finally:
        crew.down()
        subprocess.run(["umount", "--lazy", crew.state], check=True)


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while filler.write(b"x" * size):
                    pass
            except OSError:
                continue

"""What happens to jobs when their worker, sandbox or daemon dies; all tests but that of containers share a fleet."""

import signal
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from tests.fleet.chaos import accounts
from tests.fleet.chaos.holding import Holding
from tests.fleet.chaos.machine import send
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles, is_alive
from tests.leftovers import engines_below, instances_below, things_of
from tests.sandbox.conftest import image_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def shared(make_crew: Make) -> Holding:
    """A fleet with an agent that has one attempt only, and one that resumes its sessions."""
    others: dict[str, dict[str, Any]] = {
        "once": {"retry": {"attempts": 1}},
        "remembers": {"session": {"policy": "always"}},
    }
    made = Holding(make_crew(), others=others)
    made.up()
    return made


@pytest.fixture
def holding(shared: Holding) -> Iterator[Holding]:
    """The fleet with all of its workers, and with agents that wait for the test."""
    shared.repeat_request()
    yield shared
    shared.let_go()


def _verified(crew: FleetFiles, run: str) -> dict[str, Any]:
    """Verify a record; return its summary."""
    crew.does("runs", "verify", run)
    return next(one for one in crew.does("runs", "ls", "--json").json if one["id"] == run)


def test_a_killed_workers_job_runs_on_another(holding: Holding):
    """The job of a killed worker runs again in another; the first attempt's sandbox ends, and its record is sealed."""
    crew = holding.crew
    job = holding.begin()
    worker = holding.worker()
    (fence,) = holding.machine.fences(worker)
    crew.kill(worker)
    holding.begun(2)
    assert not is_alive(fence)
    assert holding.worker() != worker
    holding.let_go()
    assert holding.ends(job) == ["interrupted", "unverified"]
    first, second = (_verified(crew, run) for run in holding.runs(job))
    assert (first["state"], first["is_sealed"]) == ("interrupted", True)
    assert (second["state"], second["is_sealed"]) == ("unverified", True)


def test_what_no_try_clears_away_the_next_worker_does(holding: Holding):
    """The record of a job that was cancelled as its worker died is closed by the worker that starts next."""
    crew = holding.crew
    job = holding.begin()
    worker = holding.worker()
    assert send(worker, signal.SIGSTOP)
    crew.does("job", "cancel", job)
    crew.kill(worker)
    assert holding.ends(job) == ["cancelled"]
    (run,) = holding.runs(job)
    crew.waits(lambda: crew.run("runs", "verify", run).code, lambda code: code == 0)
    assert _verified(crew, run)["state"] == "interrupted"


def test_a_stopped_workers_job_is_taken_over(holding: Holding):
    """A worker of this machine that does not respond (SIGSTOP) is killed with its sandbox, and the job has one end."""
    job = holding.begin()
    worker = holding.worker()
    (fence,) = holding.machine.fences(worker)
    assert send(worker, signal.SIGSTOP)
    holding.begun(2)
    assert [pid for pid in (worker, fence) if is_alive(pid)] == []
    holding.let_go()
    assert holding.ends(job) == ["interrupted", "unverified"]


def test_a_job_whose_sandbox_dies_is_tried_again(holding: Holding):
    """The death of a sandbox counts as a fault of the infrastructure: the same worker retries by the agent's policy."""
    job = holding.begin()
    worker = holding.worker()
    (fence,) = holding.machine.fences(worker)
    holding.crew.kill(fence)
    holding.begun(2)
    holding.let_go()
    assert holding.ends(job) == ["infrastructure", "unverified"]
    assert is_alive(worker)


def test_a_daemon_killed_at_work_loses_nothing(holding: Holding):
    """Jobs of a killed daemon pass to the next daemon's workers without using up an attempt; no old worker remains."""
    crew = holding.crew
    job = holding.begin("once")
    waiting = crew.trigger("once", "--key", "waits")
    workers = holding.machine.workers()
    crew.kill(crew.status()["pid"])
    crew.up()
    holding.begun(2)
    crew.waits(lambda: [pid for pid in workers if is_alive(pid)], lambda left: left == [])
    assert crew.trigger("once", "--key", "waits") == waiting
    holding.let_go()
    assert (holding.ends(job)[-1], holding.ends(waiting)) == ("unverified", ["unverified"])
    assert accounts.wrong_ends(accounts.read(holding.url)) == []


def test_an_interrupted_job_goes_on_in_its_session(holding: Holding):
    """Where the agent's policy is to resume sessions, the next attempt continues the conversation of the last."""
    crew = holding.crew
    job = holding.begin("remembers")
    crew.kill(holding.worker())
    holding.let_go()
    assert holding.ends(job) == ["interrupted", "unverified"]
    first, second = holding.runs(job)
    assert first in crew.does("runs", "logs", "--json", second).out


@pytest.mark.docker
def test_a_killed_workers_container_is_removed(crew: FleetFiles):
    """The container of a killed worker, which survives it, is removed before the job runs again."""
    image = image_for("docker")
    holding = Holding(crew, sandbox={"backend": "docker", "image": image})
    holding.up()
    job = holding.begin()
    (before,) = _containers(crew)
    crew.kill(_busy(holding))
    holding.begun(2)
    (after,) = _containers(crew)
    assert after != before
    holding.let_go()
    assert holding.ends(job) == ["interrupted", "unverified"]
    assert _containers(crew) == []


def _containers(crew: FleetFiles) -> list[str]:
    return anyio.run(things_of, instances_below(crew.home), engines_below(crew.home))


def _busy(holding: Holding) -> int:
    """Return the process id of the worker whose job runs in a container, from the database."""
    import sqlalchemy as sa

    engine = sa.create_engine(holding.url, poolclass=sa.NullPool)
    query = "SELECT e.pid FROM ringfence_executors e JOIN fleet_jobs j ON j.worker = e.id WHERE j.state = 'running'"
    with engine.connect() as connection:
        return int(connection.execute(sa.text(query)).scalar_one())

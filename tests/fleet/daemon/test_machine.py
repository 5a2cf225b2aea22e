"""Faults of the machine and the database, and fleets of several machines."""

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.fleet.fleet_files import FleetFiles
from tests.postgres import Cluster, cluster

from ringfence.engine.liveness import Database
from ringfence.fleet.daemon.leader_lock import KEY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres for these tests alone."""
    with cluster() as running:
        yield running


def _write(crew: FleetFiles, url: str, **fleet: Any) -> None:
    agent = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}
    crew.write(
        fleet={"name": "c", "drain": "1s", "engine": {"type": "postgres", "url": url}, **fleet},
        run={"model": crew.script("quick", {"text": "done"})},
        agents={"a": agent},
    )


def test_a_database_that_is_away_at_the_start_is_told(crew: FleetFiles, tmp_path: Path):
    """The daemon exits with code 75 and one line that names the database, but not its password."""
    _write(crew, f"postgresql://me:${{PASSWORD:-letmein}}@/crew?host={tmp_path}")
    for words in (("fleet", "up"), ("fleet", "up", "--detach")):
        ended = crew.run(*words)
        assert (ended.code, ended.err.count("\n")) == (75, 1)
        assert "database" in ended.err
        assert "letmein" not in ended.err


def test_another_machine_works_for_a_crew(crew: FleetFiles, postgres: Cluster):
    """`ringfence fleet worker` says when it takes jobs, runs those of a fleet without workers, and exits when told."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    crew.up()
    job = crew.trigger("a")
    other = {**crew.environment, "RINGFENCE_FLEET_DATABASE": url}
    with crew.start("fleet", "worker", "--slots", "2", "--label", "gpu", env=other) as worker:
        assert worker.stderr is not None
        assert re.search(r"worker \w{8} takes jobs, 2 at a time; its labels: gpu$", worker.stderr.readline())
        assert crew.ends(job)["state"] == "unverified"
        worker.terminate()
        _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said


def test_a_worker_must_know_its_database(crew: FleetFiles):
    """Without RINGFENCE_FLEET_DATABASE a worker exits with an error that names it."""
    ended = crew.run("fleet", "worker")
    assert (ended.code, "RINGFENCE_FLEET_DATABASE is not set" in ended.err) == (2, True)


def test_a_database_that_goes_away_is_waited_for(crew: FleetFiles, postgres: Cluster):
    """While the database is unavailable commands exit with 75; once it is back, the same daemon continues."""
    _write(crew, postgres.make_database())
    crew.up()
    pid = crew.status()["pid"]
    assert crew.ends(crew.trigger("a"))["state"] == "unverified"
    postgres.stop()
    try:
        away = crew.run("fleet", "trigger", "a")
        assert (away.code, "database" in away.err, away.err.count("\n")) == (75, True, 1)
    finally:
        postgres.start()
    job = crew.trigger("a")
    assert crew.ends(job)["state"] == "unverified"
    assert crew.status()["pid"] == pid


def test_a_crew_comes_down_while_its_database_is_away(crew: FleetFiles, postgres: Cluster):
    """`fleet down` stops the daemon without the database, and reports that running jobs will run again."""
    _write(crew, postgres.make_database())
    crew.up()
    pid = crew.status()["pid"]
    postgres.stop()
    try:
        ended = crew.run("fleet", "down", "--json")
        assert (ended.code, ended.out) == (75, "")
        assert f"(process {pid}) ended before it had stopped the fleet" in ended.err
        assert not crew.is_up()
        assert "running jobs are repeated after the next start" in crew.log
    finally:
        postgres.start()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_full_disk_is_told(crew: FleetFiles):
    """At the start, a state directory on a full disk is reported in one line."""
    crew.write(
        agents={"a": {"prompt": "do it", "workspace": "."}},
        run={"model": crew.script("quick", {"text": "done"})},
    )
    small = crew.home / "small"
    small.mkdir()
    environment = {**crew.environment, "RINGFENCE_STATE_DIR": str(small)}
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", small], check=True)
    try:
        crew.run("config", "trust", "--yes", env=environment)
        with (small / "filler").open("wb", buffering=0) as filler:
            _fill(filler.fileno())
        ended = crew.run("fleet", "up", env=environment)
    finally:
        subprocess.run(["umount", small], check=True)
    assert ended.code in (1, 75), ended
    assert "Traceback" not in ended.err
    assert ended.err.strip().count("\n") == 0


def _fill(file: int) -> None:
    piece = b"x" * 4096
    try:
        while os.write(file, piece):
            pass
    except OSError:
        return


def test_a_state_directory_of_any_length_will_do(crew: FleetFiles):
    """The daemon works with a state directory longer than the address of a socket may be (108 bytes, unix(7))."""
    deep = crew.home / ("d" * 100) / ("e" * 100)
    environment = {**crew.environment, "RINGFENCE_STATE_DIR": str(deep)}
    crew.write(agents={"a": {"prompt": "do it", "workspace": "."}}, fleet={"workers": 0})
    crew.run("config", "trust", "--yes", env=environment)
    begun = crew.run("fleet", "up", "--detach", env=environment)
    try:
        assert begun.code == 0, begun
        assert (deep / "fleet" / "daemon.sock").is_socket()
        assert crew.run("fleet", "status", env=environment).code == 0
    finally:
        assert crew.run("fleet", "down", env=environment).code == 0


def test_many_commands_at_once_are_answered(crew: FleetFiles):
    """Twenty clients that send the same key at the same time get one job."""
    crew.write(
        agents={"a": {"prompt": "do it", "workspace": ".", "enabled": False}},
        fleet={"workers": 0, "drain": "1s"},
    )
    crew.up()
    from ringfence.fleet.client import FleetClient

    found: list[Any] = []

    def ask() -> None:
        client = FleetClient(crew.state / "fleet" / "daemon.sock")
        found.append(client.post("agents", "a", "jobs", body={"key": "one"}))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each["job"]["id"] for each in found}) == 1
    assert sum(each["is_new"] for each in found) == 1
    assert json.loads(crew.does("job", "ls", "--json").out)["schema_version"] == 1


def test_jobs_run_where_their_agent_is_placed(crew: FleetFiles, postgres: Cluster):
    """A job runs on a worker with its agent's label, and waits until there is one; draining workers take no jobs."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    configuration = json.loads(crew.file.read_text())
    configuration["agents"]["g"] = {**configuration["agents"]["a"], "placement": "gpu"}
    crew.write(**configuration)
    crew.up()
    other = {**crew.environment, "RINGFENCE_FLEET_DATABASE": url}
    with crew.start("fleet", "worker", env=other) as plain:
        placed = crew.trigger("g")
        assert crew.ends(crew.trigger("a"))["state"] == "unverified"
        reason = "no worker with the label 'gpu' takes jobs"
        crew.waits(
            lambda: crew.job(placed)["waits_for"], lambda why: why == reason
        )  # workers are read each second
        (first,) = crew.does("fleet", "workers", "ls", "--json").json["workers"]
        with crew.start("fleet", "worker", "--label", "gpu", env=other) as labelled:
            assert crew.ends(placed)["worker"] != first["id"]
            crew.does("fleet", "workers", "drain", first["id"])
            ended = [crew.ends(crew.trigger("a")) for _ in range(3)]
            assert {job["worker"] for job in ended} == {crew.job(placed)["worker"]}
            labelled.terminate()
            labelled.communicate(timeout=60)
        plain.terminate()
        plain.communicate(timeout=60)
    assert crew.does("fleet", "workers", "ls", "--json").json["workers"] == []


@contextmanager
def _beside(crew: FleetFiles, folder: Path, url: str) -> Iterator[FleetFiles]:
    """Another fleet's files and state directory, on the same database."""
    other = FleetFiles(folder, dict(crew.environment))
    _write(other, url)
    try:
        yield other
    finally:
        other.down()


def test_a_database_has_one_daemon(crew: FleetFiles, postgres: Cluster, tmp_path: Path):
    """A second daemon with another state directory is refused, with the first one's name, until the first is gone."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    crew.up()
    pid = crew.status()["pid"]
    with _beside(crew, tmp_path / "b", url) as other:
        refused = other.run("fleet", "up")
        assert (refused.code, refused.err.count("\n")) == (75, 1), refused
        assert f", process {pid}, fleet c; stop it" in refused.err
        crew.kill(pid)
        other.up()
        assert other.ends(other.trigger("a"))["state"] == "unverified"


def test_a_standby_takes_over_from_a_killed_daemon(crew: FleetFiles, postgres: Cluster, tmp_path: Path):
    """While another daemon works for the fleet a standby waits and names it; it takes over by itself."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    crew.up()
    with _beside(crew, tmp_path / "b", url) as other, other.start("fleet", "up", "--standby") as standby:
        assert standby.stderr is not None
        assert "standing by: the database" in standby.stderr.readline()
        assert not other.is_up()
        crew.kill(crew.status()["pid"])
        other.waits(other.is_up, bool)
        assert other.ends(other.trigger("a"))["state"] == "unverified"
        standby.terminate()
        standby.communicate(timeout=60)
    assert standby.returncode == 0


def test_another_machines_daemon_is_not_denied(crew: FleetFiles, postgres: Cluster, tmp_path: Path):
    """On a machine without a daemon the status says of a shared database that another machine may run one."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    crew.up()
    with _beside(crew, tmp_path / "b", url) as other:
        other.environment["RINGFENCE_FLEET_DATABASE"] = url
        (first, *_) = other.does("fleet", "status").out.splitlines()
    assert "no daemon is running on this machine; unless another machine runs it," in first


def test_a_standby_that_is_stopped_ends(crew: FleetFiles, postgres: Cluster, tmp_path: Path):
    """A stopped standby exits with code 75, as it never worked; the active daemon is not disturbed."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    crew.up()
    with _beside(crew, tmp_path / "b", url) as other, other.start("fleet", "up", "--standby") as standby:
        assert standby.stderr is not None
        standby.stderr.readline()
        standby.terminate()
        standby.communicate(timeout=60)
    assert standby.returncode == 75
    assert crew.status()["is_ready"]


def test_a_standby_needs_a_shared_database(crew: FleetFiles):
    """A standby is refused with SQLite, which belongs to one machine."""
    crew.write(agents={"a": {"prompt": "p"}})
    refused = crew.run("fleet", "up", "--standby")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "set `fleet.engine.type: postgres`" in refused.err


def test_a_daemon_whose_database_another_has_taken_ends(crew: FleetFiles, postgres: Cluster):
    """A daemon that lost its lock to another one exits with code 75 and cancels nothing."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    with crew.start("fleet", "up") as daemon:
        crew.waits(crew.is_up, bool)
        job = crew.trigger("a")
        engine = sa.create_engine(Database(url).url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as link:
            holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = :key"
            holder = link.execute(sa.text(holders), {"key": KEY}).scalar_one()
            link.execute(
                sa.text("SELECT pg_terminate_backend(:pid), pg_advisory_lock(:key)"),
                {"pid": holder, "key": KEY},
            )
            _, said = daemon.communicate(timeout=60)
            state = link.execute(
                sa.text("SELECT state FROM fleet_jobs WHERE id = :id"), {"id": job}
            ).scalar_one()
    assert (daemon.returncode, "another daemon has taken over the fleet" in said) == (75, True), said
    assert state in ("queued", "starting")


def test_a_daemon_whose_connection_broke_goes_on(crew: FleetFiles, postgres: Cluster):
    """A daemon whose database connection broke acquires its lock again, and stays ready."""
    url = postgres.make_database()
    _write(crew, url, workers=0)
    crew.up()
    engine = sa.create_engine(Database(url).url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    holders = sa.text("SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = :key")
    with engine.connect() as link:

        def held_by() -> list[int]:
            return list(link.execute(holders, {"key": KEY}).scalars())

        (first,) = held_by()
        link.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": first})
        crew.waits(held_by, lambda found: found != [] and found != [first])
    assert crew.status()["is_ready"]

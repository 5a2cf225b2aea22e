"""The daemon from start to stop, and what remains when it is killed."""

import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing

import pytest
from tests.fleet.chaos import accounts
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def _shell(command: str) -> dict[str, object]:
    return {"name": "shell", "input": {"command": command, "reasoning": "r"}}


_SLOWLY = {"text": "wait", "tools": [_shell("sleep 600")]}


def _write(crew: FleetFiles, fleet: Mapping[str, object] | None = None, **agent: object) -> None:
    crew.write(
        fleet={"name": "c", "drain": "1s", **(fleet or {})},
        run={"model": crew.script("quick", {"text": "done"})},
        agents={"a": {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}, **agent}},
    )


def _write_slow(crew: FleetFiles, **fleet: object) -> None:
    _write(crew, fleet, run={"model": crew.script("slow", _SLOWLY, {"text": "done"})}, retry={"attempts": 1})


def _running(crew: FleetFiles, job: str) -> None:
    crew.waits(lambda: crew.job(job), lambda found: found["state"] == "running")


def _kept(crew: FleetFiles) -> tuple[str, str]:
    """Return state and reason of the fleet's one job, as a daemon that is gone left it."""
    (job,) = accounts.read(f"sqlite:///{crew.state}/fleet/fleet.db").jobs
    return job["state"], job["reason"]


@pytest.mark.any_user  # rows of a database
def test_a_worker_whose_row_is_gone_registers_again(crew: FleetFiles):
    """A live worker whose row was removed, for example while its machine slept, registers again and takes jobs."""
    _write(crew)
    crew.up()
    crew.waits(lambda: crew.client.get("workers"), bool)
    with closing(sqlite3.connect(crew.state / "fleet" / "fleet.db")) as database, database:
        database.execute("DELETE FROM fleet_workers")
    crew.waits(lambda: crew.client.get("workers"), lambda workers: workers == [])
    crew.waits(lambda: crew.client.get("workers"), bool)
    assert crew.ends(crew.trigger("a"))["state"] == "unverified"


@pytest.mark.any_user  # rows of a database, and its name
def test_state_and_configuration_of_the_last_version_are_taken_over(crew: FleetFiles):
    """Jobs in `crew.db` and a file with `crew:` are used under the new names, each with a notice in the log."""
    _write(crew)
    crew.up()
    job = crew.run("fleet", "trigger", "a", "--wait", "--json").json["id"]
    crew.does("fleet", "down")
    folder = crew.state / "fleet"
    (folder / "fleet.db").rename(folder / "crew.db")
    crew.file.write_text(crew.file.read_text().replace("fleet:", "crew:").replace('"fleet":', '"crew":'))
    crew.does("config", "trust", "--yes")
    crew.up()
    assert crew.job(job)["state"] == "unverified"
    assert ("was renamed to 'fleet.db'" in crew.log, "`crew` is called `fleet` now" in crew.log) == (
        True,
        True,
    )
    assert not (folder / "crew.db").exists()
    assert crew.status()["fleet"] == "c"


def _begins_again(crew: FleetFiles, job: str) -> None:
    """Start another daemon, which runs the job again: an interruption does not use up the agent's one attempt."""
    crew.up()
    crew.waits(lambda: crew.job(job), lambda found: (found["state"], found["attempt"]) == ("running", 2))


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.any_user("as with the other signal"))],
    ids=["term", "int"],
)
def test_a_job_that_outlasts_the_drain_begins_again_at_the_next_start(
    crew: FleetFiles, number: signal.Signals
):
    """After a signal the daemon exits with 0 within `drain`, names the jobs it leaves, and they lose no attempt."""
    _write_slow(crew)
    daemon = crew.start("fleet", "up")
    crew.waits(crew.is_up, bool)
    job = crew.trigger("a")
    _running(crew, job)
    daemon.send_signal(number)
    _, told = daemon.communicate(timeout=80)
    assert daemon.returncode == 0, told
    assert f"these jobs are queued again and start at the next `ringfence fleet up`: {job}" in told
    _begins_again(crew, job)


@pytest.mark.any_user  # rows of a database; other stops are tried as both users
def test_a_stop_queues_jobs_of_every_trigger_again(crew: FleetFiles):
    """Jobs of every trigger are queued again, not cancelled; claimed work stays claimed, and all jobs start again."""
    tasks = crew.home / "tasks"
    tasks.mkdir()
    watched = crew.project / "watched"
    watched.mkdir()
    slow = {"run": {"model": crew.script("slow", _SLOWLY, {"text": "done"})}, "prompt": "do it"}
    own = {"sandbox": {"mode": "clone"}, "retry": {"attempts": 1}, **slow}
    triggers: dict[str, dict[str, object]] = {
        "manual": {},
        "schedule": {"schedules": {"s": {"every": "1s"}}},
        "source": {"triggers": {"t": {"type": "directory", "path": str(tasks), "every": "0.2s"}}},
        "files": {"triggers": {"t": {"type": "files", "paths": ["*.go"], "settle": "0.1s"}}},
        "after": {"triggers": {"t": {"type": "after", "agent": "quick"}}},
    }
    agents: dict[str, dict[str, object]] = {name: {**own, **more} for name, more in triggers.items()}
    agents["files"]["workspace"] = str(watched)
    agents["quick"] = {**own, "run": {"model": crew.script("quick", {"text": "done"})}}
    crew.write(fleet={"name": "c", "drain": "1s"}, agents=agents)
    daemon = crew.start("fleet", "up")
    crew.waits(crew.is_up, bool)
    crew.trigger("manual")
    crew.ends(crew.trigger("quick"))
    (tasks / "task.md").write_text("mend it")
    (watched / "go.go").write_text("package main")

    def attempts() -> dict[str, tuple[str, int]]:
        running = [job for job in crew.jobs(limit=100) if job["state"] == "running"]
        return {job["trigger"]: (job["id"], job["attempt"]) for job in running}

    before = crew.waits(attempts, lambda found: found.keys() == triggers.keys())
    daemon.send_signal(signal.SIGTERM)
    _, log = daemon.communicate(timeout=80)
    assert daemon.returncode == 0, log
    books = accounts.read(f"sqlite:///{crew.state}/fleet/fleet.db")
    states = {job["trigger"]: job["state"] for job in books.jobs if job["agent"] != "quick"}
    assert states == dict.fromkeys(triggers, "queued")
    crew.up()
    after = {trigger: (job, attempt + 1) for trigger, (job, attempt) in before.items()}
    crew.waits(attempts, lambda found: found == after)


@pytest.mark.any_user  # what a record says
def test_a_run_that_its_daemons_death_ended_says_so(crew: FleetFiles):
    """The record of such a run gives another reason than that of a run which the user stopped."""
    _write_slow(crew)
    crew.up()
    job = crew.trigger("a")
    _running(crew, job)
    run = crew.job(job)["run_id"]
    crew.waits(lambda: crew.run("runs", "show", "--json", run).code, lambda code: code == 0)
    crew.kill(crew.status()["pid"])
    shown = crew.waits(
        lambda: crew.does("runs", "show", "--json", run).json, lambda found: found["state"] != "running"
    )
    assert (shown["state"], "the worker was stopped" in shown["reason"]) == ("interrupted", True), shown


def test_a_killed_daemon_goes_on_where_it_was(crew: FleetFiles):
    """A killed daemon loses nothing: the next one runs what ran and what waited, each job once."""
    _write(crew)
    crew.up()
    first = crew.trigger("a")
    crew.ends(first)
    crew.does("fleet", "agents", "disable", "a")
    waiting = [crew.trigger("a", "--key", str(number)) for number in range(3)]
    crew.kill(crew.status()["pid"])
    assert "no daemon is running" in crew.does("fleet", "status").out
    crew.up()
    assert crew.trigger("a", "--key", "1") == waiting[1]
    crew.does("fleet", "agents", "enable", "a")
    assert [crew.ends(job)["attempt"] for job in waiting] == [1, 1, 1]
    assert sorted(job["id"] for job in crew.jobs()) == sorted([first, *waiting])


@pytest.mark.any_user  # attempts, counted
def test_what_kills_its_worker_each_time_is_given_up(crew: FleetFiles):
    """A job whose worker dies in each attempt ends as interrupted once its attempts are used up."""
    _write(crew, run={"model": crew.script("slow", _SLOWLY, {"text": "done"})}, retry={"attempts": 1})
    crew.up()
    job = crew.trigger("a")
    _running(crew, job)
    (worker,) = crew.status()["workers"]
    crew.kill(worker)
    ended = crew.ends(job)
    assert ended["state"] == "interrupted"
    assert "in each of 1 attempts" in ended["reason"]


@pytest.mark.any_user  # times; other stops are tried as both users
def test_stopped_twice_it_does_not_wait(crew: FleetFiles):
    """`fleet down --now` does not wait, however long `drain` is; the job runs again at the next start."""
    _write_slow(crew, drain="1h")
    crew.up()
    job = crew.trigger("a")
    _running(crew, job)
    crew.does("fleet", "down", "--now")
    _begins_again(crew, job)


@pytest.mark.any_user  # what a file says of a process that is gone
def test_a_daemon_that_dies_while_it_stops_is_not_told_as_stopped(crew: FleetFiles):
    """`fleet down` reports a daemon that died before it stopped the fleet; its running jobs are kept."""
    _write_slow(crew, drain="1h")
    crew.up()
    _running(crew, crew.trigger("a"))
    stopping = crew.start("fleet", "down")
    crew.waits(lambda: crew.log, lambda log: "stopping" in log)
    crew.kill(crew.status()["pid"])
    _, told = stopping.communicate(timeout=60)
    assert (stopping.returncode, "ended before it had stopped the fleet" in told) == (75, True), told
    crew.up()
    crew.does("fleet", "down", "--now")
    assert _kept(crew)[0] == "queued"

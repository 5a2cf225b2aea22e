"""The history of a fleet: read without its daemon, and kept apart from that of other fleets."""

import sqlite3
from contextlib import closing

import pytest
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def _write(crew: FleetFiles) -> None:
    ends_well = crew.script("well", {"text": "done"})
    crew.write(
        fleet={"name": "c", "drain": "1s"},
        run={"model": ends_well},
        agents={
            "good": {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}},
            "bad": {
                "prompt": "do it",
                "workspace": ".",
                "sandbox": {"mode": "clone"},
                "run": {"verify": "false"},
            },
        },
    )


def _change(crew: FleetFiles, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(crew.state / "fleet" / "fleet.db")) as link, link:
        link.execute(statement, values)


def test_jobs_are_read_without_a_daemon(crew: FleetFiles):
    """`job ls`, `job show`, `job logs` and `fleet status` read database and records, and say that no daemon runs."""
    _write(crew)
    crew.up()
    good, bad = (crew.ends(crew.trigger(name))["id"] for name in ("good", "bad"))
    told = crew.does("fleet", "status").out
    assert "good: 0 queued, 0 running, 1 unverified" in told
    assert "bad: 0 queued, 0 running, 1 check_red" in told
    with_daemon = [crew.does("job", *words, "--json").json for words in (("ls",), ("show", bad))]
    logs = crew.does("job", "logs", good).out
    crew.does("fleet", "agents", "disable", "good")
    waiting = crew.trigger("good")
    crew.does("fleet", "down")
    status = crew.does("fleet", "status")
    assert "no daemon is running; `ringfence fleet up` starts it" in status.out
    assert "good: 1 queued, 0 unfinished, 1 unverified" in status.out
    assert crew.does("fleet", "status", "--json").json["pid"] is None
    jobs = crew.does("job", "ls", "--json").json["jobs"]
    assert [job["id"] for job in jobs] == [waiting, bad, good]
    assert [{"jobs": jobs[1:]}, crew.does("job", "show", bad[-8:], "--json").json] == [
        {"jobs": with_daemon[0]["jobs"]},
        with_daemon[1],
    ]
    assert crew.does("job", "logs", good).out == logs
    assert "no daemon is running" in crew.does("job", "logs", "--follow", waiting).err
    assert [job["id"] for job in crew.does("job", "ls", "--state", "check_red", "--json").json["jobs"]] == [
        bad
    ]


def test_a_job_that_cannot_be_read_stops_no_other(crew: FleetFiles):
    """A job that a newer version wrote is left alone; log and status report it, and other jobs start and end."""
    _write(crew)
    crew.up()
    first = crew.ends(crew.trigger("good"))["id"]
    _change(crew, "UPDATE fleet_jobs SET state = 'of_tomorrow', is_followed = 0 WHERE id = ?", first)
    assert crew.ends(crew.trigger("good"))["state"] == "unverified"
    assert crew.does("fleet", "status", "--json").json["unreadable"] == 1
    crew.waits(lambda: crew.log, lambda log: f"job {first} is left alone" in log)
    assert first not in [job["id"] for job in crew.does("job", "ls", "--json").json["jobs"]]


@pytest.mark.parametrize("options", [(), ("--detach",)], ids=["foreground", "detached"])
def test_another_fleet_is_not_told_to_end_the_first(crew: FleetFiles, options: tuple[str, ...]):
    """A second fleet is told which fleet uses the state directory, and to take another; the same one, that it runs."""
    _write(crew)
    crew.up()
    again = crew.run("fleet", "up", *options)
    assert (again.code, "fleet reload" in again.err) == (2, True), again
    other = crew.home / "other"
    other.mkdir()
    (other / "ringfence.yaml").write_text("fleet: {name: other}\nagents: {a: {prompt: x}}\n")
    crew.run("config", "trust", str(other / "ringfence.yaml"), "--yes")
    second = crew.run("fleet", "up", *options, cwd=other)
    assert second.code == 2
    assert str(crew.file) in second.err
    assert "RINGFENCE_STATE_DIR=" in second.err
    assert "fleet down" not in second.err


def test_histories_of_two_fleets_do_not_mix(crew: FleetFiles):
    """Two fleets that take turns in one state directory see their own jobs only, even if agents share a name."""
    _write(crew)
    crew.up()
    first = crew.ends(crew.trigger("good"))["id"]
    crew.does("fleet", "down")
    other = crew.home / "other"
    other.mkdir()
    (other / "ringfence.yaml").write_text(crew.file.read_text())
    crew.does("config", "trust", str(other / "ringfence.yaml"), "--yes")
    begun = crew.run("fleet", "up", "--detach", cwd=other)
    assert begun.code == 0, begun
    assert crew.does("job", "ls", "--json").json["jobs"] == []
    second = crew.ends(crew.trigger("good"))["id"]
    crew.does("fleet", "down")
    for directory, job in ((crew.project, first), (other, second)):
        (found,) = crew.run("job", "ls", "--json", cwd=directory).json["jobs"]
        assert found["id"] == job
    crew.up()
    assert [job["id"] for job in crew.jobs()] == [first]

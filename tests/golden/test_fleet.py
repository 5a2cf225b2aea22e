"""The database of a fleet whose daemon, workers and jobs were killed at the same moment."""

import time
from collections.abc import Iterator

import pytest

from .conftest import Unpack
from .product import TIMEOUT_S, Golden


@pytest.fixture
def fleet(golden: Unpack) -> Iterator[Golden]:
    """The fleet, with a daemon that was started on the recorded state."""
    found = golden("fleet")
    found.run("fleet up", "--detach")
    yield found
    found.run("fleet down", "--now")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_killed_fleet_continues(fleet: Golden):
    """Ended jobs stay as they are, the running job is retried, the queued one runs.

    Keys of jobs, schedules and the state of agents are kept.
    """
    recorded = fleet.facts["states"]
    assert set(recorded.values()) == {"succeeded", "check_red", "cancelled", "queued", "running"}
    schedules = {row["name"]: row for row in fleet.run("schedules ls", "--json").json["schedules"]}
    assert schedules["monthly"]["next_at"] is None
    assert schedules["yearly"]["next_at"].endswith("-02-29T02:00:00Z")
    agents = {row["name"]: row["is_enabled"] for row in fleet.run("agents ls", "--json").json["agents"]}
    assert agents == {"writer": True, "failing": True, "slow": True, "disabled": False}
    triggered = fleet.run("fleet trigger", "slow", "--key", "first", "--json").json
    assert triggered["job"]["id"] == fleet.facts["jobs"]["running"]

    await_ends(fleet, "running", "queued")
    assert job_states(fleet) == {**recorded, "running": "unverified", "queued": "unverified"}
    assert [attempts(fleet, name) for name in ("succeeded", "running", "queued")] == [1, 2, 1]
    assert "Written." in fleet.run("job logs", fleet.facts["jobs"]["succeeded"]).stdout
    fleet.run("agents enable", "disabled")
    fleet.run("schedules resume", "writer/monthly")
    await_ends(fleet, "disabled")
    fleet.run("runs verify", "--all")


def test_the_socket_of_a_killed_daemon_is_recognized(golden: Unpack):
    """A command that needs the daemon says how to start it."""
    assert "ringfence fleet up" in golden("fleet").run("fleet reload", code=2).stderr


def job_states(fleet: Golden) -> dict[str, str]:
    """The state of each job, by the state in which it was recorded."""
    rows = {row["id"]: row["state"] for row in fleet.run("job ls", "--json").json["jobs"]}
    return {name: rows[job] for name, job in fleet.facts["jobs"].items()}


def attempts(fleet: Golden, name: str) -> int:
    """The number of attempts that were made at a job."""
    return int(fleet.run("job show", fleet.facts["jobs"][name], "--json").json["attempt"])


def await_ends(fleet: Golden, *names: str) -> None:
    """Wait until jobs have ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while not {"queued", "starting", "running"}.isdisjoint(
        (states := job_states(fleet))[name] for name in names
    ):
        assert time.monotonic() < deadline, states
        time.sleep(0.5)

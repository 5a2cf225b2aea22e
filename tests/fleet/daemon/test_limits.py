"""Time limits of jobs, and what a schedule does while its last job runs: one daemon for all of these tests."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles
from tests.real_clients.clients import clients_in

pytestmark = pytest.mark.slow


def _claude() -> Path | None:
    """Return the real program, if it is installed."""
    named = os.environ.get("TEST_CLIENTS")
    found = clients_in(Path(named)) if named else {}
    return found["claude"].program if found else None


@pytest.fixture(scope="module")
def works(make_crew: Make) -> FleetFiles:
    """A fleet whose jobs run until something ends them."""
    crew = make_crew()
    slow = crew.script("slow", {"text": "wait", "tools": [{"run": "sleep 600"}]}, {"text": "done"})
    common = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}, "run": {"model": slow}}

    def timed(overlap: str, every: str) -> dict[str, Any]:
        return {**common, "queue": 2, "schedules": {"often": {"every": every, "overlap": overlap}}}

    crew.write(
        fleet={"name": "c", "concurrency": 8, "drain": "1s"},
        agents={
            "walled": {**common, "limits": {"wall_clock": "2s"}},
            "silent": {
                **common,
                "run": {"model": slow, "runtime": "claude-cli"},
                "client": {"path": str(_claude() or "/nowhere"), "idle_timeout": "3s"},
                "retry": {"attempts": 1},
            },
            "skips": timed("skip", "1s"),
            "queues": timed("queue", "1s"),
            "replaces": timed("replace", "2s"),
        },
    )
    crew.up()
    return crew


def _first_running(crew: FleetFiles, agent: str) -> Any:
    """Wait for a running job of an agent; return it."""
    return crew.waits(lambda: crew.jobs(agent=agent, state="running"), bool)[0]


def test_a_job_ends_at_its_wall_clock_limit(works: FleetFiles):
    """A job that exceeds its wall-clock limit ends as timed out, and the reason names the limit."""
    ended = works.ends(works.trigger("walled"))
    assert (ended["state"], ended["attempt"]) == ("timed_out", 1)
    assert "2s" in ended["reason"]


def test_a_client_that_falls_silent_is_ended(works: FleetFiles):
    """`client.idle_timeout` ends an agent CLI that prints nothing for so long; the reason says so."""
    if _claude() is None:
        lacking = "TEST_CLIENTS names no directory with claude; `scripts/clients.sh` makes one"
        (pytest.fail if os.environ.get("TEST_REQUIRES_CLIENTS") else pytest.skip)(lacking)
    ended = works.ends(works.trigger("silent"))
    assert ended["state"] == "infrastructure", ended["reason"]
    assert "printed nothing for 3 s" in ended["reason"]


def test_a_slot_is_skipped_while_the_last_job_goes_on(works: FleetFiles):
    """With `overlap: skip` due times pass without a job until the last job has ended; the next one creates a job."""
    first = _first_running(works, "skips")

    def next_at() -> Any:
        found = works.does("fleet", "schedules", "ls", "--json").json["schedules"]
        return next(each["next_at"] for each in found if each["agent"] == "skips")

    seen: set[Any] = set()
    works.waits(lambda: seen.add(next_at()), lambda _: len(seen) >= 3)
    assert [job["id"] for job in works.jobs(agent="skips")] == [first["id"]]
    works.does("job", "cancel", first["id"])
    second, only = works.waits(lambda: works.jobs(agent="skips"), lambda found: len(found) == 2)
    assert only["id"] == first["id"]
    assert (second["trigger"], second["trigger_name"]) == ("schedule", "often")


def test_slots_are_queued_while_the_last_job_goes_on(works: FleetFiles):
    """With `overlap: queue` the job of each due time waits, the oldest first, up to the agent's `queue`."""
    first = _first_running(works, "queues")

    def queued() -> list[Any]:
        return works.jobs(agent="queues", state="queued")

    third, second = works.waits(queued, lambda found: len(found) == 2)
    works.waits(lambda: works.log, lambda log: "agent 'queues' has 2 queued jobs, the maximum" in log)
    assert {job["id"] for job in queued()} == {second["id"], third["id"]}
    works.does("job", "cancel", first["id"])
    works.waits(lambda: works.job(second["id"])["state"], lambda state: state == "running")


def test_a_slots_job_takes_the_place_of_the_last(works: FleetFiles):
    """With `overlap: replace` the live job is cancelled, with the new job as its reason, and the newest runs."""

    def replaced() -> list[Any]:
        return works.jobs(agent="replaces", state="cancelled")

    works.waits(replaced, lambda found: len(found) >= 2)
    works.does("fleet", "schedules", "pause", "replaces/often")
    newest, *others = works.jobs(agent="replaces")
    works.waits(lambda: works.job(newest["id"])["state"], lambda state: state == "running")
    for job, next_one in zip(others, [newest, *others], strict=False):
        assert works.ends(job["id"])["reason"] == f"replaced by job {next_one['id']}"

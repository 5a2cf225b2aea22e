"""The structured log of a fleet."""

import json

import pytest
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def test_each_line_of_the_log_is_an_event(crew: FleetFiles):
    """With `log_format: json` daemon and workers log one JSON object a line; lines about a job name it."""
    crew.write(
        fleet={"name": "c", "drain": "1s", "log_format": "json"},
        run={"model": crew.script("quick", {"text": "done"})},
        agents={"a": {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}},
    )
    crew.up()
    job = crew.run("fleet", "trigger", "a", "--wait", "--json").json
    crew.does("fleet", "down")
    said = [json.loads(line) for line in crew.log.splitlines() if line]
    assert {"time", "level", "event", "message"} <= set.intersection(*map(set, said))
    mine = {one["event"]: one for one in said if one.get("job") == job["id"]}
    assert mine.keys() >= {"job.started", "job.ended"}
    ended = mine["job.ended"]
    assert (ended["state"], ended["run"], ended["agent"]) == ("unverified", job["run_id"], "a")


def test_what_its_user_has_it_do_is_in_the_log(crew: FleetFiles):
    """A reload with its changes, a failed reload, and the stop are logged, whoever requests them."""
    agent = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}
    crew.write(fleet={"name": "c", "drain": "1s", "log_format": "json"}, agents={"a": agent})
    crew.up()
    crew.write(
        fleet={"name": "c", "drain": "1s", "log_format": "json"}, agents={"a": {**agent, "priority": 3}}
    )
    crew.does("fleet", "reload")
    crew.file.write_text("agents: {a: {promt: x}}")
    assert crew.run("fleet", "reload").code == 78
    crew.does("fleet", "down")
    said = [json.loads(line) for line in crew.log.splitlines()]
    assert [one["event"] for one in said] == [
        "fleet.ready",
        "fleet.changed",
        "fleet.reloaded",
        "reload.failed",
        "fleet.stopping",
        "fleet.stopped",
    ]
    assert said[1]["message"].startswith("agents.a.priority: ")
    assert "did you mean 'prompt'?" in said[3]["message"]
    assert (said[4]["message"], said[5]["message"]) == (
        "stopping: running jobs have 1s to end; the rest is queued again",
        "fleet 'c' is down",
    )


def test_the_option_goes_before_the_file(crew: FleetFiles):
    """`--log-format` applies to daemon and workers alike, and with `--detach`, too."""
    crew.write(agents={"a": {"prompt": "do it", "workspace": "."}})
    crew.does("fleet", "up", "--detach", "--log-format", "json")
    assert json.loads(crew.log.splitlines()[0])["event"] == "fleet.ready"

"""A daemon that runs a herdctl fleet."""

import json

import pytest
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def test_a_fleet_of_herdctls_is_kept_as_it_is(crew: FleetFiles):
    """A herdctl fleet's schedules have qualified names; a change of any of its files applies once it is trusted."""
    file = crew.project / "herdctl.yaml"
    file.write_text("fleets: [{path: low}]\nweb: {enabled: true}\n")
    (crew.project / "low").mkdir()
    (crew.project / "low" / "herdctl.yaml").write_text("agents: [{path: b.yaml}]\n")
    agent = crew.project / "low" / "b.yaml"
    agent.write_text("name: b\ndefault_prompt: one\nschedules: {s: {type: cron, cron: '0 9 * * *'}}\n")
    crew.does("config", "trust", "--yes", "herdctl.yaml")
    ended = crew.does("fleet", "up", "--detach", "--file", "herdctl.yaml")
    assert "2 herdctl keys cannot be converted unchanged" in ended.err
    crew.waits(crew.is_up, bool)
    (found,) = crew.does("fleet", "schedules", "ls", "--json").json["schedules"]
    assert (found["agent"], found["name"]) == ("low.b", "s")
    agent.write_text(agent.read_text().replace("one", "two"))
    assert crew.run("fleet", "reload").code == 4
    crew.does("config", "trust", "--yes", "herdctl.yaml")
    assert crew.does("fleet", "reload", "--json").json["changes"] == [
        "agents.low.b.prompt: was 'one', is 'two'"
    ]


def test_an_included_agent_of_herdctls_does_a_job(crew: FleetFiles):
    """A herdctl agent that is included with another runtime works on herdctl's prompt."""
    model = crew.script("quick", {"text": "done"})
    (crew.project / "herdctl.yaml").write_text("fleet: {name: herd}\nagents: [{path: a.yaml}]\n")
    (crew.project / "a.yaml").write_text("name: a\ndefault_prompt: herdctl's prompt\n")
    overrides = {"run": {"runtime": "api", "model": model}, "client": {"permission_mode": None}}
    crew.file.write_text(json.dumps({"include": [{"file": "herdctl.yaml", "overrides": overrides}]}))
    crew.does("config", "trust", "--yes", "herdctl.yaml")
    crew.does("config", "trust", "--yes")
    crew.up()
    crew.waits(crew.is_up, bool)
    job = crew.ends(crew.trigger("herd.a"))
    assert (job["state"], job["prompt"]) == ("unverified", "herdctl's prompt")

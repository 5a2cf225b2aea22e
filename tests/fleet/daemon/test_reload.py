"""Changes to a fleet's files while it runs."""

import json
import os
import signal

import pytest
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def test_a_reload_prints_what_changed_and_disturbs_no_job(crew: FleetFiles):
    """`fleet diff` prints what a reload would change, and `reload` applies it; a running job ends as it began."""
    slow = [{"text": "wait", "tools": [{"name": "shell", "input": {"command": "sleep 4", "reasoning": "r"}}]}]
    agent = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}
    before = {"run": {"model": crew.script("slow", *slow, {"text": "as it was"})}, "agents": {"a": agent}}
    crew.write(**before)
    crew.up()
    pid, job = crew.status()["pid"], crew.trigger("a")
    crew.waits(lambda: crew.job(job), lambda found: found["state"] == "running")
    after = {
        "run": {"model": crew.script("quick", {"text": "as it is"})},
        "agents": {"a": {**agent, "limits": {"turns": 5}}, "b": agent},
    }
    crew.write(**after)
    pending = crew.does("fleet", "diff").out.splitlines()
    assert "agents.a.limits.turns: is 5" in pending
    assert any(line.startswith("agents.b.prompt: is ") for line in pending)
    assert crew.does("fleet", "reload", "--json").json["changes"] == pending
    assert crew.does("fleet", "diff").out == "nothing has changed\n"
    assert crew.run("fleet", "trigger", "b", "--wait", "--json").json["answer"] == "as it is"
    ended = crew.ends(job)
    assert (ended["answer"], ended["attempt"], crew.status()["pid"]) == ("as it was", 1, pid)


def test_changes_that_wait_for_the_next_start_say_so(crew: FleetFiles):
    """The output of `fleet diff` names the keys that take effect at the next start, a higher concurrency among them."""
    agents = {"a": {"prompt": "do it", "workspace": "."}}
    crew.write(fleet={"concurrency": 3}, agents=agents)
    crew.up()
    crew.write(fleet={"name": "n", "log_format": "json", "drain": "1s", "concurrency": 5}, agents=agents)
    at_start = [
        line
        for line in crew.does("fleet", "diff").out.splitlines()
        if line.endswith("(from the next start on)")
    ]
    assert [line.partition(":")[0] for line in at_start] == [
        "fleet.concurrency",
        "fleet.log_format",
        "fleet.name",
    ]
    crew.write(fleet={"concurrency": 2}, agents=agents)
    assert crew.does("fleet", "diff").out == "fleet.concurrency: was 3, is 2\n"


def test_a_reload_that_fails_leaves_all_as_it_was(crew: FleetFiles):
    """Neither invalid files, read on a signal, nor files that are not trusted change the running fleet."""
    crew.write(
        run={"model": crew.script("quick", {"text": "done"})},
        agents={"a": {"prompt": "do it", "workspace": "."}},
    )
    crew.up()
    pid = crew.status()["pid"]
    crew.file.write_text(json.dumps({"agents": {"a": {}, "b": {"pomt": "x"}}}))
    os.kill(pid, signal.SIGHUP)
    crew.waits(lambda: crew.log, lambda log: "the configuration is unchanged" in log)
    crew.file.write_text(json.dumps({"agents": {"a": {}, "b": {}}}))
    untrusted = crew.run("fleet", "reload")
    assert (untrusted.code, "ringfence config trust" in untrusted.err) == (4, True)
    assert (crew.status()["pid"], [agent["name"] for agent in crew.client.get("agents")]) == (pid, ["a"])

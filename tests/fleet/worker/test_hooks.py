"""Hooks of jobs in a running fleet."""

import json
import sys
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles
from tests.fleet.receiver import receiver

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def works(make_crew: Make) -> FleetFiles:
    """A fleet with an agent for each kind of hook."""
    crew = make_crew()
    common: dict[str, Any] = {
        "prompt": "do it",
        "workspace": ".",
        "sandbox": {"mode": "clone"},
        "run": {"model": crew.script("quick", {"text": "the answer"})},
    }
    looks = 'grep -q \'"answer": "the answer"\' && test ! -e /etc/shadow-copy && exit 5'
    made = {"name": "shell", "input": {"command": "echo made > made.txt", "reasoning": "r"}}
    making = crew.script("making", {"text": "now", "tools": [made]}, {"text": "done"})
    host = f"env > {crew.home}/variables; cat > {crew.home}/facts.json"
    crew.environment["SOME_API_KEY"] = "not for hooks"

    def command(text: str, **more: Any) -> list[Any]:
        return [{"type": "command", "command": text, **more}]

    crew.write(
        fleet={"name": "c", "drain": "1s"},
        agents={
            "guarded": {**common, "hooks": {"before_run": command("exit 3", required=True)}},
            "warned": {**common, "hooks": {"before_run": command("exit 3")}},
            "making": {
                **common,
                "run": {"model": making},
                "hooks": {
                    "after_run": [
                        *command("cp made.txt of-a-hook.txt"),
                        *command("test ! -e gone.txt && grep -q made of-a-hook.txt && exit 6"),
                    ]
                },
            },
            "looking": {**common, "hooks": {"after_run": command(looks)}},
            "host": {
                **common,
                "unsafe": ["host_hooks"],
                "hooks": {"on_success": command(host, where="host")},
            },
            "slowly": {**common, "hooks": {"before_run": command("sleep 60", required=True, timeout="1s")}},
        },
    )
    crew.up()
    return crew


def test_a_required_hook_stops_a_job(works: FleetFiles):
    """A job whose required hook fails does not start, and fails with the hook's reason."""
    ended = works.run("fleet", "trigger", "guarded", "--wait", "--json")
    assert (ended.code, ended.json["state"], ended.json["tokens"]) == (1, "failed", 0)
    assert "hook 1 before the run failed" in ended.json["reason"]


def test_another_hook_that_fails_is_only_told(works: FleetFiles):
    """A failed hook that is not required does not stop the job; the log reports it."""
    ended = works.run("fleet", "trigger", "warned", "--wait", "--json").json
    assert ended["state"] == "unverified"
    works.waits(lambda: works.log, lambda log: f"job {ended['id']}: hook before_run 1" in log)


def test_a_hook_runs_in_a_sandbox_and_is_in_the_record(works: FleetFiles):
    """A hook reads the facts from stdin, and has a record like any run: sealed, with command and exit code."""
    job = works.run("fleet", "trigger", "looking", "--wait", "--json").json["id"]
    log = works.waits(lambda: works.log, lambda log: f"job {job}: hook after_run 1: run " in log)
    run = log.partition(f"job {job}: hook after_run 1: run ")[2].partition(":")[0]
    records = works.does("runs", "logs", "--json", run).out
    assert '"purpose":"exec"' in records.replace(" ", "")
    assert works.does("runs", "verify", run).code == 0
    assert "5" in log.partition(run)[2].partition("\n")[0]


def test_hooks_after_a_run_on_a_private_copy_find_what_it_made(works: FleetFiles):
    """Each hook works on its own copy, with the changes of the run and earlier hooks; the workspace is unchanged."""
    job = works.run("fleet", "trigger", "making", "--wait", "--json").json["id"]
    log = works.waits(lambda: works.log, lambda log: f"job {job}: hook after_run 2: run " in log)
    (told,) = [line for line in log.splitlines() if f"job {job}: hook after_run 2: run " in line]
    assert "6" in told.rpartition(": ")[2]
    assert not (works.home / "made.txt").exists()


def test_a_hook_that_hangs_is_ended(works: FleetFiles):
    """A hook that exceeds its time limit is ended."""
    ended = works.run("fleet", "trigger", "slowly", "--wait", "--json")
    assert (ended.json["state"], "longer than 1 s" in ended.json["reason"]) == ("failed", True)


def test_a_hook_on_the_host_has_the_facts_too(works: FleetFiles):
    """A hook with `where: host` runs outside the sandbox, with the facts but without other secrets."""
    job = works.run("fleet", "trigger", "host", "--wait", "--json").json["id"]
    facts = works.waits(lambda: works.home / "facts.json", lambda file: file.exists() and file.read_text())
    told = json.loads(facts.read_text())
    assert (told["event"], told["job"]["id"], told["answer"]) == ("on_success", job, "the answer")
    assert "not for hooks" not in (works.home / "variables").read_text()
    assert "PATH=" in (works.home / "variables").read_text()


def test_a_hook_on_the_host_must_be_named(crew: FleetFiles):
    """Without `unsafe: [host_hooks]` the configuration is refused, at its place."""
    hook = {"type": "command", "command": sys.executable, "where": "host"}
    crew.file.write_text(json.dumps({"agents": {"a": {"prompt": "x", "hooks": {"after_run": [hook]}}}}))
    ended = crew.run("fleet", "validate")
    assert (ended.code, "unsafe: [host_hooks]" in ended.err) == (78, True)


def test_a_message_is_sent_again_until_it_is_taken(crew: FleetFiles):
    """A message that a busy service refused is sent again with the same delivery id."""
    with receiver(503) as told:
        hook = {"type": "webhook", "url": told.url}
        agent = {
            "prompt": "do it",
            "workspace": ".",
            "sandbox": {"mode": "clone"},
            "hooks": {"on_success": [hook]},
        }
        crew.write(agents={"a": agent}, run={"model": crew.script("quick", {"text": "done"})})
        crew.up()
        crew.run("fleet", "trigger", "a", "--wait")
        first, second = told.take(), told.take()
    assert first[0]["x-ringfence-delivery"] == second[0]["x-ringfence-delivery"]
    assert json.loads(second[1])["event"] == "on_success"

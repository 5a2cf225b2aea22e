"""The commands of a fleet: one daemon for most of these tests."""

import json
import os
import re
from datetime import datetime
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def _shell(command: str) -> dict[str, object]:
    return {"name": "shell", "input": {"command": command, "reasoning": "r"}}


@pytest.fixture(scope="module")
def works(make_crew: Make) -> FleetFiles:
    """A fleet with an agent for each way in which a job can end."""
    crew = make_crew()
    quick = crew.script("quick", {"text": "done \x1b[31mred\u202e"})
    busy = crew.script("busy", {"text": "wait", "tools": [_shell("true")]}, {"text": "done"})
    writes = crew.script("writes", {"text": "so", "tools": [_shell("echo 1 > made")]}, {"text": "done"})
    links = crew.script("links", {"text": "so", "tools": [_shell("ln -sf made was_file")]}, {"text": "done"})
    (crew.project / "was_file").write_text("1\n")
    common = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}
    crew.write(
        fleet={"name": "c", "concurrency": 8, "drain": "1s", "webhooks": {"address": "127.0.0.1:0"}},
        secrets={"hook": "env:HOOK"},
        run={"model": quick},
        agents={
            "good": {**common, "concurrency": 4},
            "red": {**common, "run": {"model": quick, "verify": "false"}},
            "limited": {**common, "run": {"model": busy}, "limits": {"turns": 1}},
            "broken": {**common, "run": {"model": "scripted:/nowhere.yaml"}},
            "writes": {**common, "run": {"model": writes}},
            "links": {**common, "run": {"model": links}},
            "resting": {**common, "enabled": False},
            "timed": {
                **common,
                "schedules": {
                    "daily": {"cron": "30 6 * * *", "timezone": "Europe/Berlin"},
                    "often": {"every": "1h", "enabled": False},
                },
                "triggers": {
                    "pushed": {"type": "webhook", "secret": "${secret:hook}"},
                    "edited": {"type": "files", "paths": ["*.md", "src/"]},
                    "followed": {"type": "after", "agent": "resting", "states": ["failed"]},
                    "asked": {"type": "directory", "path": "/nowhere"},
                },
            },
        },
    )
    crew.up()
    return crew


@pytest.mark.parametrize(
    ("agent", "code", "state"),
    [
        ("good", 9, "unverified"),
        ("red", 3, "check_red"),
        ("limited", 5, "limit"),
        ("broken", 78, "configuration"),
    ],
)
def test_the_exit_code_of_a_wait_is_the_jobs(works: FleetFiles, agent: str, code: int, state: str):
    """`fleet trigger --wait` ends with the exit code that `ringfence run` would have for the job's end."""
    ended = works.run("fleet", "trigger", agent, "--wait", "--json")
    assert (ended.json["state"], ended.code) == (state, code)


def test_who_follows_a_job_that_waits_is_told_why(works: FleetFiles):
    """`job logs -f` gives the reason why a job waits, before there is a record to follow."""
    job = works.trigger("resting")
    following = works.start("job", "logs", "-f", job)
    assert following.stderr is not None
    assert following.stderr.readline().endswith("waits: the agent is disabled by its configuration\n")
    works.does("job", "cancel", job)
    following.communicate(timeout=90)


def test_a_job_without_a_record_promises_none(works: FleetFiles):
    """For a job that ended before a run began, `job show` prints no diff command, and `job logs` says how it ended."""
    job = works.trigger("broken")
    works.ends(job)
    assert "`ringfence diff" not in works.does("job", "show", job).out
    assert "has no record on this machine (configuration: " in works.does("job", "logs", job).err


@pytest.mark.parametrize("agent", ["broken", "resting"])
def test_nothing_goes_on_from_a_job_that_never_began(works: FleetFiles, agent: str):
    """`job fork` of such a job is refused at once, with an alternative; no job is created."""
    job = works.trigger(agent)
    if agent == "resting":
        works.does("job", "cancel", job)
    works.ends(job)
    refused = works.run("job", "fork", job, "-p", "more")
    assert (refused.code, refused.out) == (2, "")
    assert "left nothing to resume" in refused.err
    assert f"`ringfence job retry {job}` does its task from the start" in refused.err
    assert works.jobs(agent=agent, limit=1)[0]["id"] == job


def test_an_agent_is_shown_with_what_makes_its_jobs(works: FleetFiles):
    """An agent is shown with its schedules and triggers, and what each trigger waits for, as text and as JSON."""
    lines = works.does("fleet", "agents", "show", "timed").out.splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith("schedule ")] == [
        "schedule daily",
        "schedule often",
    ]
    assert [line for line in lines if line.startswith("trigger")] == [
        "trigger pushed: a request to /hooks/timed/pushed",
        "trigger edited: a change of *.md, src/",
        "trigger followed: a job of resting ends as failed",
        "trigger asked: a task file in /nowhere",
    ]
    found = works.does("fleet", "agents", "show", "timed", "--json").json["triggers"]
    assert [each["type"] for each in found] == ["webhook", "files", "after", "directory"]


def test_who_waits_is_told_why(works: FleetFiles):
    """`fleet trigger --wait` prints once what a job waits for, if that takes long."""
    waiting = works.start("fleet", "trigger", "resting", "--wait")
    assert waiting.stderr is not None
    said = waiting.stderr.readline()
    assert said.startswith("ringfence: job ")
    assert "waits: the agent is disabled by its configuration" in said
    works.does("job", "cancel", works.jobs(agent="resting", limit=1)[0]["id"])
    assert waiting.communicate(timeout=90)[1] == ""
    assert waiting.returncode == 130


def test_logs_follow_a_job_to_its_end(works: FleetFiles):
    """`job logs -f` may start before the job, and ends with it; control characters of the agent are not printed."""
    works.does("fleet", "agents", "disable", "good")
    job = works.trigger("good")
    following = works.start("job", "logs", "--follow", job)
    works.does("fleet", "agents", "enable", "good")
    out, said = following.communicate(timeout=90)
    assert following.returncode == 0, said
    assert "sealed" in out.splitlines()[-1]
    assert "\x1b[31m" not in out
    assert "\u202e" not in out
    lines = [json.loads(line) for line in works.does("job", "logs", "--json", job).out.splitlines()]
    assert lines[0]["event"] == "journal.opened"


def test_logs_follow_a_job_through_its_attempts(crew: FleetFiles):
    """Where a worker dies, `job logs -f` says so, continues with the next attempt, and ends with the job."""
    model = crew.script("slow", {"text": "wait", "tools": [_shell("sleep 600")]}, {"text": "done"})
    common = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}
    crew.write(agents={"a": {**common, "run": {"model": model}}})
    crew.up()
    job = crew.trigger("a")
    crew.waits(lambda: crew.job(job)["state"], lambda state: state == "running")
    following = crew.start("job", "logs", "-f", "--json", job)
    assert following.stdout is not None
    first = following.stdout.readline()
    crew.kill(crew.status()["workers"][0])
    crew.waits(lambda: crew.job(job), lambda found: (found["state"], found["attempt"]) == ("running", 2))
    crew.does("job", "cancel", job)
    out, said = following.communicate(timeout=90)
    events = [json.loads(line)["event"] for line in (first + out).splitlines()]
    assert (following.returncode, events.count("journal.opened"), events[-1]) == (0, 2, "journal.sealed"), (
        said
    )
    assert said == f"ringfence: job {job}: the attempt ended, but not the job; attempt 2 follows\n"


def test_a_job_that_runs_again_is_listed_with_its_task(crew: FleetFiles):
    """While a later attempt runs, the list has the task of a job, and not why the attempt before ended."""
    model = crew.script("slow", {"text": "wait", "tools": [_shell("sleep 600")]}, {"text": "done"})
    common = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}}
    crew.write(fleet={"name": "c", "drain": "1s"}, agents={"a": {**common, "run": {"model": model}}})
    crew.up()
    job = crew.trigger("a")
    crew.waits(lambda: crew.job(job)["state"], lambda state: state == "running")
    crew.does("fleet", "down", "--now")
    crew.up()
    again = crew.waits(
        lambda: crew.job(job), lambda found: (found["state"], found["attempt"]) == ("running", 2)
    )
    assert again["reason"] == "its worker was stopped"
    assert crew.does("job", "ls").out.splitlines()[1].endswith("do it")
    crew.does("job", "cancel", job)


def test_work_on_a_private_copy_is_told_with_what_brings_it_in(works: FleetFiles):
    """Waiting for a job and showing it print the command that applies its changes to the workspace."""
    waited = works.run("fleet", "trigger", "writes", "--wait")
    run = works.job(waited.out.split()[0])["run_id"][-8:]
    told = f"ringfence: the changes are in a private copy; apply them with `ringfence apply {run}`\n"
    assert (waited.err, works.does("job", "show", waited.out.split()[0]).err) == (told, told)
    assert works.run("fleet", "trigger", "good", "--wait").err == ""


def test_jobs_of_an_agent_that_is_gone_are_in_the_status(crew: FleetFiles):
    """A waiting job whose agent is no longer configured is shown with its agent's name."""
    agent = {
        "prompt": "do it",
        "workspace": ".",
        "enabled": False,
        "run": {"model": "scripted:/nowhere.yaml"},
    }
    crew.write(agents={"old": agent})
    crew.up()
    crew.trigger("old")
    crew.write(agents={"new": agent})
    crew.does("fleet", "reload")
    assert "  old: 1 queued  waits: there is no such agent any more\n" in crew.does("fleet", "status").out
    assert len(crew.jobs(agent="old")) == 1
    assert crew.jobs(agent="old", state="failed") == []


def test_who_waits_is_told_that_the_daemon_died(crew: FleetFiles):
    """A command that waits for a job when the daemon is killed says that the job is kept, and how to continue it."""
    agent = {
        "prompt": "do it",
        "workspace": ".",
        "enabled": False,
        "run": {"model": "scripted:/nowhere.yaml"},
    }
    crew.write(agents={"a": agent})
    crew.up()
    waiting = crew.start("fleet", "trigger", "a", "--wait")
    (job,) = crew.waits(crew.jobs, bool)
    crew.kill(crew.status()["pid"])
    _, said = waiting.communicate(timeout=90)
    last = said.splitlines()[-1]
    assert waiting.returncode == 75
    assert f"while this command waited for job {job['id']}" in last
    assert f"run `ringfence fleet up -d` to continue it, then `ringfence job show {job['id']}`" in last


def test_what_will_not_work_here_is_foreseen(crew: FleetFiles):
    """`fleet validate` warns of missing files with their place, of workspaces that root owns, and of missing agents."""
    crew.write(agents={})
    assert crew.does("fleet", "validate", "--json").json["warnings"] == [
        "there are no agents; write some under `agents:`"
    ]
    tasks = {"tasks": {"type": "directory", "path": "tasks", "prompt": "do it"}}
    lost = {"workspace": "gone", "run": {"model": "scripted:gone.yaml"}, "triggers": tasks}
    crew.write(agents={"lost": lost, "own": {"workspace": "."}, "copy": {"sandbox": {"mode": "clone"}}})
    place, script, directory, *others = crew.does("fleet", "validate", "--json").json["warnings"]
    at = re.escape(f"{crew.file}:1:")
    gone = re.escape(f"there is no directory '{crew.project}/gone'")
    assert re.match(rf"{at}\d+: agents\.lost\.workspace: {gone}", place)
    assert f": agents.lost.run.model: there is no file '{crew.project}/gone.yaml'" in script
    assert f": agents.lost.triggers.tasks.path: there is no directory '{crew.project}/tasks'" in directory
    roots = [f"agents.own.workspace: '{crew.project}' belongs to root, so its jobs work on private copies"]
    assert [other.partition(" ")[2].partition(";")[0] for other in others] == (
        roots if os.geteuid() == 0 else []
    )


def test_programs_are_told_where_each_value_was_said(crew: FleetFiles):
    """`fleet show --origin --json` has the place of each value, too."""
    crew.write(agents={"a": {"workspace": "."}})
    shown = crew.does("fleet", "show", "--origin", "--json").json
    assert shown["values"].keys() == shown["origins"].keys()
    assert shown["origins"]["agents.a.workspace"]["file"] == str(crew.file)
    assert "origins" not in crew.does("fleet", "show", "--json").json


def test_a_secret_that_is_not_set_is_foreseen(crew: FleetFiles):
    """`fleet validate`, `fleet up` and the log name the unset variable of an agent's secret."""
    agent = {"workspace": ".", "sandbox": {"mode": "clone"}, "secrets": {"token": "env:CREW_TOKEN"}}
    crew.write(agents=dict.fromkeys("abcdefg", agent))
    said = "agents.a.secrets.token: CREW_TOKEN is not set; set it where the fleet is started"
    doubts = crew.does("fleet", "validate", "--json").json["warnings"]
    assert (doubts[0].partition(" ")[2], len(doubts)) == (said, 7)
    up = crew.does("fleet", "up", "--detach").err.splitlines()
    assert (up[0], len(up)) == (f"ringfence: {doubts[0]}", 6)
    assert up[-1].endswith("2 more warnings; `ringfence fleet validate` prints all of them")
    crew.waits(lambda: crew.log, lambda log: said in log)
    crew.environment["CREW_TOKEN"] = "t"
    assert crew.does("fleet", "validate", "--json").json["warnings"] == []


def test_what_a_file_says_for_all_agents_is_doubted_once(crew: FleetFiles):
    """An unset secret of the whole fleet is reported in one line, not once for each agent."""
    agent = {"workspace": ".", "sandbox": {"mode": "clone"}}
    crew.write(secrets={"token": "env:CREW_TOKEN"}, agents=dict.fromkeys("abc", agent))
    (doubt,) = crew.does("fleet", "validate", "--json").json["warnings"]
    assert doubt.startswith(f"{crew.file}:1:")


def test_what_an_agent_says_is_harmless_on_a_terminal(works: FleetFiles):
    """Escape sequences in an agent's answer are never printed raw, in text or in JSON."""
    job = works.trigger("good")
    works.ends(job)
    for words in (("job", "show", job), ("job", "show", job, "--json"), ("job", "ls")):
        out = works.does(*words).out
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_schedules_are_listed_paused_and_resumed(works: FleetFiles):
    """A schedule's next times are shown in its zone; a paused schedule has none until it is resumed."""

    def next_at() -> Any:
        found = works.does("fleet", "schedules", "ls", "--json").json["schedules"]
        return {each["name"]: each["next_at"] for each in found}

    assert next_at()["often"] is None
    times = works.does("fleet", "schedules", "next", "timed/daily", "--limit", "3", "--json").json["next"]
    assert times[0] == next_at()["daily"]
    assert [datetime.fromisoformat(each).minute for each in times] == [30, 30, 30]
    assert works.does("fleet", "schedules", "next", "timed/daily").err == ""
    works.does("fleet", "schedules", "pause", "timed/daily")
    assert next_at()["daily"] is None
    assert "is paused; it would fire" in works.does("fleet", "schedules", "next", "timed/daily").err
    works.does("fleet", "schedules", "resume", "timed/daily")
    assert next_at()["daily"] == times[0]


def test_a_schedule_is_started_now(works: FleetFiles):
    """`fleet schedules run` creates the job of a schedule, and the schedule is due when it was before."""
    before = works.does("fleet", "schedules", "next", "timed/daily").out
    job = works.ends(works.does("fleet", "schedules", "run", "timed/daily").out.strip())
    assert (job["trigger"], job["trigger_name"]) == ("schedule", "daily")
    assert works.does("fleet", "schedules", "next", "timed/daily").out == before


def test_the_changes_of_a_job_are_shown_rejected_and_applied(works: FleetFiles):
    """`job diff` prints the patch, `job reject` sets the changes aside, and `job apply` brings them in after all."""
    job = works.ends(works.trigger("writes"))["id"]
    assert "+++ b/made\n@@ -0,0 +1 @@\n+1\n" in works.does("job", "diff", job).out
    assert works.does("job", "diff", job, "--stat").out.split() == ["added", "+1", "-0", "made"]
    assert works.does("job", "reject", job).out == f"{job}: rejected\n"
    assert works.does("job", "diff", job, "--stat").err == (
        f"ringfence: these changes are rejected; `ringfence job apply {job}` brings them in\n"
    )
    assert works.does("job", "apply", job).out.splitlines() == ["made", f"{job}: applied"]
    assert (works.project / "made").read_text() == "1\n"
    (works.project / "made").unlink()


def test_a_file_that_became_a_link_is_printed_once(works: FleetFiles):
    """`job diff` prints the lines of a file that was replaced by a link once, as `git diff` does."""
    job = works.ends(works.trigger("links"))["id"]
    printed = works.does("job", "diff", job).out
    assert (printed.count("\n-1\n"), printed.count("\n+made\n")) == (1, 1)


def test_what_the_configuration_turns_off_stays_off(works: FleetFiles):
    """Enabling an agent, or resuming a schedule, that the configuration disables explains what to change there."""
    agent = works.does("fleet", "agents", "enable", "resting", "--json")
    schedule = works.does("fleet", "schedules", "resume", "timed/often", "--json")
    assert (agent.json["is_enabled"], schedule.json["is_paused"]) == (False, True)
    for said in (agent.err, schedule.err):
        assert "because its configuration says `enabled: false`; remove that" in said


def test_each_command_that_acts_tells_programs(works: FleetFiles):
    """Commands that print nothing for people print with `--json` what they did."""
    for act, is_enabled in (("disable", False), ("enable", True)):
        done = works.does("fleet", "agents", act, "red", "--json").json
        assert done == {"schema_version": 1, "agent": "red", "is_enabled": is_enabled}
    for act, is_paused in (("pause", True), ("resume", False)):
        done = works.does("fleet", "schedules", act, "timed/daily", "--json").json
        assert done == {"schema_version": 1, "agent": "timed", "schedule": "daily", "is_paused": is_paused}
    job = works.ends(works.trigger("good"))["id"]
    assert works.does("job", "rm", job[-8:], "--json").json == {"schema_version": 1, "id": job}


_WRONG = {
    "agent": (("fleet", "trigger", "god"), "did you mean 'good'?"),
    "jobs of an agent": (("job", "ls", "--agent", "god"), "did you mean 'good'?"),
    "jobs of nobody": (("job", "ls", "--agent", "nobody", "--state", "queued"), "there is no agent 'nobody'"),
    "values of an agent": (("fleet", "show", "--agent", "god"), "did you mean 'good'?"),
    "job": (("job", "show", "nothing"), "there is no job 'nothing'"),
    "no name": (("job", "show", ""), "a name is empty"),
    "schedule": (("fleet", "schedules", "next", "timed"), "is not of the form AGENT/SCHEDULE"),
    "unknown schedule": (("fleet", "schedules", "pause", "timed/never"), "no schedule 'never'"),
    "enable": (("fleet", "agents", "enable", "nobody"), "there is no agent 'nobody'"),
    "show": (("fleet", "agents", "show", "nobody"), "there is no agent 'nobody'"),
    "shown agent": (("fleet", "agents", "show", "god"), "did you mean 'good'?"),
}


@pytest.mark.parametrize(("words", "said"), _WRONG.values(), ids=_WRONG)
def test_what_is_not_there_is_told_in_a_line(works: FleetFiles, words: tuple[str, ...], said: str):
    """An unknown name ends with exit code 2 and one line, which lists or suggests known names."""
    ended = works.run(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert said in ended.err

"""A fleet: a daemon, jobs, agents and schedules, by commands and by HTTP."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.promises.daemon import Fleet, fleet_of
from tests.promises.product import Product, is_alive, poll, says

SLOW = [says("", "echo begun > begun; sleep 600"), says("done")]


@pytest.fixture(scope="module")
def fleet(make_product: Callable[[], Product]) -> Iterator[Fleet]:
    """A fleet whose daemon runs, which the module's tests share: none may rely on how many jobs an agent has."""
    product = make_product()
    with fleet_of(product) as fleet:
        writes = product.script(says("", "echo new > made.txt"), says("It is made."), name="writes")
        slow = product.script(*SLOW, name="slow")
        overloaded = product.script(
            {"error": {"status": 529, "times": 20, "retry_after": 0}, "text": "x"}, name="no"
        )
        remembers = product.script(
            name="memory", cases=[{"turns": [says(str(number)) for number in range(9)]}]
        )
        is_clone = {"mode": "clone"}

        def agent(name: str, model: str, **more: Any) -> dict[str, Any]:
            run = {"model": model, **more.pop("run", {})}
            return {name: {"prompt": f"I am {name}.", "workspace": fleet.workspace(name), "run": run, **more}}

        product.configure(
            fleet={"name": "shop", "timezone": "UTC", "concurrency": 8},
            agents={
                **agent("writer", writes, run={"verify": "test -e made.txt"}, description="Writes."),
                **agent("failing", writes, run={"verify": "exit 1"}),
                **agent("limited", writes, limits={"turns": 1}),
                **agent("sleeper", slow, sandbox=is_clone),
                **agent("resting", writes, enabled=False),
                **agent("switched", writes),
                **agent("unlucky", overloaded, retry={"attempts": 2, "backoff": "0.1s"}),
                **agent("spender", writes, budget={"tokens": 10}),
                **agent("rememberer", remembers, session={"policy": "always"}),
                **agent("scheduled", writes, schedules={"nightly": {"cron": "30 2 * * *"}}),
                **agent("ticker", writes, schedules={"often": {"every": "3s"}}),
                "cloner": {
                    "prompt": "I am cloner.",
                    "repository": {"url": str(product.template)},
                    "run": {"model": writes, "verify": "test -e app.py"},
                },
            },
        )
        fleet.up()
        yield fleet


@pytest.fixture(scope="module")
def job(fleet: Fleet) -> Any:
    """A job that has ended well."""
    return fleet.does("writer")


def test_a_job(fleet: Fleet, job: Any) -> None:
    """A job ends as its run does: with state, reason, answer, tokens and the run's id."""
    assert job["state"] == "succeeded"
    assert job["reason"]
    assert job["answer"] == "It is made."
    assert job["tokens"] > 0
    assert job["attempt"] == 1
    assert job["run_id"] in fleet.product.runs()


def test_a_jobs_run_is_like_any_other(fleet: Fleet, job: Any) -> None:
    """The run of a job has a sealed record and a diff."""
    fleet.product.does("runs verify", job["run_id"])
    assert "made.txt" in fleet.product.does("diff", job["run_id"], "--stat").out


def test_trigger_and_wait(fleet: Fleet) -> None:
    """`fleet trigger --wait` waits for the job's end, and its exit code is the job's."""
    ended = fleet.product("fleet trigger", "failing", "--wait", "--json")
    assert ended.ends_as("check failed")
    assert ended.json["state"] == "check_red"


def test_trigger(fleet: Fleet) -> None:
    """`fleet trigger` enters a job with its own task and priority, and prints its id at once."""
    words = ("resting", "--prompt", "Another task.", "--priority", "7", "--json")
    entered = fleet.product.does("fleet trigger", *words).json
    assert entered["is_new"] is True
    found = fleet.get(f"/v1/jobs/{entered['job']['id']}")
    assert (found["prompt"], found["priority"], found["trigger"]) == ("Another task.", 7, "manual")


def test_a_key_makes_one_job(fleet: Fleet) -> None:
    """Asking again with one key gives the same job, which is told beside its id."""
    words = ("resting", "--key", "the-key", "--json")
    first, second = (fleet.product.does("fleet trigger", *words).json for _ in range(2))
    assert (first["is_new"], second["is_new"]) == (True, False)
    assert first["job"]["id"] == second["job"]["id"]
    ended = fleet.product.does("fleet trigger", "resting", "--key", "the-key")
    assert ended.out.strip() == first["job"]["id"]
    assert len(ended.err.splitlines()) == 1


def test_an_unknown_agent(fleet: Fleet) -> None:
    """An agent that is not there is a usage error that names it."""
    fleet.product("fleet trigger", "nobody").fails_as("usage", "nobody")


def test_limits_of_an_agent(fleet: Fleet) -> None:
    """A job whose run reaches a bound of its agent ends as `limit`."""
    assert fleet.does("limited")["state"] == "limit"


def test_list(fleet: Fleet, job: Any) -> None:
    """`job ls --json` lists jobs, by agent and by state."""
    rows = fleet.product.does("job ls", "--agent", "writer", "--state", "succeeded", "--json").json["jobs"]
    assert job["id"] in [row["id"] for row in rows]
    assert {(row["agent"], row["state"]) for row in rows} == {("writer", "succeeded")}
    assert (
        fleet.product.does("job ls", "--agent", "limited", "--state", "queued", "--json").json["jobs"] == []
    )


def test_number_of_jobs(fleet: Fleet, job: Any) -> None:
    """`-n` bounds how many jobs are listed, the newest first, and `--before` goes on behind one of them."""
    assert job
    entered = [fleet.enter("resting") for _ in range(3)]

    def jobs(*words: str) -> list[str]:
        rows = fleet.product.does("job ls", "--agent", "resting", "--json", *words).json["jobs"]
        return [row["id"] for row in rows]

    first = jobs("-n", "2")
    assert [*first, *jobs("-n", "1", "--before", first[-1])] == entered[::-1]


def test_a_state_that_is_none(fleet: Fleet) -> None:
    """A state that is none is a usage error, with those that are."""
    fleet.product("job ls", "--state", "done").fails_as("usage", "done", "succeeded")


def test_show(fleet: Fleet, job: Any) -> None:
    """`job show` takes a job's id or the end of it."""
    for name in (job["id"], job["id"][-6:]):
        assert fleet.product.does("job show", name, "--json").json["id"] == job["id"]


def test_logs(fleet: Fleet, job: Any) -> None:
    """`job logs` prints what is in the record of a job's run."""
    events = fleet.product.does("job logs", job["id"], "--json").events
    assert [event["event"] for event in events][:2] == ["journal.opened", "job.created"]
    assert "echo new > made.txt" in fleet.product.does("job logs", job["id"]).out


@pytest.mark.parametrize("command", ["job show", "job logs", "job cancel", "job retry", "job rm"])
def test_a_job_that_is_not_there(fleet: Fleet, command: str) -> None:
    """A job that is not there is a usage error that names it."""
    fleet.product(command, "no-such-job").fails_as("usage", "no-such-job")


def test_cancel(fleet: Fleet) -> None:
    """`job cancel` ends a job that runs as cancelled, its run too, and a command that waits for it with 130."""
    with fleet.product.started("fleet trigger", "sleeper", "--wait") as waiting:
        (job,) = [row["id"] for row in poll(lambda: fleet.jobs("sleeper"))]
        poll(lambda: fleet.get(f"/v1/jobs/{job}")["tokens"])
        fleet.product.does("job cancel", job)
        ended = fleet.ends(job)
        assert waiting.wait(60) == 130
    assert (ended["state"], ended["reason"]) == ("cancelled", "cancelled by hand")
    assert fleet.product.ended(ended["run_id"])["state"] == "cancelled"
    fleet.product("job cancel", job).fails_as("usage", "cancelled")


def test_cancel_of_what_waits(fleet: Fleet) -> None:
    """A job that waits says why, and is cancelled before it begins."""
    job = fleet.enter("resting")
    assert poll(lambda: fleet.get(f"/v1/jobs/{job}")["waits_for"])
    assert fleet.product.does("job cancel", job).out == f"{job}: cancelled\n"
    found = fleet.get(f"/v1/jobs/{job}")
    assert (found["state"], found["attempt"]) == ("cancelled", 0)


def test_retry(fleet: Fleet, job: Any) -> None:
    """`job retry` does the task again as a new job."""
    again = fleet.product.does("job retry", job["id"], "--json").json["job"]["id"]
    assert again != job["id"]
    found = fleet.ends(again)
    assert (found["state"], found["prompt"]) == ("succeeded", job["prompt"])
    assert (found["parent"], found["trigger"]) == (job["id"], "retry")


def test_fork(fleet: Fleet) -> None:
    """`job fork` goes on from where a job ended: the model hears what was said before."""
    first = fleet.does("rememberer")
    forked = fleet.product.does("job fork", first["id"], "--prompt", "And now?", "--json").json["job"]["id"]
    found = fleet.ends(forked)
    assert int(found["answer"]) == int(first["answer"]) + 1
    assert (found["prompt"], found["parent"], found["trigger"]) == ("And now?", first["id"], "fork")


def test_remove(fleet: Fleet) -> None:
    """`job rm` forgets a job that has ended; the record of its run stays."""
    ended = fleet.does("limited")
    fleet.product.does("job rm", ended["id"])
    assert fleet.ask("GET", f"/v1/jobs/{ended['id']}").status == 404
    assert fleet.product("job show", ended["id"]).ends_as("usage")
    assert ended["run_id"] in fleet.product.runs()


def test_a_disabled_agents_jobs_wait(fleet: Fleet) -> None:
    """Jobs of an agent that is disabled wait, and say why; once it is enabled, they start."""
    fleet.product.does("agents disable", "switched")
    rows = {row["name"]: row for row in fleet.product.does("agents ls", "--json").json["agents"]}
    assert (rows["switched"]["is_enabled"], rows["writer"]["is_enabled"]) == (False, True)
    job = fleet.enter("switched")
    assert poll(lambda: fleet.get(f"/v1/jobs/{job}")["waits_for"])
    fleet.product.does("agents enable", "switched")
    assert fleet.ends(job)["ended_at"]


def test_agents(fleet: Fleet) -> None:
    """`agents ls` lists agents with runtime, model and workspace, and `agents show` one of them."""
    rows = {row["name"]: row for row in fleet.product.does("agents ls", "--json").json["agents"]}
    assert rows["writer"]["description"] == "Writes."
    assert rows["writer"]["runtime"] == "api"
    assert rows["resting"]["is_enabled"] is False
    assert fleet.product.does("agents show", "writer", "--json").json["name"] == "writer"


def test_status(fleet: Fleet) -> None:
    """`fleet status` says which fleet it is and its process, which has no terminal and a session of its own."""
    found = fleet.product.does("fleet status", "--json").json
    assert (found["fleet"], found["is_ready"]) == ("shop", True)
    assert len(found["workers"]) == 1
    stat = Path(f"/proc/{found['pid']}/stat").read_text().rpartition(")")[2].split()
    session, terminal = int(stat[3]), int(stat[4])
    assert terminal == 0
    assert session != os.getsid(0)


def test_a_budget_that_is_used_up(fleet: Fleet) -> None:
    """A job of an agent whose budget for the day is used up waits, and says which budget that is."""
    fleet.does("spender")
    job = fleet.enter("spender")
    poll(lambda: "10" in (fleet.get(f"/v1/jobs/{job}")["waits_for"] or ""))
    assert fleet.get(f"/v1/jobs/{job}")["state"] == "queued"


def test_infrastructure_is_tried_again(fleet: Fleet) -> None:
    """A job that infrastructure ends is tried again, as often as its agent says."""
    ended = fleet.does("unlucky")
    assert (ended["state"], ended["attempt"]) == ("infrastructure", 2)


def test_an_agents_own_failure_is_not_tried_again(fleet: Fleet) -> None:
    """A job whose check fails is tried once."""
    assert fleet.does("failing")["attempt"] == 1


def test_a_session_that_goes_on(fleet: Fleet) -> None:
    """The next job of an agent with the policy `always` goes on with its conversation."""
    first, second = (int(fleet.does("rememberer")["answer"]) for _ in range(2))
    assert second == first + 1


def test_a_repository_is_cloned(fleet: Fleet) -> None:
    """An agent with a repository works on a clone, and the repository stays as it was."""
    ended = fleet.does("cloner")
    assert ended["state"] == "succeeded"
    assert fleet.product.template is not None
    assert not (fleet.product.template / "made.txt").exists()
    assert "made.txt" in fleet.product.does("diff", ended["run_id"], "--stat").out


def test_schedules(fleet: Fleet) -> None:
    """`schedules ls` and `schedules next` say when each fires next, in UTC."""
    rows = fleet.product.does("schedules ls", "--json").json["schedules"]
    (row,) = [row for row in rows if row["agent"] == "scheduled"]
    assert row["next_at"].endswith("T02:30:00Z")
    found = fleet.product.does("schedules next", "scheduled/nightly", "-n", "3", "--json").json["next"]
    assert len(found) == len(set(found)) == 3
    assert found[0] == row["next_at"]


def test_a_schedule_fires(fleet: Fleet) -> None:
    """A schedule makes jobs by itself, until it is paused."""
    made = poll(lambda: fleet.jobs("ticker"))
    fleet.product.does("schedules pause", "ticker/often")
    assert (made[-1]["trigger"], made[-1]["trigger_name"]) == ("schedule", "often")
    rows = fleet.get("/v1/schedules")
    assert [row["next_at"] for row in rows if row["agent"] == "ticker"] == [None]


@pytest.mark.parametrize("command", ["schedules pause", "schedules resume", "schedules next"])
def test_a_schedule_that_is_not_there(fleet: Fleet, command: str) -> None:
    """A schedule that is not there is a usage error that names it."""
    fleet.product(command, "writer/never").fails_as("usage", "never")


def test_one_daemon(fleet: Fleet) -> None:
    """A second daemon on the same state directory is a usage error with the first one's process, which goes on."""
    pid = fleet.get("/v1/status")["pid"]
    for words in ((), ("--detach",)):
        ended = fleet.product("fleet up", *words)
        assert ended.ends_as("usage")
        assert str(pid) in ended.err
    found = fleet.get("/v1/status")
    assert (found["pid"], found["is_ready"]) == (pid, True)


# By HTTP.


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health(fleet: Fleet, path: str) -> None:
    """The daemon says that it lives, and that it takes jobs."""
    assert fleet.ask("GET", path).status == 200


def test_status_by_http(fleet: Fleet) -> None:
    """`GET /v1/status` says which fleet it is and how it stands."""
    found = fleet.get("/v1/status")
    assert found["fleet"] == "shop"
    assert {"version", "file", "pid", "started_at", "is_ready", "queued", "active"} <= found.keys()


def test_agents_by_http(fleet: Fleet) -> None:
    """`GET /v1/agents` lists all agents."""
    assert {"writer", "failing", "cloner"} <= {row["name"] for row in fleet.get("/v1/agents")}


def test_jobs_by_http(fleet: Fleet, job: Any) -> None:
    """`GET /v1/jobs` takes agent, state and limit, and names older jobs by `before`."""
    fleet.enter("resting")
    newest, older = (
        fleet.get("/v1/jobs?agent=resting&limit=1"),
        fleet.get("/v1/jobs?agent=writer&state=succeeded"),
    )
    assert len(newest) == 1
    assert job["id"] in [row["id"] for row in older]
    assert job["id"] not in [row["id"] for row in fleet.get(f"/v1/jobs?before={job['id']}")]


def test_events_by_http(fleet: Fleet, job: Any) -> None:
    """`GET /v1/jobs/ID/events` gives an event of the record on each line."""
    lines = fleet.ask("GET", f"/v1/jobs/{job['id']}/events").body.splitlines()
    assert json.loads(lines[0])["event"] == "journal.opened"
    assert json.loads(lines[-1])["event"] == "journal.sealed"


def test_openapi(fleet: Fleet) -> None:
    """`/openapi.json` describes the interface."""
    paths = fleet.get("/openapi.json")["paths"]
    assert {"/v1/status", "/v1/agents", "/v1/jobs", "/v1/schedules"} <= paths.keys()


REFUSED: dict[str, tuple[str, str, Any, int, int]] = {
    "unknown job": ("GET", "/v1/jobs/none", None, 404, 2),
    "unknown agent": ("POST", "/v1/agents/nobody/jobs", {}, 404, 2),
    "unknown field": ("POST", "/v1/agents/writer/jobs", {"promt": "x"}, 422, 2),
    "wrong type": ("POST", "/v1/agents/writer/jobs", {"priority": "high"}, 422, 2),
    "unknown path": ("GET", "/v1/nothing", None, 404, 2),
    "removal of what waits": ("DELETE", "/v1/jobs/{waits}", None, 400, 2),
    "too long": ("POST", "/v1/agents/writer/jobs", {"prompt": "x" * 20_000_000}, 413, 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_by_http(fleet: Fleet, case: str) -> None:
    """A request that makes no sense is answered with its status, and an error with a message and an exit code."""
    method, path, body, status, code = REFUSED[case]
    answer = fleet.ask(method, path.format(waits=fleet.enter("resting") if "{waits}" in path else ""), body)
    assert answer.status == status
    assert answer.json["error"]["message"]
    assert answer.json["error"]["exit_code"] == code


def test_metrics(fleet: Fleet, job: Any) -> None:
    """`/metrics` has figures for Prometheus: of jobs, by agent and state, of tokens and of workers."""
    assert job
    text = fleet.ask("GET", "/metrics").body.decode()
    figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert figures["ringfence_ready"] == "1.0"
    assert float(figures['ringfence_jobs_ended_total{agent="writer",state="succeeded"}']) >= 1
    assert float(figures['ringfence_tokens_total{agent="writer"}']) > 0


def test_the_socket_is_the_owners(fleet: Fleet) -> None:
    """Nobody else can open the daemon's socket."""
    place = fleet.product.file("daemon socket")
    modes = [path.stat().st_mode & 0o077 for path in (place, place.parent, fleet.product.state)]
    assert 0 in modes


# Daemons of their own.


@pytest.fixture
def own(product: Product) -> Iterator[Fleet]:
    """A fleet of the test's own, whose daemon was not started yet."""
    with fleet_of(product) as fleet:
        model = product.script(says("ok"))
        place = fleet.workspace("one")
        agent = {"prompt": "p", "workspace": place, "run": {"model": model}, "enabled": False}
        product.configure(fleet={"name": "own"}, agents={"one": agent})
        yield fleet


def test_untrusted_files(own: Fleet) -> None:
    """A fleet whose file is not trusted is not started: exit code 4, with the file's name and what trusts it."""
    own.product("fleet up", "--detach").fails_as(
        "refused", own.product.project / "ringfence.yaml", "ringfence config trust"
    )
    assert not own.product.file("daemon socket").exists()


def test_a_wrong_file_is_not_started(own: Fleet) -> None:
    """A fleet whose file is wrong is not started, in the background neither: exit code 78, with its place."""
    file = own.product.project / "ringfence.yaml"
    file.write_text(file.read_text().replace('"prompt"', '"promt"'))
    for words in ((), ("--detach",)):
        own.product("fleet up", *words).fails_as("configuration", f"{file}:1:", "promt", "prompt")


def test_a_killed_daemon(own: Fleet) -> None:
    """After a `kill -9` of the daemon its jobs are there as they were, once it is started again."""
    own.up()
    job = own.enter("one")
    pid = own.get("/v1/status")["pid"]
    os.kill(pid, signal.SIGKILL)
    poll(lambda: not is_alive(pid))
    own.up()
    found = own.get(f"/v1/jobs/{job}")
    assert (found["state"], found["agent"]) == ("queued", "one")


def test_reload(own: Fleet) -> None:
    """A change of the files is shown by `fleet diff`, refused until it is trusted, and taken by `fleet reload`."""
    own.up()
    file = own.product.project / "ringfence.yaml"
    file.write_text(file.read_text().replace('"prompt": "p"', '"prompt": "changed"'))
    assert "changed" in own.product.does("fleet diff").out
    assert own.product("fleet reload").ends_as("refused")
    own.product.does("trust", "--yes")
    own.product.does("fleet reload")
    assert own.product.does("fleet diff", "--json").json["changes"] == []


def test_a_wrong_file_changes_nothing(own: Fleet) -> None:
    """A file that is wrong is refused by `fleet reload` with its place, and the fleet goes on as it was."""
    own.up()
    file = own.product.project / "ringfence.yaml"
    whole = file.read_text()
    file.write_text(whole.replace('"enabled"', '"enabld"'))
    own.product.does("trust", "--yes")
    ended = own.product("fleet reload")
    assert ended.ends_as("configuration")
    assert f"{file}:1:" in ended.err
    assert "enabld" in ended.err
    assert own.get("/v1/agents")[0]["is_enabled"] is False


def test_down(own: Fleet) -> None:
    """When `fleet down` comes back, daemon, workers and socket are gone; jobs are kept for the next start."""
    own.product.does("trust", "--yes")
    up = own.product.does("fleet up", "--detach", "--json").json
    job = own.enter("one")
    status = own.get("/v1/status")
    assert (up["pid"], up["log"]) == (status["pid"], str(own.product.file("daemon log")))
    assert own.product.does("fleet down", "--json").json["pid"] == status["pid"]
    assert not any(is_alive(pid) for pid in (status["pid"], *status["workers"]))
    assert not own.product.file("daemon socket").exists()
    assert own.product.does("fleet status", "--json").json["pid"] is None
    own.up()
    assert own.get(f"/v1/jobs/{job}")["state"] == "queued"


def test_commands_that_need_a_daemon(own: Fleet) -> None:
    """Without a daemon a command that needs one is a usage error of one line, which says how one is started."""
    for command in ("fleet reload", "fleet down", "job ls", "agents ls", "schedules ls"):
        own.product(command).fails_as("usage", "fleet up")
    own.product("fleet trigger", "one").fails_as("usage", "fleet up")

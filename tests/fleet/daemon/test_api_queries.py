"""Jobs, agents, schedules and spend, as the API reports them."""

import getpass
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from sqlalchemy import update
from starlette.testclient import TestClient
from tests.fleet.daemon.test_api import daemon_of
from tests.postgres import Cluster, cluster

from ringfence.config.trust import trust_content
from ringfence.fleet.api.app import create_local_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.admission import Admission, AgentBounds, Bounds, Budget, WaitReasons
from ringfence.fleet.store.attempts import Attempt, AttemptResult, Attempts
from ringfence.fleet.store.job import ACTIVE
from ringfence.fleet.store.schedules import ScheduleStates
from ringfence.fleet.store.spend import Usage
from ringfence.fleet.store.tables import JOBS
from ringfence.job.state import JobState

_FLEET = """
fleet: {timezone: UTC, budget: {cost_usd: 5}}
agents:
  a:
    description: "<b>mender</b>"
    prompt: do it
    workspace: .
    budget: {tokens: 1000}
    limits: {turns: 7, tokens: 900}
    schedules: {daily: {cron: "0 3 * * *"}, hourly: {every: 1h, prompt: look}}
    hooks:
      on_failure:
        - {type: webhook, url: "https://example.com/${HOOK}", headers: {X-Note: "${NOTE}"}, secret: "${SIGN}"}
  b: {prompt: do that, workspace: ., enabled: false, triggers: {ends: {type: after, agent: a}}}
"""
_ENVIRONMENT = {
    "HOOK": "path-that-nobody-knows",
    "NOTE": "note-that-nobody-knows",
    "SIGN": "key-of-signatures",
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Cluster]:
    """A Postgres."""
    with cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose loop does not run, on each kind of database."""
    fleet = _FLEET
    if request.param == "postgres":
        engine = {"type": "postgres", "url": request.getfixturevalue("postgres").make_database()}
        fleet = fleet.replace("fleet: {", f"fleet: {{engine: {json.dumps(engine)}, ")
    made = daemon_of(tmp_path, fleet, _ENVIRONMENT)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(made.engine):
        yield made
    made.database.close()


@pytest.fixture
def client(daemon: Daemon) -> TestClient:
    """A client of its API."""
    return TestClient(create_local_app(ApiContext.of_daemon(daemon)), raise_server_exceptions=False)


def _trigger(client: TestClient, agent: str, prompt: str) -> str:
    return str(client.post(f"/v1/agents/{agent}/jobs", json={"prompt": prompt}).json()["job"]["id"])


def _run(daemon: Daemon, job_id: str, state: JobState, usage: Usage | None = None) -> None:
    """Begin an attempt at a job, and end it in a state."""

    async def run() -> None:
        await daemon.database.write(
            lambda connection: connection.execute(
                update(JOBS).where(JOBS.c.id == job_id).values(state=ACTIVE[0])
            )
        )
        attempts = Attempts(daemon.database)
        attempt = await attempts.begin(job_id, worker="w1", host="east")
        assert attempt is not None
        await attempts.end(attempt, AttemptResult(state, reason="because", spent=usage or Usage()))

    anyio.run(run)


def _ids(client: TestClient, query: str) -> list[str]:
    return [job["id"] for job in client.get(f"/v1/jobs?{query}").json()]


def test_jobs_are_filtered(client: TestClient, daemon: Daemon):
    """Each filter narrows the list to the jobs that it names."""
    first, second = _trigger(client, "a", "Mend the ROOF\nnow"), _trigger(client, "a", "100% of it")
    third = _trigger(client, "b", "roof_two")
    _run(daemon, first, JobState.FAILED)
    again = client.post(f"/v1/jobs/{first}/retry", json={}).json()["job"]["id"]
    assert _ids(client, "") == [again, third, second, first]
    assert _ids(client, "agent=b") == [third]
    assert _ids(client, "trigger=retry") == [again]
    assert _ids(client, "trigger=manual/x") == []
    assert _ids(client, f"parent={first[-6:]}") == [again]
    assert _ids(client, "text=roof") == [again, third, first]
    assert _ids(client, "text=roof_") == [third]
    assert _ids(client, "text=%25") == [second]
    assert _ids(client, "text=because") == [first]
    assert _ids(client, "state=failed&state=succeeded") == [first]
    moments = [client.get(f"/v1/jobs/{job}").json()["created_at"] for job in (first, third)]
    assert _ids(client, f"since={moments[1]}") == [again, third]
    assert first not in _ids(client, f"since={moments[1]}")
    assert _ids(client, f"until={moments[0][:10]}T00:00:00Z") == []
    page = _ids(client, "limit=2")
    assert page + _ids(client, f"limit=2&before={page[-1]}") == [again, third, second, first]


def test_a_job_has_its_attempts_and_limits(client: TestClient, daemon: Daemon):
    """A job shows each attempt with machine, end and usage, and its limits with the usage so far."""
    job = _trigger(client, "a", "mend")
    _run(daemon, job, JobState.FAILED, Usage(40, 0.5))
    shown = client.get(f"/v1/jobs/{job}").json()
    (attempt,) = shown["attempts"]
    assert client.get(f"/v1/jobs/{job[-6:]}/attempts").json() == [attempt]
    expected = {
        "number": 1,
        "host": "east",
        "worker": "w1",
        "state": "failed",
        "reason": "because",
        "tokens": 40,
    }
    assert expected.items() <= attempt.items()
    assert attempt["has_record"] is False
    limits = {limit["name"]: (limit["used"], limit["allowed"]) for limit in shown["limits"]}
    assert limits["tokens"] == (40, 900)
    assert limits["turns"] == (None, 7)
    assert limits["wall_clock_s"][0] is not None


def test_allowed_tokens_are_those_of_all_attempts(client: TestClient, daemon: Daemon):
    """The allowed tokens of a job are compared with the sum over its attempts, in each admission of the job."""
    job = _trigger(client, "a", "mend")
    bounds = Bounds({"a": AgentBounds(job=Budget(tokens=900), day=Budget(tokens=800))})
    now = datetime.now(UTC)

    def tokens() -> tuple[int, int]:
        limits = {each["name"]: each for each in client.get(f"/v1/jobs/{job}").json()["limits"]}
        return limits["tokens"]["used"], limits["tokens"]["allowed"]

    async def begin(used: int) -> Attempt:
        await Admission(daemon.database).admit(bounds, now=now, day_began=now - timedelta(days=1))
        attempt = await Attempts(daemon.database).begin(job, worker="w1", host="east")
        assert attempt is not None
        await Attempts(daemon.database).report(attempt, Usage(tokens=used))
        return attempt

    assert tokens() == (0, 900)
    first = anyio.run(begin, 300)
    assert tokens() == (300, 800)
    again = partial(
        Attempts(daemon.database).end, first, AttemptResult(JobState.INFRASTRUCTURE), retry_at=now
    )
    anyio.run(again)
    anyio.run(begin, 200)
    assert tokens() == (500, 800)


def test_changes_of_jobs_are_logged_with_their_sender(
    client: TestClient, daemon: Daemon, capsys: pytest.CaptureFixture[str]
):
    """The log names the person who cancelled, repeated or removed a job."""
    job = _trigger(client, "a", "mend")
    client.post(f"/v1/jobs/{job}/cancel", json={}).raise_for_status()
    again = client.post(f"/v1/jobs/{job}/retry", json={}).json()["job"]["id"]
    client.delete(f"/v1/jobs/{job}").raise_for_status()
    me = getpass.getuser()
    expected = [
        f"job {job} is cancelled by {me}",
        f"job {again}: a retry of job {job}, by {me}",
        f"job {job} is removed by {me}",
    ]
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("job ")] == expected


def test_status_counts_today(client: TestClient, daemon: Daemon):
    """The status counts what was checked today, what was not, and failures, and has spend, budget and due times."""
    ends = (JobState.FAILED, JobState.UNVERIFIED, JobState.SUCCEEDED, JobState.CANCELLED, JobState.LIMIT)
    for state in ends:
        _run(daemon, _trigger(client, "a", "x"), state, Usage(10, 0.25))
    _trigger(client, "a", "x")
    status = client.get("/v1/status").json()
    ended = [status[f"{end}_today"] for end in ("succeeded", "unverified", "failed")]
    assert (ended, status["queued"]) == ([1, 1, 2], 1)
    assert status["today"] == {"tokens": 50, "cost_usd": 1.25, "max_tokens": None, "max_cost_usd": 5.0}
    due = [(each["next_at"], each["name"]) for each in status["next_schedules"]]
    assert due == sorted(due)  # the daily one is due first in the last hour before it
    assert {name for _, name in due} == {"hourly", "daily"}
    assert (
        status["waits_for"] == "no worker is running; `ringfence fleet worker` or `fleet.workers` starts one"
    )
    found = {agent["name"]: agent for agent in client.get("/v1/agents").json()}
    assert (found["a"]["failed_today"], found["b"]["failed_today"]) == (2, 0)
    assert found["a"]["today"]["max_tokens"] == 1000
    assert found["a"]["last_job"]["state"] == "queued"
    assert found["a"]["next_at"] == status["next_schedules"][0]["next_at"]
    assert (found["b"]["next_at"], found["b"]["last_job"]) == (None, None)
    assert found["b"]["waits_for"] == "the agent is disabled by its configuration"


def test_removed_jobs_are_not_counted_for_long(client: TestClient, daemon: Daemon):
    """A cached count that no changed job invalidates is read again after a second."""
    job = _trigger(client, "a", "x")
    _run(daemon, job, JobState.FAILED)
    assert client.get("/v1/status").json()["failed_today"] == 1
    client.delete(f"/v1/jobs/{job}")
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while client.get("/v1/status").json()["failed_today"]:
        assert datetime.now(UTC) < deadline


def test_an_agent_shows_its_configuration_without_secrets(client: TestClient):
    """Values have their origin; a variable's value where a secret is expected is shown nowhere."""
    response = client.get("/v1/agents/a")
    values = {each["key"]: each for each in response.json()["configuration"]}
    assert values["limits.turns"]["value"] == 7
    assert values["limits.turns"]["origin"].endswith("ringfence.yaml:9:21")
    assert [each["name"] for each in response.json()["schedules"]] == ["daily", "hourly"]
    for secret in _ENVIRONMENT.values():
        assert secret not in response.text
        assert secret not in client.get("/v1/agents").text
    assert client.get("/v1/agents/c").json()["error"]["message"].startswith("there is no agent 'c'")


def test_spend_is_reported_by_day_and_agent(client: TestClient, daemon: Daemon):
    """Spend is reported for each day and agent; days without spend are listed, too."""
    _run(daemon, _trigger(client, "a", "x"), JobState.FAILED, Usage(10, 0.25))
    _run(daemon, _trigger(client, "b", "x"), JobState.FAILED, Usage(7, 0.5))
    report = client.get("/v1/spend?days=3").json()
    today = datetime.now(UTC).date()
    assert report["days"] == [str(today - timedelta(days=back)) for back in (2, 1, 0)]
    found: list[dict[str, Any]] = report["spend"]
    assert [(each["day"], each["agent"], each["tokens"], each["cost_usd"]) for each in found] == [
        (str(today), "a", 10, 0.25),
        (str(today), "b", 7, 0.5),
    ]
    assert (report["total"]["cost_usd"], report["budgets"]["a"]["tokens"]) == (0.75, 10)


def test_a_schedule_runs_now(client: TestClient):
    """`run` creates the schedule's job with its own prompt, and does not change its next due time."""
    before = client.get("/v1/schedules").json()
    created = client.post("/v1/schedules/a/hourly/run")
    job = client.get(f"/v1/jobs/{created.json()['job']['id']}").json()
    assert (created.status_code, job["trigger"], job["trigger_name"]) == (201, "schedule", "hourly")
    assert job["prompt"] == "look"
    assert client.get("/v1/schedules").json() == before
    assert client.post("/v1/schedules/a/none/run").status_code == 404
    client.post("/v1/schedules/a/hourly/pause")
    paused = {each["name"]: each for each in client.get("/v1/schedules").json()}["hourly"]
    assert (paused["is_paused"], paused["next_at"]) == (True, None)


def test_the_last_due_time_of_a_schedule_is_one_that_came(client: TestClient, daemon: Daemon):
    """A schedule whose due time was handled has it as its last one; a schedule that is new or was resumed has none."""
    due = datetime(2026, 11, 28, 7, tzinfo=UTC)
    resumed = due + timedelta(minutes=7, milliseconds=123)
    anyio.run(ScheduleStates(daemon.database).mark_handled, [("a", "hourly", due), ("a", "daily", resumed)])
    last = {each["name"]: each["last_at"] for each in client.get("/v1/schedules").json()}
    assert last == {"hourly": "2026-11-28T07:00:00Z", "daily": None}


def test_a_full_disk_is_why_jobs_wait(client: TestClient, monkeypatch: pytest.MonkeyPatch, daemon: Daemon):
    """When the disk is full, the status of the fleet and its waiting jobs give that reason."""
    monkeypatch.setattr("ringfence.fleet.daemon.supervisor.Supervisor.pids", [1])
    job = _trigger(client, "a", "x")
    assert client.get(f"/v1/jobs/{job}").json()["waits_for"] is None
    usage = shutil.disk_usage(daemon.file.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    for found in (client.get("/v1/status").json(), client.get(f"/v1/jobs/{job}").json()):
        assert (
            found["waits_for"]
            == f"the disk of the state directory {str(daemon.state)!r} is full; free some space"
        )


def test_what_an_agent_waits_for_stands_before_the_limit_of_the_fleet(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, daemon: Daemon
):
    """A job names the most specific reason: its agent's, its workspace's, then the fleet's."""
    monkeypatch.setattr("ringfence.fleet.daemon.supervisor.Supervisor.pids", [1])
    job = _trigger(client, "a", "x")
    workspace = client.get(f"/v1/jobs/{job}").json()["workspace"]
    for waiting, reason in (
        (WaitReasons(fleet="fleet"), "fleet"),
        (WaitReasons(fleet="fleet", workspaces={workspace: "workspace"}), "workspace"),
        (WaitReasons({"a": "agent"}, {workspace: "workspace"}, fleet="fleet"), "agent"),
    ):
        daemon.dispatcher.waiting = waiting
        assert client.get(f"/v1/jobs/{job}").json()["waits_for"] == reason


_SECRETIVE = """
fleet: {name: crew, notify: [{type: webhook, url: "https://example.com/x", headers: {X-Room: "${ROOM}"}}]}
agents:
  a:
    prompt: %s
    repository: {url: "https://%s@example.com/o/r"}
    description: see https://example.com/page?view=query-in-an-address
    limits: {turns: "%s"}
    sandbox: {env: {DATABASE: %s}}
"""
_BEFORE = ("${TASK}", "user-before", "${TURNS}", "environment-before")
_AFTER = ("do ${TASK}", "user-after", "7", "environment-after")
_VALUES = {
    "ROOM": "value-of-the-room",
    "TASK": "value-of-the-task",
    "TURNS": "4711",
    "OTHER": "value-of-another",
}
_HIDDEN = (*_VALUES.values(), *_BEFORE[1::2], *_AFTER[1::2], "query-in-an-address")


@pytest.mark.parametrize("path", ["/v1/agents", "/v1/agents/a", "/v1/diff"])
def test_no_value_that_may_be_secret_is_shown(path: str, tmp_path: Path):
    """Values of variables and of the environment, users and queries of addresses are shown nowhere."""
    daemon = daemon_of(tmp_path, _SECRETIVE % _BEFORE, _VALUES)
    client = TestClient(create_local_app(ApiContext.of_daemon(daemon)), raise_server_exceptions=False)
    daemon.file.write_text(_SECRETIVE % _AFTER)
    trust_content(daemon.file, daemon.file.read_bytes())
    response = client.get(path)
    assert response.status_code == 200
    assert "[redacted]" in response.text
    assert [value for value in _HIDDEN if value in response.text] == []
    daemon.database.close()


@pytest.mark.parametrize(
    "change",
    [
        "description: '${OTHER}'",
        "limits: {turns: '${OTHER}'}",
        "triggers: {t: {type: files, paths: ['${OTHER}']}}",
    ],
    ids=["text", "number", "list"],
)
def test_variables_of_an_untrusted_file_are_not_replaced(change: str, tmp_path: Path):
    """The list of changes names a file that is not trusted, and contains no value of its variables."""
    daemon = daemon_of(tmp_path, "agents: {a: {prompt: do it, workspace: .}}", _VALUES)
    client = TestClient(create_local_app(ApiContext.of_daemon(daemon)), raise_server_exceptions=False)
    daemon.file.write_text(f"agents:\n  a:\n    prompt: do it\n    workspace: .\n    {change}\n")
    lines = client.get("/v1/diff").json()
    assert lines[0].startswith(f"{daemon.file}: its present content is not trusted")
    assert _VALUES["OTHER"] not in str(lines)
    daemon.database.close()


def test_an_error_about_a_variable_does_not_contain_its_value(tmp_path: Path):
    """If the value of a variable does not fit a key, the list of changes fails without quoting the value."""
    daemon = daemon_of(tmp_path, "agents: {a: {prompt: do it, workspace: .}}", _VALUES)
    client = TestClient(create_local_app(ApiContext.of_daemon(daemon)), raise_server_exceptions=False)
    daemon.file.write_text("agents: {a: {prompt: do it, workspace: ., limits: {turns: '${OTHER}'}}}")
    trust_content(daemon.file, daemon.file.read_bytes())
    response = client.get("/v1/diff")
    assert "limits.turns" in response.json()["error"]["message"]
    assert _VALUES["OTHER"] not in response.text
    daemon.database.close()

"""Issues as work for running daemons, against a stand-in for GitHub's API."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles
from tests.fleet.trigger.source.github_api import TOKEN, Fault, GitHub, serving

pytestmark = pytest.mark.slow
_SLEEP = {"name": "shell", "input": {"command": "sleep 600", "reasoning": "r"}}


@pytest.fixture(scope="module")
def github() -> Iterator[GitHub]:
    """The repository."""
    with serving(GitHub()) as served:
        yield served


def _crew(crew: FleetFiles, github: GitHub) -> FleetFiles:
    (crew.home / "token").write_text(TOKEN)
    (crew.home / "token").chmod(0o600)
    issues = {"type": "github", "repository": "o/r", "token": "${secret:gh}", "base_url": github.url}
    common: dict[str, Any] = {"workspace": ".", "sandbox": {"mode": "clone"}, "concurrency": 4}

    def agent(model: str, label: str, **changes: Any) -> dict[str, Any]:
        trigger = {**issues, "label": label, "every": "0.2s"}
        return {**common, **changes, "run": {"model": model}, "triggers": {"issues": trigger}}

    slow = crew.script("slow", {"text": "wait", "tools": [_SLEEP]}, {"text": "x"})
    crew.write(
        fleet={"name": "c", "drain": "1s"},
        secrets={"gh": f"file:{crew.home / 'token'}"},
        agents={
            "quick": agent(crew.script("quick", {"text": "it is mended"}), "ready"),
            "slow": agent(slow, "hard"),
            "single": agent(slow, "once", concurrency=1),
        },
    )
    crew.up()
    return crew


@pytest.fixture(scope="module")
def crews(make_crew: Make, github: GitHub) -> list[FleetFiles]:
    """Two fleets with identical configurations that do not know of each other."""
    return [_crew(make_crew(), github) for _ in range(2)]


def _is_done(github: GitHub, issue: str) -> bool:
    said = "".join(github.words(issue))
    return "it is mended" in said and not github.labels(issue) and "ringfence-claim" not in said


def _jobs(crews: list[FleetFiles], words: str) -> list[tuple[FleetFiles, Any]]:
    """Return the jobs that were created for an issue, the newest first."""
    return [
        (crew, job)
        for crew in crews
        for job in crew.jobs(agent="quick", limit=1000)
        if words.encode() in b"".join(crew.client.lines("jobs", job["id"], "events"))
    ]


def test_an_issue_is_done_once_whoever_sees_it(crews: list[FleetFiles], github: GitHub):
    """Of two fleets on one repository, one claims an issue, works on its text, answers and releases it."""
    issues = [github.open_issue(f"Door number {number} squeaks", "Oil it.", "ready") for number in range(3)]
    for issue in issues:
        crews[0].waits(partial(_is_done, github, issue), bool)
    for number, issue in enumerate(issues):
        ((crew, job),) = _jobs(crews, f"Door number {number} squeaks")
        assert (job["trigger"], job["state"]) == ("source", "unverified")
        assert sum("it is mended" in words for words in github.words(issue)) == 1
        assert "Oil it." in crew.does("job", "logs", job["id"]).out


def test_an_issue_that_is_refused_holds_up_no_other(crews: list[FleetFiles], github: GitHub):
    """An issue that cannot be written to is named once in the log, and tried again while later ones are done at once."""
    locked = github.open_issue("Cellar is damp", "Dry it.", "ready")
    answer = JSONResponse({"message": "locked"}, 403)
    github.faults.extend([Fault("POST", f"/{locked}/comments", answer)] * 1000)
    line = f"trigger quick/issues: '{locked}' is refused"
    try:
        for crew in crews:
            crew.waits(lambda crew=crew: line in crew.log, bool)  # type: ignore[misc]
        left = len(github.faults)
        issue = github.open_issue("Lamp is dark", "Light it.", "ready")
        crews[0].waits(partial(_is_done, github, issue), bool)
        crews[0].waits(lambda: len(github.faults), lambda now: now < left - 2)
    finally:
        github.faults.clear()
        del github.issues[int(locked)]
    for crew in crews:
        assert (crew.log.count(line), "retried in" in crew.log) == (1, False)


def test_an_issue_that_is_ready_again_is_done_again(crews: list[FleetFiles], github: GitHub):
    """Setting the label again creates another job for the issue."""
    issue = github.open_issue("Window sticks", "Plane it.", "ready")
    crews[0].waits(lambda: _is_done(github, issue), bool)
    github.issues[int(issue)]["labels"] = [{"name": "ready"}]
    crews[0].waits(
        lambda: sum("it is mended" in words for words in github.words(issue)), lambda times: times == 2
    )
    assert len(_jobs(crews, "Window sticks")) == 2


def _running(crews: list[FleetFiles]) -> list[tuple[FleetFiles, Any]]:
    made = [(crew, job) for crew in crews for job in crew.jobs(agent="slow")]
    return [(crew, job) for crew, job in made if job["state"] == "running"]


def test_an_issue_whose_job_was_cancelled_stays_so(crews: list[FleetFiles], github: GitHub):
    """The issue of a cancelled job is marked as failed, with the reason, and not claimed again by itself."""
    issue = github.open_issue("Roof leaks", "Tar it.", "hard")
    ((crew, job),) = crews[0].waits(lambda: _running(crews), bool)
    assert github.labels(issue) == {"agent-working"}
    crew.does("job", "cancel", job["id"])
    crews[0].waits(lambda: github.labels(issue), lambda labels: labels == {"failed"})
    assert "cancelled by hand" in "".join(github.words(issue))


def _held(crews: list[FleetFiles]) -> list[tuple[FleetFiles, Any]]:
    """Return the queued jobs of `single` that wait for a running one."""
    jobs = [(crew, crew.jobs(agent="single")) for crew in crews]
    busy = [(crew, made) for crew, made in jobs if any(job["state"] == "running" for job in made)]
    return [(crew, job) for crew, made in busy for job in made if job["state"] == "queued"]


def test_an_issue_whose_job_was_cancelled_in_the_queue_is_released(crews: list[FleetFiles], github: GitHub):
    """The issue of a job that is cancelled before its first attempt is marked as failed, as after any other end."""
    issues = [github.open_issue(f"Tile {number} is loose", "Fix it.", "once") for number in range(3)]
    crew, job = crews[0].waits(lambda: _held(crews), bool)[0]
    crew.does("job", "cancel", job["id"])
    crews[0].waits(lambda: [github.labels(issue) for issue in issues], lambda labels: {"failed"} in labels)
    assert crew.job(job["id"])["attempt"] == 0
    for crew in crews:
        for job in crew.jobs(agent="single"):
            if job["ended_at"] is None:
                crew.does("job", "cancel", job["id"])


def test_an_issue_of_a_crew_that_stops_stays_claimed(crews: list[FleetFiles], github: GitHub):
    """The job of an issue is queued again and continues at the next start; no other fleet claims it meanwhile."""
    issue = github.open_issue("Gate hangs", "Lift it.", "hard")
    ((first, job),) = crews[0].waits(lambda: _running(crews), bool)
    (second,) = (crew for crew in crews if crew is not first)
    first.does("fleet", "down", "--now")
    assert github.labels(issue) == {"agent-working"}
    first.up()
    ((_, again),) = first.waits(lambda: _running([first]), bool)
    assert (again["id"], again["attempt"], _running([second])) == (job["id"], job["attempt"] + 1, [])
    first.does("job", "cancel", job["id"])
    first.waits(lambda: github.labels(issue), lambda labels: labels == {"failed"})


def test_a_claim_that_a_killed_daemon_made_becomes_a_job(crew: FleetFiles):
    """A daemon that died between claim and job creates the job at its next start."""
    tasks = crew.home / "tasks"
    (tasks / ".claimed").mkdir(parents=True)
    trigger = {"type": "directory", "path": str(tasks), "every": "0.2s"}
    agent = {"workspace": ".", "sandbox": {"mode": "clone"}, "triggers": {"tasks": trigger}}
    crew.write(run={"model": crew.script("quick", {"text": "done"})}, agents={"a": agent})
    _dies_after_claiming(crew, tasks)
    crew.up()
    done = tasks / "done"
    crew.waits(lambda: sorted(done.glob("*fix-it.md")) if done.is_dir() else [], bool)
    (job,) = crew.jobs(agent="a")
    assert (job["trigger"], job["state"]) == ("source", "unverified")


def _dies_after_claiming(crew: FleetFiles, tasks: Path) -> None:
    """Leave the state of a daemon that is killed right after its claim: the note, and the claimed file."""
    import anyio

    from ringfence.fleet.store.claims import PendingClaim, PendingClaims
    from ringfence.fleet.store.database import Database, sqlite_url
    from ringfence.fleet.trigger.source.directory import DirectorySource

    async def leave() -> None:
        (tasks / "fix-it.md").write_text("Fix the door.")
        database = Database(sqlite_url(crew.state))
        database.create_tables()
        await PendingClaims(database).add(PendingClaim("a", "tasks", "fix-it.md", "0123456789abcdef"))
        assert await DirectorySource(tasks).claim("fix-it.md", "0123456789abcdef") is not None
        database.close()

    anyio.run(leave)

"""Whether an agent's next job resumes its last session, and how its repository is cloned."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles

pytestmark = pytest.mark.slow


def _shell(command: str) -> dict[str, Any]:
    return {"name": "shell", "input": {"command": command, "reasoning": "r"}}


_MAKE = _shell("echo made > made.txt")


def _git(place: Path, *words: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *words], cwd=place, check=True, capture_output=True)


@pytest.fixture(scope="module")
def works(make_crew: Make) -> FleetFiles:
    """A fleet with an agent for each session policy, and one with a hostile repository."""
    crew = make_crew()
    model = crew.script("quick", {"text": "done"})
    full = crew.script("full", {"text": "and", "stop_reason": "model_context_window_exceeded"})
    leaving = crew.script(
        "leaving", {"text": "now", "tools": [_shell("echo mine > ~/left")]}, {"text": "done"}
    )
    looks = _shell("cat ~/left || echo nothing of others")
    looking = crew.script("looking", {"text": "now", "tools": [looks]}, {"text": "done"})
    making = crew.script("making", {"text": "now", "tools": [_MAKE]}, {"text": "done"})
    common: dict[str, Any] = {
        "prompt": "do it",
        "workspace": ".",
        "sandbox": {"mode": "clone"},
        "run": {"model": model},
    }
    repository = crew.home / "repository"
    repository.mkdir()
    _git(repository, "init", "-q", "-b", "main")
    (repository / ".gitattributes").write_text("*.txt filter=evil\n")
    (repository / "a.txt").write_text("as it is in git\n")
    _git(repository, "add", "-A")
    _git(repository, "commit", "-qm", "first")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {crew.home}/ran\n")
    hook.chmod(0o755)
    (crew.home / "gitconfig").write_text(f'[filter "evil"]\n smudge = touch {crew.home}/ran; cat\n')
    crew.environment["GIT_CONFIG_GLOBAL"] = str(crew.home / "gitconfig")
    crew.write(
        fleet={"name": "c", "drain": "1s"},
        agents={
            "fresh": common,
            "always": {**common, "session": {"policy": "always"}},
            "lately": {**common, "session": {"policy": "resume", "within": "1h"}},
            "expired": {**common, "session": {"policy": "resume", "within": "1ms"}},
            "leaving": {**common, "run": {"model": leaving}},
            "looking": {**common, "run": {"model": looking}},
            "full": {**common, "session": {"policy": "always"}, "run": {"model": full}},
            "cloned": {
                **{key: value for key, value in common.items() if key != "workspace"},
                "run": {"model": model, "verify": "grep -q 'as it is in git' a.txt"},
                "repository": {"url": str(repository), "ref": "main"},
            },
            "making": {
                **{key: value for key, value in common.items() if key not in ("workspace", "sandbox")},
                "run": {"model": making, "verify": "test -f prepared"},
                "repository": {"url": str(repository), "ref": "main"},
                "hooks": {
                    "before_run": [{"type": "command", "command": "touch prepared", "required": True}],
                    "after_run": [{"type": "command", "command": "grep -q made made.txt && exit 7"}],
                },
            },
            "lost": {
                **{key: value for key, value in common.items() if key != "workspace"},
                "repository": {"url": str(repository), "ref": "gone"},
                "retry": {"attempts": 1},
            },
        },
    )
    crew.up()
    return crew


def _tokens(crew: FleetFiles, agent: str) -> list[str]:
    """Run two jobs one after the other; return the first one's run and the second one's record."""
    jobs = [crew.run("fleet", "trigger", agent, "--wait", "--json").json for _ in range(2)]
    assert [job["state"] for job in jobs] == ["unverified"] * 2
    return [str(jobs[0]["run_id"]), crew.does("runs", "logs", "--json", jobs[1]["run_id"]).out]


@pytest.mark.parametrize(
    ("agent", "is_resumed"), [("fresh", False), ("always", True), ("lately", True), ("expired", False)]
)
def test_a_policy_says_whether_a_job_goes_on(works: FleetFiles, agent: str, is_resumed: bool):
    """`always` resumes the last session, `resume` only if it is recent, and `fresh` never."""
    first, record = _tokens(works, agent)
    assert (first in record) == is_resumed


def test_no_agent_has_anothers_home(works: FleetFiles):
    """Files in an agent's home are not visible to another agent on the same workspace."""
    left = works.run("fleet", "trigger", "leaving", "--wait", "--json").json
    assert (left["state"], works.does("job", "logs", left["id"]).out.count("No such file")) == (
        "unverified",
        0,
    )
    looked = works.run("fleet", "trigger", "looking", "--wait", "--json").json
    said = works.does("runs", "logs", "--json", looked["run_id"]).out
    assert "nothing of others" in said
    assert "No such file" in said


def test_a_session_that_is_too_long_is_begun_anew(works: FleetFiles):
    """A session that fills the model's context window is not resumed, and the log says so."""
    first, second = (works.run("fleet", "trigger", "full", "--wait", "--json").json for _ in range(2))
    assert (first["state"], second["state"]) == ("limit", "limit")
    assert f"job {first['id']}: its session is too long" in works.log
    assert first["run_id"] not in works.does("runs", "logs", "--json", second["run_id"]).out


def test_a_session_that_is_gone_is_begun_anew(works: FleetFiles):
    """If the last session no longer exists, a job begins a new one, and the log says so."""
    first = works.run("fleet", "trigger", "always", "--wait", "--json").json
    subprocess.run(["rm", "-rf", works.state / "runs" / first["run_id"]], check=True)
    second = works.run("fleet", "trigger", "always", "--wait", "--json").json
    assert second["state"] == "unverified"
    assert f"job {second['id']}: it begins a new session" in works.log


def test_a_repository_is_cloned_and_nothing_of_it_runs(works: FleetFiles):
    """An agent works on the files as they are in git; cloning runs no hook and no filter on the host."""
    done = works.run("fleet", "trigger", "cloned", "--wait", "--json")
    assert done.json["state"] == "succeeded", done.json["reason"]
    assert not (works.home / "ran").exists()


def _said(crew: FleetFiles, words: str) -> bool:
    return words in crew.log


def test_hooks_and_run_have_one_clone(works: FleetFiles):
    """The run finds what hooks prepared, later hooks find what the run made, and the patch is kept."""
    runs = []
    for _ in range(2):
        job = works.run("fleet", "trigger", "making", "--wait", "--json").json
        assert job["state"] == "succeeded", job["reason"]
        mark = f"job {job['id']}: hook after_run 1: run "
        works.waits(partial(_said, works, mark), bool)
        assert "7" in works.log.partition(mark)[2].partition("\n")[0].partition(": ")[2]
        runs.append(job["run_id"])
    assert "+made" in works.does("diff", runs[0], "--raw").out
    assert (
        f"ringfence diff {runs[0][-8:]} --raw"
        in works.does("job", "show", works.jobs(agent="making")[1]["id"]).out
    )


def test_a_ref_that_is_not_there_is_told(works: FleetFiles):
    """If the repository lacks the configured ref, the job ends as an infrastructure fault with git's message."""
    ended = works.run("fleet", "trigger", "lost", "--wait", "--json")
    assert (ended.json["state"], ended.code) == ("infrastructure", 75)
    assert "git fetch failed" in ended.json["reason"]

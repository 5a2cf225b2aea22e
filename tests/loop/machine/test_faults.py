"""What goes wrong that is nobody's attempt: the loop ends, and goes on where it was once that is mended."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.loop.machine.project import Project, case, instead, judged, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_INFRASTRUCTURE = 75
_TEST = "tests.test_one.Test.test_it"


def _with(role: str, say: str) -> list[dict[str, Any]]:
    """All parts of the story, with another last word of one role."""
    others = [each for each in parts_of("one") if f"role: {role}" not in each["when"]]
    return [case(f"role: {role}", say=say), *others]


def _contradiction() -> str:
    verdict = json.loads(judged(_TEST, verdict="not_met"))
    return json.dumps({**verdict, "overall": "pass"})


def test_a_judge_or_reviewer_that_cannot_be_relied_on_spends_no_attempt(tmp_path: Path):
    """Unreadable, two answers, contradictory, with evidence that is not there: after some tries the loop ends."""
    project = Project.make(tmp_path, [story_of("one")], _with("reviewer", "It looks fine to me."))
    project.configure(limits={"faults": 2})
    done = project.start()
    assert (done.returncode, "the reviewer gave no readable answer" in done.stdout) == (
        _INFRASTRUCTURE, True,
    ), done  # fmt: skip
    two = judged(_TEST, verdict="not_met") + judged(_TEST)
    for say in ("PASS", two, _contradiction(), judged("tests.test_one.Test.test_that_is_not_there")):
        project.play(_with("judge", say))
        done = project.run("loop", "resume")
        assert (done.returncode, "2 tries" in done.stdout) == (_INFRASTRUCTURE, True), (say, done)
        assert project.git("for-each-ref", "refs/heads/ringfence/") == ""
    project.play(parts_of("one"))
    done = project.run("loop", "resume")
    assert done.returncode == 0, done
    row = project.rows()["one"]
    assert (row["state"], row["attempt"]) == ("passed", 1)
    assert row["used"]["calls"] == 2 + 2 + 1 + 4 * 2 + 1  # nobody worked again whose answer was read


def test_a_model_that_is_never_there_ends_the_loop(tmp_path: Path):
    """As does one that refuses the key, at once: the loop is gone on with when it is back."""
    broken = {"error": {"status": 401, "times": 50}, "text": "never said"}
    writer, *others = parts_of("one")
    project = Project.make(tmp_path, [story_of("one")], [{**writer, "turns": [broken]}, *others])
    done = project.start()
    assert done.returncode == 77, done
    project.play(parts_of("one"))
    assert project.run("loop", "resume").returncode == 0
    assert project.rows()["one"]["attempt"] == 1


def test_a_model_that_the_api_does_not_know_ends_the_loop(tmp_path: Path):
    """78 with the API's reason, at once; no story is skipped, and another model goes on with it."""
    unknown = {"error": {"status": 404, "message": "model: nonesuch", "times": 50}, "text": "never said"}
    project = Project.make(tmp_path, [story_of("one")], [])
    words = project.starting
    for role in ("test_writer", "implementor", "judge"):
        (part,) = (each for each in parts_of("one") if f"role: {role}" in each["when"])
        project.play(instead({**part, "turns": [unknown]}))
        done = project.run(*words)
        assert (done.returncode, "model: nonesuch" in done.stdout) == (78, True), (role, done)
        assert project.rows()["one"]["state"] == "waiting"
        words = ("loop", "resume")
    other = project.script.with_name("other.yaml")
    other.write_text(json.dumps({"cases": parts_of("one")}))
    done = project.run("loop", "resume", "--model", f"scripted:{other}")
    assert done.returncode == 0, done
    assert project.rows()["one"]["attempt"] == 1


def test_a_request_that_is_refused_in_the_middle_is_the_attempts(tmp_path: Path):
    """What was answered before was asked rightly: it is for what the agent has said since."""
    refused = {"error": {"status": 400, "message": "what is this", "times": 50}, "text": "never said"}
    broken = {
        "when": ["role: implementor", "attempt: 1 of"],
        "turns": [{"tools": [{"run": "true"}]}, refused],
    }
    project = Project.make(tmp_path, [story_of("one")], [broken, *parts_of("one")])
    done = project.start()
    assert done.returncode == 0, done
    assert project.rows()["one"]["attempt"] == 2


def test_a_role_that_hangs_spends_its_attempt(tmp_path: Path):
    """Its time is up, and the next attempt is told so."""
    hangs = case("role: implementor", "attempt: 1 of", run="sleep 600")
    writer, implementor, *others = parts_of("one")
    told = {**implementor, "when": [*implementor["when"], "timed_out"]}
    project = Project.make(tmp_path, [story_of("one")], [hangs, writer, told, *others])
    project.configure(roles={"implementor": {"wall_clock": "9s"}})
    done = project.start()
    assert done.returncode == 0, done
    assert project.rows()["one"]["attempt"] == 2


def test_a_loop_whose_clones_are_gone_says_so(tmp_path: Path):
    """What was worked on is lost with them, and nothing is guessed."""
    project = Project.make(tmp_path, [story_of("one")], _with("judge", "PASS"))
    project.configure(limits={"faults": 1})
    assert project.start().returncode == _INFRASTRUCTURE
    assert project.run("loop", "rm").returncode == 0
    done = project.run("loop", "resume")
    assert done.returncode != 0, done
    assert "Traceback" not in done.stderr
    cancelled = project.run("loop", "cancel")
    assert (cancelled.returncode, "has ended already: cancelled" in cancelled.stderr) == (2, True), cancelled
    project.play(parts_of("one"))
    assert project.start().returncode == 0


def test_a_bug_is_named_with_its_traceback(tmp_path: Path):
    """The reason has the type of the error, and names a file with the traceback."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    project.start("--max-agent-calls", "1")
    (database,) = (project.root / "state" / "loops").glob("*/loop.db")
    with closing(sqlite3.connect(database)) as connection, connection:
        found = connection.execute("UPDATE loop_steps SET result = '{}' WHERE name = 'red.1'")
        assert found.rowcount == 1
    done = project.run("loop", "resume", "--max-agent-calls", "10")
    file = database.with_name("error.txt")
    assert done.returncode == _INFRASTRUCTURE, done
    reason = (
        f"the work on story one failed: internal error: KeyError: 'reports'; please report it with '{file}'"
    )
    assert reason in done.stdout
    trace = file.read_text()
    assert trace.startswith("Traceback (most recent call last):\n")
    assert "in kept_reports" in trace

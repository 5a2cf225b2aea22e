"""Stories that need a person."""

import json
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, case, events_of, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_BLOCKED = 6


def test_questions_are_asked_answered_and_gone_on_with(tmp_path: Path):
    """One that the stories' file asks, one that a role asks: the rest is done, and answers are in the prompts."""
    asks = json.dumps({"status": "blocked", "summary": "unclear", "question": "Which colour?"})
    stories = [
        story_of("role", files=["pieces/shared.py"]),
        story_of("file", question="Is it wanted at all?"),
        story_of("leaning", depends_on=["file"]),
        story_of("beside", files=["pieces/shared.py"]),
    ]
    answered = [{**each, "when": [*each["when"], "A person has answered: "]} for each in parts_of("role")]
    parts = [*parts_of("file"), *parts_of("leaning"), *parts_of("beside")]
    project = Project.make(
        tmp_path, stories,
        [answered[0], case("role: test_writer", "story: role\n", say=asks), *answered[1:], *parts],
    )  # fmt: skip
    checked = project.run("loop", "check", str(project.prd), "--model", f"scripted:{project.script}")
    assert (checked.returncode, "Is it wanted at all?" in checked.stdout) == (0, True), checked
    done = project.start()
    assert done.returncode == _BLOCKED, done
    assert "Is it wanted at all?" in done.stderr
    assert "Is it wanted at all?" in done.stdout
    assert "next: ringfence loop retry file --answer TEXT" in done.stdout
    assert "retry leaning" not in done.stdout
    ended = next(
        each for each in events_of(project.run("loop", "logs", "--json")) if each["event"] == "loop.completed"
    )
    assert "`ringfence loop retry STORY --answer TEXT`" in ended["reason"]
    rows = project.rows()
    assert {name: row["state"] for name, row in rows.items()} == {
        "role": "blocked", "file": "blocked", "leaning": "blocked", "beside": "passed",
    }  # fmt: skip
    assert "Which colour?" in rows["role"]["reason"]
    assert "Is it wanted at all?" in rows["file"]["reason"]
    assert "'file'" in rows["leaning"]["reason"]

    assert "Which colour?" in project.run("loop", "retry", "role").stderr
    done = project.run("loop", "retry", "role", "--answer", "blue")
    assert (done.returncode, project.rows()["role"]["state"]) == (_BLOCKED, "passed"), done
    done = project.run("loop", "retry", "file", "--answer", "yes")
    assert done.returncode == 0, done
    assert {row["state"] for row in project.rows().values()} == {"passed"}

"""A loop that ended, and one that was killed during a story."""

import json
import subprocess

import pytest

from .conftest import Unpack
from .product import Golden


def test_an_ended_loop_is_listed_and_shown(golden: Unpack):
    """The list has its outcome, the report the outcome and the evidence of each story."""
    loop = golden("loop-ended")
    (row,) = loop.run("loop ls", "--json").json["loops"]
    assert (row["id"], row["state"], row["passed"]) == (loop.facts["loop"], "incomplete", 1)
    assert story_states(loop) == {"one": "passed", "two": "skipped"}
    report = loop.run("loop show").stdout
    assert "1 passed, 1 skipped" in report
    assert "tests.test_one.Test.test_it" in report


def test_progress_and_changes_of_an_ended_loop_are_printed(golden: Unpack):
    """The stories are exported as version 0.1 exported them; the branch and the rejected attempt have patches."""
    loop = golden("loop-ended")
    loop.run("loop export", loop.root / "exported.json")
    recorded, exported = (
        json.loads((loop.root / f"{name}.json").read_text()) for name in ("progress", "exported")
    )
    assert exported == recorded
    assert "+def one():" in loop.run("loop diff").stdout
    assert "pieces/two.py" in loop.run("loop diff", "two", "--rejected", "1").stdout


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_skipped_story_is_retried(golden: Unpack):
    """It passes, and its commits follow the existing ones on the branch."""
    loop = golden("loop-ended")
    script = json.loads((loop.root / "script.yaml").read_text())
    (implementor,) = (case for case in script["cases"] if case["when"] == ["role: implementor", "story: two"])
    build = "printf 'def two():\\n    return \"two\"\\n' > pieces/two.py"
    implementor["turns"] = [{"tools": [{"run": build}]}, {"text": "done"}]
    (loop.root / "script.yaml").write_text(json.dumps(script))
    loop.run("loop retry", "two")
    assert story_states(loop) == {"one": "passed", "two": "passed"}
    assert commit_subjects(loop)[-2:] == ["The piece two: tests", "The piece two"]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_killed_loop_is_resumed(golden: Unpack):
    """It continues with the interrupted step: each commit exists once, and each record is sealed."""
    loop = golden("loop-killed")
    (row,) = loop.run("loop ls", "--json").json["loops"]
    assert (row["id"], row["state"]) == (loop.facts["loop"], "interrupted")
    assert story_states(loop) == {"one": "passed", "two": "running"}
    runs_before = len(list((loop.state / "runs").iterdir()))
    loop.run("loop resume")
    assert story_states(loop) == {"one": "passed", "two": "passed"}
    assert commit_subjects(loop) == [
        "Start", "The piece one: tests", "The piece one", "The piece two: tests", "The piece two",
    ]  # fmt: skip
    steps = ("implementor", "check", "tests alone", "reviewer", "judge")
    assert len(loop.run("runs verify", "--all", "--json").json["runs"]) == runs_before + len(steps)


def test_a_killed_loop_is_removed(golden: Unpack):
    """The commits of the story that passed are on the branch before the clones are removed."""
    loop = golden("loop-killed")
    (killed,) = loop.run("loop ls", "--json").json["loops"]
    loop.run("loop clean", killed["id"], "--all")
    assert loop.run("loop ls", "--json").json["loops"] == []
    assert commit_subjects(loop)[1:3] == ["The piece one: tests", "The piece one"]


def story_states(loop: Golden) -> dict[str, str]:
    """The state of each story of the last loop."""
    return {story["id"]: story["state"] for story in loop.run("loop status", "--json").json["stories"]}


def commit_subjects(loop: Golden) -> list[str]:
    """The subjects of the commits on the branch of the loop, the oldest first."""
    options = ("-c", "safe.directory=*", "-C", str(loop.project))
    command = ("git", *options, "log", "--reverse", "--format=%s", "--branches=ringfence/*")
    return subprocess.check_output(command, text=True).splitlines()

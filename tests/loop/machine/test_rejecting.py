"""One loop in which attempts are rejected for each reason that there is, and what comes of them."""

import json
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.loop.machine.project import Project, case, events_of, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class Ended:
    """A loop that has come to its end."""

    project: Project
    done: "subprocess.CompletedProcess[str]"
    events: list[dict[str, Any]]

    def complaint(self, story: str, kind: str = "story.retried") -> str:
        """What the first rejected attempt at a story was told."""
        found = [each for each in self.events if each["event"] == kind and each.get("story") == story]
        return "\n".join(found[0]["complaints"])


def _first(name: str, role: str, *more: str, run: str | None = None, say: str = "done") -> dict[str, Any]:
    return case(f"role: {role}", f"story: {name}\n", "attempt: 1 of", *more, run=run, say=say)


def _parts(name: str, *told: str) -> list[dict[str, Any]]:
    """A story that passes; its second implementor speaks only if the prompt holds what the first was told."""
    writer, implementor, *others = parts_of(name)
    return [writer, {**implementor, "when": [*implementor["when"], *told]}, *others]


_SILENT = """cat > tests/test_silent.py <<'EOF'
import unittest

import pieces.silent

if not hasattr(pieces.silent, "silent"):
    raise unittest.SkipTest("there is nothing to be tried")


class Test(unittest.TestCase):
    def test_it(self):
        self.assertEqual(pieces.silent.silent(), "silent")
EOF"""
"""Red on the base, where the module is not there; skipped where it holds nothing."""


def _cases() -> list[dict[str, Any]]:
    wrong = "printf 'def hopeless():\\n    return 1\\n' > pieces/hopeless.py"
    return [
        case("role: test_writer", "story: silent\n", run=_SILENT),
        _first("silent", "implementor", run="echo 'nothing = 1' > pieces/silent.py"),
        *_parts("silent", "attempt: 2 of", "tests/test_silent.py: its tests are")[1:],
        _first("broken", "test_writer", run="echo 'def (' > tests/test_broken.py"),
        *parts_of("broken"),
        *parts_of("hopeless", code=wrong),
        *parts_of("last"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All stories of it are independent but one."""
    names = ("silent", "broken", "hopeless", "last")
    stories = [story_of(name) for name in names]
    stories.insert(3, story_of("leaning", depends_on=["hopeless"]))
    project = Project.make(tmp_path_factory.mktemp("rejecting"), stories, _cases())
    done = project.start("--json", "--attempts", "2")
    assert done.returncode == 3, (done.stdout[-3000:], done.stderr)
    return Ended(project, done, events_of(done))


def test_an_attempt_that_has_the_storys_own_tests_skipped_is_rejected(ended: Ended):
    """They were red as a file that could not be loaded, so that none of them was known by its name."""
    assert "tests/test_silent.py: its tests are" in ended.complaint("silent")
    assert ended.project.rows()["silent"]["attempt"] == 2


def test_tests_that_cannot_be_loaded_are_rejected(ended: Ended):
    """They are red, but not because something is to be built."""
    assert "tests/test_broken.py" in ended.complaint("broken")


def test_nothing_of_a_skipped_story_is_on_the_branch(ended: Ended):
    """Neither its tests nor its code; the work is kept as patch and ref, and the story after it is green."""
    project = ended.project
    rows = project.rows()
    assert rows["hopeless"]["state"] == "skipped"
    assert rows["last"]["state"] == "passed"
    files = project.git("ls-tree", "-r", "--name-only", project.branch).split()
    assert not [name for name in files if "hopeless" in name]
    assert {f"pieces/{name}.py" for name in ("silent", "broken", "last")} <= {*files}
    for attempt in ("1", "2"):
        shown = project.run("loop", "diff", "hopeless", "--rejected", attempt)
        assert "+    return 1" in shown.stdout, shown


def test_a_story_that_depends_on_a_skipped_one_is_skipped(ended: Ended):
    """With the reason, and no agent was asked anything."""
    row = ended.project.rows()["leaning"]
    assert (row["state"], row["used"]["calls"]) == ("skipped", 0)
    assert "'hopeless'" in row["reason"]


def test_every_story_has_one_end(ended: Ended):
    """And the loop has one."""
    ends = [each["story"] for each in ended.events if each["event"] in ("story.passed", "story.skipped")]
    assert sorted(ends) == sorted(ended.project.rows())
    assert [each["state"] for each in ended.events if each["event"] == "loop.completed"] == ["incomplete"]


def test_a_merged_commit_is_not_checked_again(ended: Ended):
    """Its gate has said in a new sandbox what the next story asks of its base: only the first has a run for that."""
    (file,) = (ended.project.root / "state" / "loops").glob("*/loop.db")
    with closing(sqlite3.connect(file)) as database:
        first, *others = database.execute(
            "SELECT run_id, result FROM loop_steps WHERE name LIKE 'base.%' ORDER BY began_ms"
        ).fetchall()
        gates = dict(
            database.execute("SELECT run_id, result FROM loop_steps WHERE name LIKE 'checks.%'").fetchall()
        )
    assert first[0] is not None
    assert [run for run, _ in others] == [None] * 3
    for told in (json.loads(result) for _, result in others):
        assert told["reports"] == json.loads(gates[told["run"]])["reports"]


def test_a_story_that_is_begun_anew_has_the_words_that_its_file_has_now(tmp_path: Path):
    """They reach the roles, and what depends on the story passes, too; a file that is wrong begins nothing."""
    mended = [{**each, "when": [*each["when"], "MENDED WORDS"]} for each in parts_of("one")]
    other = [story_of("other", passes=True), story_of("leaning", depends_on=["one"])]
    cases = [*mended, *parts_of("leaning"), case("role: test_writer")]
    project = Project.make(tmp_path, [*other, story_of("one")], cases)
    assert project.start("--attempts", "1").returncode == 3
    project.prd.write_text('{"stories": [{"id": "one", "titel": "Slip"}]}')
    slip = project.run("loop", "retry", "one")
    assert (slip.returncode, "titel" in slip.stderr, project.rows()["one"]["state"]) == (
        78,
        True,
        "skipped",
    ), slip
    project.prd.write_text(json.dumps({"stories": [story_of("two")]}))
    other_text = project.run("loop", "retry", "one")
    assert (other_text.returncode, "has no such story any more" in other_text.stderr) == (3, True)
    project.prd.unlink()
    old_text = project.run("loop", "retry", "one")
    assert (old_text.returncode, "does not exist any more; its text is as it was" in old_text.stderr) == (
        3,
        True,
    ), old_text
    project.prd.write_text(json.dumps({"stories": [story_of("one", description="MENDED WORDS"), *other]}))
    done = project.run("loop", "retry", "one")
    assert done.returncode == 0, done
    assert project.subjects() == [
        "base", "The piece one: tests", "The piece one", "The piece leaning: tests", "The piece leaning",
    ]  # fmt: skip

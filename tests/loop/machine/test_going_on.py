"""What a loop remembers when it is gone on with, and what is left of one that nobody works on."""

import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of
from tests.loop.machine.test_dying import dying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_LIMIT, _USAGE = 5, 2
_MOMENTS = {
    "loops": ("created_ms", "begun_ms", "ended_ms"),
    "loop_steps": ("began_ms", "ended_ms"),
    "loop_events": ("at_ms",),
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Path]:
    """A loop that was killed after the first of its two stories had passed, and a copy of all that there is of it."""
    stories = [story_of("one"), story_of("two", depends_on=["one"])]
    parts = [*parts_of("one"), *parts_of("two")]
    project = Project.make(tmp_path_factory.mktemp("killed") / "loop", stories, parts)
    project.start(command=dying("step", 9))
    while project.rows()["one"]["state"] != "passed":
        project.run("loop", "resume", command=dying("step", 9))
    copy = project.root.with_name("copy")
    subprocess.run(["cp", "-a", project.root, copy], check=True)
    return project, copy


@pytest.fixture
def interrupted(killed: tuple[Project, Path]) -> Project:
    """That loop, as it was left."""
    project, copy = killed
    shutil.rmtree(project.root)
    subprocess.run(["cp", "-a", copy, project.root], check=True)
    return project


def test_what_was_asked_for_at_the_start_is_done_after_a_resumption(tmp_path: Path):
    """`--merge` holds for the round in which the last story passes, and no merge is told to be next."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    ended = project.start("--merge", "--max-agent-calls", "1")
    assert (ended.returncode, "nothing was merged" in ended.stderr) == (_LIMIT, True), ended
    assert "--max-agent-calls N" in ended.stdout.splitlines()[-1]
    ended = project.run("loop", "resume", "--max-agent-calls", "50")
    assert (ended.returncode, "main is at" in ended.stdout, "git merge" in ended.stdout) == (
        0,
        True,
        False,
    ), ended
    assert project.git("rev-parse", "main") == project.git("rev-parse", project.branch)
    assert (project.work / "pieces" / "one.py").is_file()


def test_cancelling_a_loop_that_nobody_works_on_leaves_what_passed_and_a_report(interrupted: Project):
    """As a loop does that comes to its end by itself: its process was killed, and it is not gone on with."""
    project = interrupted
    assert project.git("for-each-ref", "refs/heads/ringfence/") == ""
    done = project.run("loop", "cancel")
    assert (done.returncode, "is cancelled" in done.stderr) == (0, True), done
    assert project.subjects(f"main..{project.branch}") == ["The piece one: tests", "The piece one"]
    (directory,) = (project.root / "state" / "loops").glob("2*")
    assert "cancelled" in (directory / "report.md").read_text()
    assert {"report.html", "loop.patch"} <= {path.name for path in directory.iterdir()}
    assert project.rows()["two"]["state"] == "waiting"
    again = project.run("loop", "resume")
    assert again.returncode == 0, again


def test_a_cancelled_loop_names_no_branch_that_was_not_delivered(interrupted: Project):
    """The refused delivery is reported as such; the report is written, and the loop is cancelled all the same."""
    obstacle = interrupted.work / ".git" / "refs" / "heads" / "ringfence"
    obstacle.write_text("in its way\n")
    done = interrupted.run("loop", "cancel")
    assert (done.returncode, "is cancelled; `ringfence loop resume" in done.stderr) == (0, True), done
    assert "could not be delivered: " in done.stderr
    assert ("is on branch" in done.stderr, "report" in done.stderr) == (False, False), done
    (directory,) = (interrupted.root / "state" / "loops").glob("2*")
    assert "the branch could not be delivered: " in (directory / "report.md").read_text()


def test_a_cancelled_loop_delivers_a_revert_too(interrupted: Project):
    """The only story that had passed was rejected by a person: the branch without it is delivered."""
    obstacle = interrupted.work / ".git" / "refs" / "heads" / "ringfence"
    obstacle.write_text("in its way\n")  # so that rejecting the story delivers nothing, and resumes nothing
    assert interrupted.run("loop", "reject", "one").returncode != 0
    obstacle.unlink()
    done = interrupted.run("loop", "cancel")
    assert (done.returncode, "what passed" in done.stderr) == (0, False), done
    assert interrupted.subjects(f"main..{interrupted.branch}")[-1] == "Revert: The piece one"


def test_time_in_which_nothing_worked_on_a_loop_is_not_counted(interrupted: Project):
    """The report of a loop that is resumed hours later does not count them; its lines count from the loop's start."""
    (database,) = (interrupted.root / "state" / "loops").glob("*/loop.db")
    with closing(sqlite3.connect(database)) as link, link:
        for table, columns in _MOMENTS.items():
            moved = ", ".join(f"{column} = {column} - 36000000" for column in columns)
            link.execute(f"UPDATE {table} SET {moved}")
    done = interrupted.run("loop", "resume")
    assert done.returncode == 0, done
    assert set(re.findall(r"^(\d+):\d\d:\d\d  ", done.stdout, re.MULTILINE)) == {"10"}
    logs = interrupted.run("loop", "logs").stdout
    assert [*dict.fromkeys(re.findall(r"^(\d+):\d\d:\d\d  ", logs, re.MULTILINE))] == ["0", "10"]
    report = json.loads(interrupted.run("loop", "show", "--json").stdout)
    assert report["used"]["seconds"] < 36_000


def test_cleaning_a_loop_that_was_interrupted_loses_nothing_that_passed(interrupted: Project):
    """It is on the branch before the clones are gone, and the loop is in nobody's way."""
    project = interrupted
    followed = project.run("loop", "logs", "--follow").stdout
    assert ("interrupted" in followed, "branch:" in followed) == (True, False), followed
    assert ", not in your repository yet" in project.run("loop", "show").stdout
    obstacle = project.work / ".git" / "refs" / "heads" / "ringfence"
    obstacle.write_text("in its way\n")  # so the branch cannot be made
    assert project.run("loop", "rm").returncode != 0
    obstacle.unlink()
    done = project.run("loop", "rm")
    assert (done.returncode, "was interrupted; it is cancelled" in done.stderr) == (0, True), done
    named = project.branch.removeprefix("refs/heads/")
    assert f"; what passed is on branch {named!r}" in done.stderr
    assert project.subjects(f"main..{project.branch}") == ["The piece one: tests", "The piece one"]
    assert project.start().returncode == 0


def test_a_script_that_is_not_there_holds_no_repository(tmp_path: Path):
    """It is told before a loop is begun."""
    project = Project.make(tmp_path, [story_of("one")], [])
    project.script.unlink()
    done = project.start()
    assert (done.returncode, "cannot be read" in done.stderr) == (_USAGE, True), done
    assert project.run("loop", "ls").stdout == ""

"""Stories that the planner drafts for a goal."""

import json
from pathlib import Path

import pytest
from tests.job.terminal.person import Person
from tests.loop.machine.project import COMMAND, Project, case, parts_of

from ringfence.job.recorder import spent_by

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_USAGE, _AUTHENTICATION = 2, 77
_STORY = {
    "id": "one",
    "title": "The piece one",
    "description": "pieces/one.py has one().",
    "acceptance_criteria": ["one() returns 'one'"],
    "priority": 1,
    "depends_on": [],
    "files": [],
    "check": None,
}
_DRAFT = {"title": "Pieces", "description": "", "context": [], "stories": [_STORY], "blocked": None}


def _goal(project: Project, *more: str, model: bool = True) -> tuple[int, str]:
    words = ("--model", f"scripted:{project.script}") if model else ()
    done = project.run("loop", "start", "--goal", "A piece called one", *words, *more)
    return done.returncode, done.stderr


def test_a_goal_becomes_stories_that_are_worked_on(tmp_path: Path):
    """An answer that cannot be read is asked for again, and why is told; all that the planner took is counted."""
    cases = [
        case("role: planner", "Your last answer could not be used", say=json.dumps(_DRAFT)),
        case("role: planner", say="One story will do."),
        *parts_of("one"),
    ]
    project = Project.make(tmp_path, [], cases)
    code, told = _goal(project, "--yes")
    assert (code, "it is asked again" in told, "one  The piece one" in told) == (0, True, True), told
    assert project.rows()["one"]["state"] == "passed"
    used = json.loads(project.run("loop", "status", "--json").stdout)["used"]
    spent = sum(spent_by(project.root / "state" / "runs" / run.id)[0] for run in project.runs())
    assert (used["calls"], used["tokens"]) == (2 + 4, spent)


def test_nobody_is_paid_for_stories_that_nobody_can_agree_to(tmp_path: Path):
    """Without a terminal and without --yes it ends before the planner works."""
    project = Project.make(tmp_path, [], [])
    code, told = _goal(project)
    assert (code, "--yes" in told, project.runs()) == (_USAGE, True, []), told


@pytest.mark.parametrize("answer", ["n\n", "\x04"], ids=["no", "end of input"])
def test_stories_that_nobody_agreed_to_are_kept(tmp_path: Path, answer: str):
    """They can be mended and given by --prd: a planner is paid once."""
    project = Project.make(tmp_path, [], [case("role: planner", say=json.dumps(_DRAFT)), *parts_of("one")])
    person = Person(rows=60, columns=300)
    try:
        words = ("loop", "start", "--goal", "One", "--model", f"scripted:{project.script}")
        ringfence = person.start(*COMMAND, *words, cwd=project.work, env=project.environment)
        person.see("Accept these stories?")
        person.type(answer)
        shown = person.see("no loop was started", "pass it with --prd")
        assert ringfence.wait(60) == _USAGE
    finally:
        person.close()
    [file] = (project.root / "state" / "runs").glob("*/stories.json")
    assert str(file) in shown
    done = project.run("loop", "start", "--prd", str(file), "--model", f"scripted:{project.script}")
    assert (done.returncode, project.rows()["one"]["state"]) == (0, "passed"), done.stderr


@pytest.mark.parametrize("goal", ["", " \n"])
def test_a_goal_that_says_nothing_is_refused(tmp_path: Path, goal: str):
    """Nobody is paid for guessing."""
    project = Project.make(tmp_path, [], [])
    done = project.run("loop", "start", "--yes", "--goal", goal)
    assert (done.returncode, "--goal is empty" in done.stderr, project.runs()) == (_USAGE, True, [])


def test_nobody_is_paid_for_stories_of_a_place_where_no_loop_can_be_begun(tmp_path: Path):
    """What stands against the repository ends it before the planner works."""
    project = Project.make(tmp_path, [], [case("role: planner")])
    code, told = _goal(project, "--yes", "--base", "nowhere")
    assert (code, "'nowhere' names no commit" in told, project.runs()) == (_USAGE, True, []), told


def test_a_planner_without_a_key_is_no_fault_of_the_world(tmp_path: Path):
    """The exit code is that of a missing credential, as of any other role."""
    project = Project.make(tmp_path, [], [])
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        project.environment.pop(name, None)
    code, told = _goal(project, "--yes", model=False)
    assert (code, "ANTHROPIC_API_KEY" in told) == (_AUTHENTICATION, True), told

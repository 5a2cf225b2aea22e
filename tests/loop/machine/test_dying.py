"""A loop whose process is killed, again and again, and resumed."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.loop.machine.project import COMMAND, Project, parts_of, state_environment, story_of

from ringfence.errors import ExitCode
from ringfence.job.recorder import spent_by
from ringfence.loop.directory import loop_directories
from ringfence.loop.store import read_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_EXAMPLES = Path(__file__).parents[3] / "examples"
_KILLED = -9
_EACH_ONCE = ["base", "The piece one: tests", "The piece one", "The piece two: tests", "The piece two"]


def dying(point: str, number: int | Path) -> tuple[str, ...]:
    """The command, killed at a point."""
    return (sys.executable, str(Path(__file__).with_name("dying.py")), point, str(number))


def _project(root: Path) -> Project:
    return Project.make(root, [story_of("one"), story_of("two")], [*parts_of("one"), *parts_of("two")])


def test_killed_at_every_step_it_comes_to_the_same_end(tmp_path: Path):
    """Each process does a run of an agent or checks, and is killed when the next begins: each commit is there once."""
    project, killed = _project(tmp_path), 0
    ended = project.start(command=dying("step", 1))
    while ended.returncode == _KILLED:
        killed += 1
        ended = project.run("loop", "resume", command=dying("step", 1))
    assert (ended.returncode, killed > 10) == (0, True), (killed, ended)
    assert project.subjects() == _EACH_ONCE
    assert project.git("ls-tree", "-r", "--name-only", project.branch).splitlines() == [
        "pieces/__init__.py", "pieces/one.py", "pieces/two.py", "tests/__init__.py", "tests/test_old.py",
        "tests/test_one.py", "tests/test_two.py",
    ]  # fmt: skip
    assert project.git("status", "--porcelain") == ""


@pytest.mark.parametrize("number", [4, 13, 18, 31])
def test_killed_at_a_write_it_comes_to_the_same_end(tmp_path: Path, number: int):
    """Whether a row was written just before or not; what a turn had used that died before its end was written counts."""
    project = _project(tmp_path)
    first = project.start(command=dying("write", number))
    assert first.returncode == _KILLED, first
    ended = project.run("loop", "resume", command=COMMAND)
    assert ended.returncode == 0, ended
    assert project.subjects() == _EACH_ONCE
    runs = [spent_by(project.root / "state" / "runs" / run.id)[0] for run in project.runs()]
    assert json.loads(project.run("loop", "status", "--json").stdout)["used"]["tokens"] == sum(runs) > 0


def _one(root: Path) -> Project:
    return Project.make(root, [story_of("one")], parts_of("one"))


def _steps(project: Project) -> dict[tuple[str, int, str], tuple[str | None, str | None]]:
    """The run and the outcome of each step that a role did."""
    (directory,) = loop_directories(project.root / "state")
    store = read_store(directory)
    return {
        (step.story, step.generation, step.name): (step.run_id, step.outcome)
        for step in store.steps()
        if step.role
    }


def _assert_as_undisturbed(project: Project, undisturbed: Project) -> None:
    assert project.git("rev-parse", f"{project.branch}^{{tree}}") == undisturbed.git(
        "rev-parse", f"{undisturbed.branch}^{{tree}}"
    )
    assert project.subjects() == undisturbed.subjects()
    steps, expected = _steps(project), _steps(undisturbed)
    outcomes = {key: outcome for key, (_, outcome) in steps.items()}
    assert outcomes == {key: outcome for key, (_, outcome) in expected.items()}
    # A run that used something did a step, or was interrupted: then it is counted, and it is one of few.
    used = {run.id: spent_by(project.root / "state" / "runs" / run.id)[0] for run in project.runs()}
    assert all(used[str(run_id)] for run_id, _ in steps.values())
    counted = json.loads(project.run("loop", "status", "--json").stdout)["used"]["tokens"]
    assert counted == sum(used.values()) > 0


def test_one_loop_killed_at_each_write_in_turn_comes_to_the_same_tree(tmp_path: Path):
    """Each process dies after the first write that none before it died after; what they did is counted once."""
    undisturbed, project = _one(tmp_path / "undisturbed"), _one(tmp_path / "killed")
    assert undisturbed.start().returncode == 0
    writes = tmp_path / "writes"
    ended, killed = project.start(command=dying("boundary", writes)), 0
    while ended.returncode == _KILLED:
        killed += 1
        ended = project.run("loop", "resume", command=dying("boundary", writes))
    assert (ended.returncode, killed > 40) == (0, True), (killed, ended)
    _assert_as_undisturbed(project, undisturbed)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(1, 9))
def test_a_loop_killed_at_any_one_write_comes_to_the_same_tree(tmp_path: Path, first: int):
    """A fresh loop for each write, every eighth one here."""
    undisturbed = _one(tmp_path / "undisturbed")
    assert undisturbed.start().returncode == 0
    number, project = first, _one(tmp_path / str(first))
    while project.start(command=dying("write", number)).returncode == _KILLED:
        ended = project.run("loop", "resume", command=COMMAND)
        assert ended.returncode == 0, (number, ended)
        _assert_as_undisturbed(project, undisturbed)
        number += 8
        project = _one(tmp_path / str(number))
    assert number > first


def test_the_record_of_an_end_is_sealed_by_the_next_process(tmp_path: Path):
    """Killed when the loop's end was written down: `loop resume` finds nothing to do, and the record is whole then."""
    project = _one(tmp_path)
    assert project.start(command=dying("over", 1)).returncode == _KILLED
    (directory,) = loop_directories(project.root / "state")
    record = read_store(directory).loop.record_run_id
    killed = project.run("runs", "verify", record)
    assert (killed.returncode, "killed" in killed.stdout) == (ExitCode.CHECK_RED, True), killed
    assert project.run("loop", "resume").returncode == 0
    verified = project.run("runs", "verify", record)
    assert (verified.returncode, "killed" in verified.stdout) == (0, False), verified
    assert '"state":"succeeded"' in (project.root / "state" / "runs" / record / "journal.jsonl").read_text()


def _demo(root: Path) -> Project:
    """The five stories of `make demo-loop`, on a copy of their project."""
    project = Project(root, state_environment(root))
    shutil.copytree(_EXAMPLES / "loop", project.work, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(project.work / "prd.json", project.prd)
    shutil.copy(_EXAMPLES / "loop.script.yaml", project.script)
    project.commit_base()
    return project


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", ["step", "boundary"])
def test_the_demo_killed_at_every_step_comes_to_the_same_tree(tmp_path: Path, point: str):
    """Before each run of an agent or of checks, and after each write of the loop's rows."""
    undisturbed, project = _demo(tmp_path / "undisturbed"), _demo(tmp_path / "killed")
    assert undisturbed.start("--attempts", "2").returncode == ExitCode.CHECK_RED
    writes = tmp_path / "writes"
    command = dying(point, 1 if point == "step" else writes)
    ended, killed = project.start("--attempts", "2", command=command), 0
    while ended.returncode == _KILLED:
        killed += 1
        ended = project.run("loop", "resume", command=command)
    # The last process may have died after it had written that the loop has ended: there is nothing to resume then.
    has_ended = ended.returncode == ExitCode.CHECK_RED or "has ended: 4 passed, 1 skipped" in ended.stderr
    assert (has_ended, killed > 30) == (True, True), (killed, ended)
    _assert_as_undisturbed(project, undisturbed)


def test_the_record_of_a_killed_loop_is_whole(tmp_path: Path):
    """What a process that was killed left out of it, the next one adds; then it is sealed, each event in it once."""
    project = _project(tmp_path)
    assert project.start(command=dying("step", 6)).returncode == _KILLED
    ended = project.run("loop", "resume", command=COMMAND)
    assert ended.returncode == 0, ended
    (record,) = (
        run for run in project.runs() if run.kinds[1:2] == ["job.created"] and "loop.started" in run.kinds
    )
    told = [
        kind for kind in record.kinds if kind.startswith(("loop.", "story.", "tests.", "code.", "checks."))
    ]
    of_story = ["story.dispatched", "tests.written", "code.committed", "checks.completed", "story.passed"]
    assert told == ["loop.started", *of_story, *of_story, "loop.completed"]
    verified = project.run("runs", "verify", record.id)
    assert (verified.returncode, "sealed" in verified.stdout) == (0, True), verified

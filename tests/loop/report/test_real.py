"""Reports of a loop that was worked by real runs, with roles that a script plays."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, case, judged, parts_of, reviewed, story_of
from tests.loop.report.test_page import read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_EVIL = "<script>\x1b[2J\u202e [x](http://evil.example)"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A loop that has ended: its first story passed, the second one's only attempt was rejected by a hostile judge."""
    one, two = parts_of("one"), parts_of("two")
    verdict = json.loads(judged("tests.test_two.Test.test_it", verdict="not_met"))
    verdict["feedback"] = verdict["criteria"][0]["reason"] = _EVIL
    two[-2:] = [
        case("role: reviewer", "story: two", say=reviewed()),
        case("role: judge", "story: two", say=json.dumps(verdict)),
    ]
    project = Project.make(tmp_path_factory.mktemp("real"), [story_of("one"), story_of("two")], [*one, *two])
    ended = project.start("--attempts", "1", "--json")
    assert ended.returncode == 3, ended
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["event"] for line in lines if line["event"].startswith("loop.")] == [
        "loop.started", "loop.completed", "loop.summary",
    ]  # fmt: skip
    assert lines[-1]["report"].endswith("report.html")
    return project


def _directory(project: Project) -> Path:
    (found,) = (project.root / "state" / "loops").glob("*/loop.db")
    return found.parent


def test_its_report_lies_in_its_directory(project: Project):
    """As Markdown, as a page, and the work as a patch that git takes."""
    directory = _directory(project)
    text = (directory / "report.md").read_text()
    assert "**incomplete**: 1 passed, 1 skipped" in text
    assert r"\x1b[2J" in text
    tags = {tag for tag, _ in read((directory / "report.html").read_text()).tags}
    assert not tags & {"script", "img"}
    assert directory.stat().st_mode & 0o77 == 0
    project.git("apply", "--check", str(directory / "loop.patch"))


def test_what_a_story_changed_is_a_patch_that_git_takes(project: Project):
    """Its tests and its code; a rejected attempt's, too."""
    told = project.run("loop", "diff", "one")
    done = subprocess.run(
        ["git", "apply", "--check"], cwd=project.work, input=told.stdout, text=True, check=False
    )
    assert (told.returncode, done.returncode) == (0, 0)
    assert {line for line in told.stdout.splitlines() if line.startswith("+++ ")} == {
        "+++ b/pieces/one.py", "+++ b/tests/test_one.py",
    }  # fmt: skip
    rejected = project.run("loop", "diff", "two", "--rejected", "1")
    assert "+++ b/pieces/two.py" in rejected.stdout


def test_each_run_of_the_report_has_a_record(project: Project):
    """By the id that the report names."""
    report = json.loads(project.run("loop", "show", "--json").stdout)
    named = {
        turn["run_id"]
        for story in report["stories"]
        for attempt in story["attempts"]
        for turn in attempt["turns"]
    } | {report["record"]}
    assert len(named) == 1 + 2 * 6
    assert named <= {run.id for run in project.runs()}


def test_the_report_says_what_git_says(project: Project):
    """How many lines of which files came onto the branch."""
    report = json.loads(project.run("loop", "show", "--json").stdout)
    said = {each["path"]: each["insertions"] for each in report["stat"]["files"]}
    told = project.git("diff", "--numstat", f"main...{project.branch}").splitlines()
    assert said == {path: int(plus) for plus, _, path in (line.split("\t") for line in told)}
    assert report["tip"] == project.git("rev-parse", project.branch)


def test_an_export_has_the_progress_and_the_source_stays(project: Project):
    """The file that the stories came from is refused, from whatever directory."""
    before = project.prd.read_bytes()
    assert project.run("loop", "export", str(project.prd)).returncode == 2
    assert project.run("loop", "export", "done.json").returncode == 0
    done = json.loads((project.work / "done.json").read_text())
    (project.work / "done.json").unlink()
    assert [each["passes"] for each in done["stories"]] == [True, False]
    assert project.prd.read_bytes() == before

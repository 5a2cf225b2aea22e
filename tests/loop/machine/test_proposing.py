"""`loop start --pr`: the branch is pushed and a pull request opened, by a stand-in for `gh`."""

import json
import os
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

pytestmark = pytest.mark.slow
_GH = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
words = sys.argv[1:]
body = Path(words[words.index("--body-file") + 1]).read_text()
Path({told!r}).write_text(json.dumps({{"words": words, "body": body}}))
print("https://example.org/pull/7")
"""


def _project(root: Path) -> Project:
    return Project.make(root, [story_of("one")], parts_of("one"))


def test_a_pull_request_is_opened_with_the_report(tmp_path: Path):
    """Of the branch that was delivered, for the branch that the loop began at; no path of this machine is told."""
    project, told, programs = _project(tmp_path), tmp_path / "told.json", tmp_path / "bin"
    project.git("init", "--quiet", "--bare", str(tmp_path / "origin.git"))
    project.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    programs.mkdir()
    (programs / "gh").write_text(_GH.format(told=str(told)))
    (programs / "gh").chmod(0o755)
    project.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    ended = project.start("--pr")
    assert (ended.returncode, "https://example.org/pull/7" in ended.stderr) == (0, True), ended
    found = json.loads(told.read_text())
    branch = project.branch.removeprefix("refs/heads/")
    assert found["words"][:4] == ["pr", "create", "--head", branch]
    assert found["words"][-2:] == ["--base", "main"]
    assert "The piece one" in found["body"]
    assert str(tmp_path) not in found["body"].replace(f"scripted:{project.script}", "")
    assert str(tmp_path) in next((tmp_path / "state").glob("loops/*/report.md")).read_text()
    pushed = project.git("--git-dir", str(tmp_path / "origin.git"), "rev-parse", project.branch)
    assert pushed == project.git("rev-parse", project.branch)


def test_without_gh_nothing_is_begun(tmp_path: Path):
    """It is told before an agent starts."""
    project = _project(tmp_path)
    project.environment["PATH"] = "/nonexistent"
    ended = project.start("--pr")
    assert (ended.returncode, "gh auth login" in ended.stderr) == (2, True), ended
    assert project.runs() == []

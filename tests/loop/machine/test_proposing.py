"""`loop start --pr`: the branch is pushed and a pull request opened, by a stand-in for `gh`."""

import json
import os
import re
from hashlib import sha256
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of
from tests.loop.machine.test_dying import dying

from ringfence.errors import InfrastructureFault
from ringfence.loop.pull_request import open_pull_request

pytestmark = pytest.mark.slow
_GH = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
words, told = sys.argv[1:], Path({told!r})
if words[:2] == ["pr", "list"]:
    print("https://example.org/pull/7" if told.exists() else "")
else:
    body = sys.stdin.read()
    with told.open("x") as file:
        json.dump({{"words": words, "body": body}}, file)
    print("https://example.org/pull/7")
"""
_KILLED, _REFUSED = -9, 4


def _project(root: Path) -> Project:
    return Project.make(root, [story_of("one")], parts_of("one"))


def _with_gh(root: Path) -> tuple[Project, Path]:
    """A project with an `origin` and a `gh` that opens one pull request only; and the file with what that was told."""
    project, told, programs = _project(root), root / "told.json", root / "bin"
    project.git("init", "--quiet", "--bare", str(root / "origin.git"))
    project.git("remote", "add", "origin", str(root / "origin.git"))
    programs.mkdir()
    (programs / "gh").write_text(_GH.format(told=str(told)))
    (programs / "gh").chmod(0o755)
    project.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    return project, told


def test_a_pull_request_is_opened_with_the_report(tmp_path: Path):
    """Of the branch that was delivered, for the branch that the loop began at; no path of this machine is told."""
    project, told = _with_gh(tmp_path)
    ended = project.start("--pr")
    assert (ended.returncode, "https://example.org/pull/7" in ended.stdout) == (0, True), ended
    found = json.loads(told.read_text())
    branch = project.branch.removeprefix("refs/heads/")
    assert found["words"][:4] == ["pr", "create", "--head", branch]
    assert found["words"][-2:] == ["--base", "main"]
    assert "The piece one" in found["body"]
    assert str(tmp_path) not in found["body"].replace(f"scripted:{project.script}", "")
    assert str(tmp_path) in next((tmp_path / "state").glob("loops/*/report.md")).read_text()
    pushed = project.git("--git-dir", str(tmp_path / "origin.git"), "rev-parse", project.branch)
    assert pushed == project.git("rev-parse", project.branch)


def test_a_pull_request_has_an_attestation(tmp_path: Path):
    """The note of the branch's last commit is on the remote, the text names its digest, and it verifies in a clone."""
    project, told = _with_gh(tmp_path)
    assert project.start("--pr").returncode == 0
    branch, clone = project.branch.removeprefix("refs/heads/"), tmp_path / "clone"
    project.git("clone", "--quiet", "--branch", branch, str(tmp_path / "origin.git"), str(clone))
    project.git("-C", str(clone), "fetch", "--quiet", "origin", "refs/notes/*:refs/notes/*")
    key = tmp_path / "state" / "keys" / "journal-ed25519.pub"
    verified = project.run(
        "attest", "verify", "--tree", str(clone), "--commit", "HEAD", "--key", str(key), "--json"
    )
    assert verified.returncode == 0, verified
    (digest,) = re.findall(r"Attestation: `(sha256:[0-9a-f]{64})`", json.loads(told.read_text())["body"])
    note = project.git("-C", str(clone), "notes", "--ref=ringfence", "show", "HEAD")
    assert digest.removeprefix("sha256:") in (
        sha256(note.encode()).hexdigest(),
        sha256(f"{note}\n".encode()).hexdigest(),
    )


@pytest.mark.parametrize("when", [1, 2], ids=["before it was begun", "before it was written down"])
def test_what_was_asked_for_outlives_the_process(tmp_path: Path, when: int):
    """Killed when every story has passed: `status` says what is left, `resume` does it, and no part of it twice."""
    project, told = _with_gh(tmp_path)
    begun = project.start("--merge", "--pr", command=dying("over", when))
    assert begun.returncode == _KILLED, begun
    assert "next: ringfence loop resume" in project.run("loop", "status").stdout
    ended = project.run("loop", "resume", command=dying("over", when)) if when == 2 else None
    assert ended is None or ended.returncode == _KILLED, ended
    ended = project.run("loop", "resume")
    assert ended.returncode == 0, ended
    assert project.git("rev-parse", "main") == project.git("rev-parse", project.branch)
    assert (told.is_file(), "https://example.org/pull/7" in ended.stdout) == (True, True)
    again = project.run("loop", "resume")
    assert (again.returncode, "has ended: " in again.stderr) == (0, True), again
    assert "next:" not in project.run("loop", "status").stdout


_BESIEGED = """#!/bin/sh
case "$*" in
*"pr create"*) echo https://example.org/pull/8 ;;
*"--author @me"*) ;;
*) echo https://example.org/pull/7 ;;
esac
"""


async def test_a_strangers_pull_request_is_not_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whoever sees the branch can propose one of its name from a fork; who merged that would have other code."""
    project, _ = _with_gh(tmp_path)
    (tmp_path / "bin" / "gh").write_text(_BESIEGED)
    monkeypatch.setenv("PATH", project.environment["PATH"])
    report = tmp_path / "report.md"
    report.write_text("x")
    address = await open_pull_request(
        project.work, "main", title="x", report=report, base=None, attestation=None
    )
    assert address == "https://example.org/pull/8"


async def test_no_program_of_the_repository_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`gh` asks the `git` of the PATH, where an activated venv puts what an agent may once have written."""
    project, _ = _with_gh(tmp_path)
    (tmp_path / "bin" / "gh").write_text("#!/bin/sh\ngit --version && echo https://example.org/pull/7\n")
    venv, told = project.work / ".venv" / "bin", tmp_path / "started"
    venv.mkdir(parents=True)
    (venv / "git").write_text(f"#!/bin/sh\necho > '{told}'\n")
    (venv / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{venv}:{project.environment['PATH']}")
    (tmp_path / "report.md").write_text("x")
    await open_pull_request(
        project.work, "main", title="x", report=tmp_path / "report.md", base=None, attestation=None
    )
    assert not told.exists()


def test_a_branch_that_moved_meanwhile_is_left_where_it_is(tmp_path: Path):
    """Every story passed, and the merge is refused with what to type; when that was typed, `resume` finds it done."""
    project, user = _project(tmp_path), ("-c", "user.name=t", "-c", "user.email=t@example.org")
    assert project.start("--merge", command=dying("over", 1)).returncode == _KILLED
    project.git(*user, "commit", "--quiet", "--allow-empty", "-m", "mine")
    mine, branch = project.git("rev-parse", "main"), project.branch.removeprefix("refs/heads/")
    refused = project.run("loop", "resume", "--json")
    assert (refused.returncode, f"`git merge {branch}` merges both" in refused.stderr) == (_REFUSED, True), (
        refused
    )
    summary = json.loads(refused.stdout.splitlines()[-1])
    assert [summary[name] for name in ("state", "exit_code", "outstanding")] == [
        "succeeded",
        _REFUSED,
        ["--merge"],
    ]
    assert project.git("rev-parse", "main") == mine
    project.git(*user, "merge", "--quiet", "--no-edit", branch)
    ended = project.run("loop", "resume")
    assert (ended.returncode, "git merge" in ended.stdout) == (0, False), ended


def test_cleaning_says_what_was_asked_for_and_is_not_done(tmp_path: Path):
    """Without the clones nothing can be handed over: the branch is there, and `git merge` is what is next."""
    project = _project(tmp_path)
    assert project.start("--merge", command=dying("over", 1)).returncode == _KILLED
    cleaned = project.run("loop", "rm")
    assert (cleaned.returncode, "not done, although it was requested: --merge" in cleaned.stderr) == (
        0,
        True,
    ), cleaned
    steps = [line for line in project.run("loop", "status").stdout.splitlines() if line.startswith("next: ")]
    assert steps == [f"next: git merge {project.branch.removeprefix('refs/heads/')}"]
    assert project.run("loop", "resume").returncode == 2


async def test_a_push_that_fails_is_told_by_the_line_that_says_why(tmp_path: Path):
    """Git's last words are advice."""
    project, _ = _with_gh(tmp_path)
    project.git("remote", "remove", "origin")
    report = tmp_path / "report.md"
    with pytest.raises(
        InfrastructureFault, match="git push failed: fatal: 'origin' does not appear to be a git repo"
    ):
        await open_pull_request(project.work, "main", title="x", report=report, base=None, attestation=None)


def test_without_gh_nothing_is_begun(tmp_path: Path):
    """It is told before an agent starts."""
    project = _project(tmp_path)
    project.environment["PATH"] = "/nonexistent"
    ended = project.start("--pr")
    assert (ended.returncode, "gh auth login" in ended.stderr) == (2, True), ended
    assert project.runs() == []

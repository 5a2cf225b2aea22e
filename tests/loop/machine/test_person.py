"""What a person decides where the machine cannot: an attempt is accepted, and what passed is delivered."""

import getpass
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, case, events_of, judged, parts_of, story_of
from tests.loop.machine.test_dying import dying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_USAGE, _INCOMPLETE, _REFUSED, _CONFIGURATION = 2, 3, 4, 78


def _rejected(name: str) -> list[dict[str, object]]:
    """A story whose code is right and whose judge rejects it each time."""
    *others, judge = parts_of(name)
    test = f"tests.test_{name}.Test.test_it"
    return [*others, case(*judge["when"], say=judged(test, verdict="not_met"))]


def test_a_rejected_attempt_is_accepted_by_a_person(tmp_path: Path):
    """It is merged as it is, what was skipped because of it gets its turn, and events say whose decision it was."""
    stories = [story_of("one"), story_of("two", depends_on=["one"])]
    project = Project.make(tmp_path, stories, [*_rejected("one"), *parts_of("two")])
    ended = project.start("--attempts", "2")
    assert ended.returncode == _INCOMPLETE, ended
    assert "one" not in project.git("ls-files")
    accepted = project.run("loop", "accept", "one", "--json")
    assert accepted.returncode == 0, accepted
    passed = [each for each in events_of(accepted) if each["event"] == "story.passed"]
    assert [(each["story"], each["is_by_person"], each["by"]) for each in passed] == [
        ("one", True, getpass.getuser()), ("two", False, ""),
    ]  # fmt: skip
    files = project.git("ls-tree", "-r", "--name-only", project.branch).splitlines()
    assert {"pieces/one.py", "tests/test_one.py", "pieces/two.py"} <= {*files}
    rows = project.rows()
    assert {row["state"] for row in rows.values()} == {"passed"}
    assert rows["one"]["reason"].startswith("accepted by a person (")
    assert rows["two"]["reason"] == ""
    assert f"accepted by a person ({getpass.getuser()}), attempt 2" in project.run("loop", "logs").stdout


def test_an_accepted_story_is_merged_in_a_worktree_of_its_own(tmp_path: Path):
    """The loop was interrupted in the next story, which uses the worktree that the rejected story had."""
    project = Project.make(
        tmp_path, [story_of("one"), story_of("two")], [*_rejected("one"), *parts_of("two")]
    )
    project.start("--attempts", "1", command=dying("step", 9))
    while {row["state"] for row in project.rows().values()} != {"skipped", "running"}:
        assert project.run("loop", "resume", command=dying("step", 2)).returncode != 0
    accepted = project.run("loop", "accept", "one")
    assert accepted.returncode == 0, accepted
    (database,) = (project.root / "state" / "loops").glob("*/loop.db")
    with closing(sqlite3.connect(database)) as link:
        slots = dict(link.execute("SELECT id, slot FROM loop_stories"))
    assert slots == {"one": 1, "two": 0}


def test_an_earlier_attempt_can_be_accepted(tmp_path: Path):
    """By its number, as `loop diff --rejected` shows it."""
    *others, _, judge = parts_of("one")
    first = case(
        "role: implementor",
        "attempt: 1 of",
        run="printf 'def one():\\n    return \"one\"  # first\\n' > pieces/one.py",
    )
    rejects = case(*judge["when"], say=judged("tests.test_one.Test.test_it", verdict="not_met"))
    project = Project.make(tmp_path, [story_of("one")], [first, *others, parts_of("one")[2], rejects])
    assert project.start("--attempts", "2").returncode == _INCOMPLETE
    assert "# first" in project.run("loop", "diff", "one", "--rejected", "1").stdout
    accepted = project.run("loop", "accept", "one", "--attempt", "1")
    assert accepted.returncode == 0, accepted
    assert "# first" in project.git("show", f"{project.branch}:pieces/one.py")


def test_an_attempt_with_failing_checks_is_accepted_as_such(tmp_path: Path):
    """The command names the checks; the loop's summary and the story's reason say it, and no verdict is shown."""
    wrong = "printf 'def one():\\n    return 1\\n' > pieces/one.py"
    project = Project.make(tmp_path, [story_of("one")], parts_of("one", code=wrong))
    assert project.start("--attempts", "1").returncode == _INCOMPLETE
    accepted = project.run("loop", "accept", "one")
    assert accepted.returncode == 0, accepted
    assert (
        f"one: attempt 1 is accepted by {getpass.getuser()} although its checks failed (" in accepted.stderr
    )
    said = f"the story passed; 1 accepted by {getpass.getuser()} with failing checks"
    assert said in accepted.stdout
    assert project.rows()["one"]["reason"].endswith(" with failing checks")
    assert "**not judged**" in project.run("loop", "show").stdout


@pytest.mark.parametrize("decision", ["retry", "accept"])
def test_a_decision_after_which_the_loop_cannot_be_resumed_changes_nothing(tmp_path: Path, decision: str):
    """Configuration, roles and credentials are checked first: the loop stays as it ended, with its reasons."""
    project = Project.make(tmp_path, [story_of("one")], _rejected("one"))
    assert project.start("--attempts", "1").returncode == _INCOMPLETE
    before = project.rows()
    project.script.unlink()
    refused = project.run("loop", decision, "one")
    assert (refused.returncode, "cannot read the script" in refused.stderr) == (_CONFIGURATION, True), refused
    assert project.rows() == before
    assert "  incomplete: 1 skipped" in project.run("loop", "status").stdout


def test_what_cannot_be_accepted_is_named(tmp_path: Path):
    """A story that has passed, one without an attempt, and a number that there is not."""
    project = Project.make(
        tmp_path, [story_of("one"), story_of("two")], [*parts_of("one"), *_rejected("two")]
    )
    assert project.start("--attempts", "1").returncode == _INCOMPLETE
    for words, said in (
        (("one",), "story 'one' has passed"),
        (("two", "--attempt", "7"), "has no attempt 7 that can be accepted; it has 1"),
        (("three",), "has no story 'three'"),
    ):
        done = project.run("loop", "accept", *words)
        assert (done.returncode, said in done.stderr) == (_USAGE, True), done


def test_what_passed_is_merged_though_a_story_was_skipped(tmp_path: Path):
    """With --merge, at the loop's end; what a person accepts afterwards follows. The exit code stays the loop's."""
    project = Project.make(
        tmp_path, [story_of("one"), story_of("two")], [*parts_of("one"), *_rejected("two")]
    )
    ended = project.start("--attempts", "1", "--merge")
    assert ended.returncode == _INCOMPLETE, ended
    assert "pieces/one.py" in project.git("ls-files").splitlines()
    assert "pieces/two.py" not in project.git("ls-files").splitlines()
    accepted = project.run("loop", "accept", "two")
    assert accepted.returncode == 0, accepted
    assert "pieces/two.py" in project.git("ls-files").splitlines()
    assert project.git("status", "--porcelain") == ""
    again = project.run("loop", "resume")
    assert (again.returncode, "nothing is left to do" in again.stderr) == (0, True), again


def test_a_story_that_passed_is_rejected_by_a_person(tmp_path: Path):
    """A commit takes it back; event and report name the person; the agents of the next start read the reason."""
    project = Project.make(tmp_path, [story_of("one"), story_of("two")], [*parts_of("one"), *parts_of("two")])
    assert project.start().returncode == 0
    rejected = project.run("loop", "reject", "one", "--reason", "not like this")
    assert rejected.returncode == _INCOMPLETE, rejected
    branch = project.branch.removeprefix("refs/heads/")
    line = f"one: rejected by {getpass.getuser()}: not like this; taken back from {branch}\n"
    assert line in rejected.stderr
    reverting = project.git("log", "-1", "--format=%B", project.branch)
    assert f"Rejected by {getpass.getuser()}: not like this\n" in reverting
    (told,) = [
        each for each in events_of(project.run("loop", "logs", "--json")) if each["event"] == "story.rejected"
    ]
    assert (told["story"], told["by"], told["reason"]) == ("one", getpass.getuser(), "not like this")
    assert told["commit"] == project.git("rev-parse", project.branch)
    files = project.git("ls-tree", "-r", "--name-only", project.branch).splitlines()
    assert "pieces/two.py" in files
    assert not {"pieces/one.py", "tests/test_one.py"} & {*files}
    row = project.rows()["one"]
    assert (row["state"], row["reason"]) == (
        "skipped", f"rejected by a person ({getpass.getuser()}): not like this",
    )  # fmt: skip
    assert "story.rejected" in [kind for run in project.runs() for kind in run.kinds]
    assert f"rejected by {getpass.getuser()}" in project.run("loop", "status").stdout
    patch = project.run("loop", "diff", "one", "--rejected", "1").stdout
    assert ("pieces/one.py" in patch, "tests/test_one.py" in patch) == (True, False)
    assert "rejected work: " in project.run("loop", "show", "--story", "one").stdout
    accepted = project.run("loop", "accept", "one")
    assert (accepted.returncode, "`ringfence loop retry` starts it again" in accepted.stderr) == (
        _USAGE,
        True,
    )
    heard = [
        {**each, "when": [*each["when"], f"({getpass.getuser()}): not like this"]} for each in parts_of("one")
    ]
    project.play(heard)  # no agent answers that does not read the reason
    again = project.run("loop", "retry", "one")
    assert again.returncode == 0, again
    shown = project.run("loop", "show", "--story", "one").stdout
    (decision,) = [line for line in shown.splitlines() if line.startswith("Rejected by a person (")]
    assert (f"`{getpass.getuser()}`" in decision, " UTC: not like this" in decision) == (True, True), decision
    assert "the story was restarted" not in shown
    assert "pieces/one.py" in project.git("ls-tree", "-r", "--name-only", project.branch).splitlines()


def test_a_story_that_others_build_on_or_that_is_merged_is_not_rejected(tmp_path: Path):
    """The refusal names the stories, the files or the branch; nothing is changed."""
    code = (
        "printf 'def three():\\n    return \"three\"\\n' > pieces/three.py; "
        "printf '# three\\ndef one():\\n    return \"one\"  # and three\\n' > pieces/one.py"
    )
    cases = [*parts_of("one"), *parts_of("two"), *parts_of("four"), *parts_of("three", code=code)]
    stories = [
        story_of("one", priority=1),
        story_of("two", depends_on=["one"], priority=2),
        story_of("four", depends_on=["one"], priority=2),
        story_of("three", priority=3, files=["pieces/one.py", "pieces/three.py", "tests/test_three.py"]),
    ]
    project = Project.make(tmp_path, stories, cases)
    assert project.start().returncode == 0
    tip = project.git("rev-parse", project.branch)
    both = project.run("loop", "reject", "one")
    assert (both.returncode, "'two' and 'four' depend on it; reject these first" in both.stderr) == (
        _USAGE, True,
    ), both  # fmt: skip
    assert project.run("loop", "reject", "four").returncode == _INCOMPLETE
    refused = project.run("loop", "reject", "one")
    assert (refused.returncode, "'two' depends on it; reject that first" in refused.stderr) == (
        _USAGE,
        True,
    ), refused
    assert project.run("loop", "reject", "two").returncode == _INCOMPLETE
    conflict = project.run("loop", "reject", "one")
    said = "later stories changed the same parts of 'pieces/one.py'"
    assert (conflict.returncode, said in conflict.stderr) == (_USAGE, True), conflict
    project.git("merge", "--quiet", project.branch.removeprefix("refs/heads/"))
    merged = project.run("loop", "reject", "three")
    assert (merged.returncode, "already in your branch 'main'" in merged.stderr) == (_USAGE, True), merged
    assert project.git("merge-base", tip, project.branch) == tip
    assert project.rows()["three"]["state"] == "passed"


def test_a_rejection_that_cannot_be_delivered_is_delivered_by_resume(tmp_path: Path):
    """Though nothing is left that passed: the branch has the story's commits and their revert then."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    assert project.start().returncode == 0
    delivered = project.git("rev-parse", project.branch)
    moved = project.git(
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "commit-tree",
        "-p",
        delivered,
        "-m",
        "mine",
        f"{delivered}^{{tree}}",
    )
    project.git("update-ref", project.branch, moved)
    refused = project.run("loop", "reject", "one")
    assert refused.returncode not in (0, _INCOMPLETE), refused
    assert "story 'one' is rejected, but the branch without it could not be delivered" in refused.stderr
    assert "`ringfence loop resume" in refused.stderr
    assert project.rows()["one"]["state"] == "skipped"
    assert project.git("rev-parse", project.branch) == moved
    for _ in range(2):  # too early, and again
        early = project.run("loop", "resume")
        assert (early.returncode, "` delivers it" in early.stdout) == (_REFUSED, True), early
        assert "next: git merge" not in early.stdout + project.run("loop", "status").stdout
    named = project.branch.removeprefix("refs/heads/")
    assert f"`git branch -m {named} NAME`" in early.stdout
    project.git("branch", "-m", named, "mine")
    resumed = project.run("loop", "resume")
    assert resumed.returncode == _INCOMPLETE, resumed
    delivered_branch = f"refs/heads/{named}"
    assert "pieces/one.py" not in project.git("ls-tree", "-r", "--name-only", delivered_branch)
    assert project.git("merge-base", "--is-ancestor", delivered, delivered_branch) == ""
    assert project.run("loop", "resume").returncode == _USAGE  # nothing is left to deliver


def test_a_loop_whose_work_is_not_delivered_is_removed_only_by_force(tmp_path: Path):
    """Without --force the command delivers it, or says how; `next` names no branch that does not have the work."""
    project = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    obstacle = project.work / ".git" / "refs" / "heads" / "ringfence"
    obstacle.write_text(project.git("rev-parse", "HEAD") + "\n")  # a branch of the user's that leaves no room
    ended = project.start()
    assert (ended.returncode, "next: ringfence loop resume" in ended.stdout) == (_REFUSED, True), ended
    assert "git merge" not in ended.stdout + project.run("loop", "status").stdout
    refused = project.run("loop", "rm")
    assert (refused.returncode, "is not removed" in refused.stderr, "--force" in refused.stderr) == (
        _REFUSED,
        True,
        True,
    ), refused
    assert [*(project.root / "cache").rglob("loop.git")]
    forced = project.run("loop", "rm", "--force")
    assert (forced.returncode, "its work was not delivered" in forced.stderr) == (0, True), forced
    (patch,) = (project.root / "state" / "loops").glob("*/loop.patch")
    assert (str(patch) in forced.stderr, "pieces/one.py" in patch.read_text()) == (True, True), forced
    assert not [*(project.root / "cache").rglob("loop.git")]
    assert "git merge" not in project.run("loop", "status").stdout
    obstacle.unlink()
    assert project.start().returncode == 0
    removed = project.run("loop", "rm", "--all")
    assert (removed.returncode, removed.stderr.count("removed loop ")) == (0, 2), removed
    assert [*(project.root / "state" / "loops").glob("2*")] == [], removed
    named = project.branch.removeprefix("refs/heads/")
    assert f"what passed is on branch {named!r}" in removed.stderr
    again = project.run("loop", "rm", "--all")
    assert (again.returncode, "nothing was removed" in again.stderr) == (0, True), again

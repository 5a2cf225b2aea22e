"""Which loop a command means, and loops of several repositories beside each other."""

from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
_USAGE = 2


def test_two_loops_on_two_repositories_are_worked_at_once(tmp_path: Path):
    """With one state directory; without an id each repository's commands mean its own loop, not the last of all."""
    first = Project.make(tmp_path / "first", [story_of("one")], parts_of("one"))
    second = Project.make(tmp_path / "second", [story_of("two")], parts_of("two"))
    second.environment = first.environment
    begun = [each.begin(*each.starting, "--json") for each in (first, second)]
    ended = [(process.communicate(timeout=180), process.returncode) for process in begun]
    assert [code for _, code in ended] == [0, 0], ended
    for project, name in ((first, "one"), (second, "two")):
        assert {id_: row["state"] for id_, row in project.rows().items()} == {name: "passed"}
        assert project.subjects(f"main..{project.branch}") == [
            f"The piece {name}: tests",
            f"The piece {name}",
        ]
    third = Project.make(tmp_path / "third", [story_of("one")], [])
    third.environment = first.environment
    for command in (("cancel",), ("resume",), ("rm",), ("retry", "one"), ("status",)):
        done = third.run("loop", *command)
        assert (done.returncode, "no loop was started on" in done.stderr) == (_USAGE, True), done
    (place,) = third.root.parent.glob(f"first/state/loops/{first.branch.rpartition('loop-')[2]}")
    assert first.run("loop", "rm", place.name[-6:]).returncode == 0


def test_started_in_a_directory_of_a_shallow_clone(tmp_path: Path):
    """The loop works in that directory, with as much history as there is, and its branch has the whole repository."""
    whole = Project.make(tmp_path, [story_of("one")], parts_of("one"))
    whole.git("mv", "-k", "pieces", "tests", ".")
    (whole.work / "app").mkdir()
    whole.git("mv", "pieces", "tests", "app")
    whole.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "moved")
    whole.git("clone", "--quiet", "--depth=1", f"file://{whole.work}", str(tmp_path / "shallow"))
    whole.work.rename(tmp_path / "whole")
    (tmp_path / "shallow").rename(whole.work)
    done = whole.run(*whole.starting, "-C", "app")
    assert done.returncode == 0, done
    assert "the repository is shallow" in done.stderr
    assert "works in the directory 'app'" in done.stderr
    changed = whole.git("diff", "--name-only", f"main..{whole.branch}").splitlines()
    assert changed == ["app/pieces/one.py", "app/tests/test_one.py"]
    assert whole.rows()["one"]["state"] == "passed"

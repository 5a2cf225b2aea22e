"""Stories that are worked on at once."""

from pathlib import Path

import pytest
from tests.loop.machine.project import Project, events_of, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_what_came_meanwhile_is_replayed_on_or_begun_anew(tmp_path: Path):
    """Independent stories are both merged; of two that conflict one is begun anew on the new tip."""
    append = (
        "printf 'def {0}():\\n    return \"{0}\"\\n' >> pieces/__init__.py; "
        "echo 'from pieces import {0}' > pieces/{0}.py"
    )
    stories = [story_of("left"), story_of("right"), story_of("east"), story_of("west")]
    cases = [
        *parts_of("left"), *parts_of("right"),
        *parts_of("east", code=append.format("east")), *parts_of("west", code=append.format("west")),
    ]  # fmt: skip
    project = Project.make(tmp_path, stories, cases)
    done = project.start("--parallel", "2", "--json")
    assert done.returncode == 0, done
    subjects = project.subjects()
    assert sorted(subjects[1:]) == sorted(
        f"The piece {name}{part}" for name in ("left", "right", "east", "west") for part in ("", ": tests")
    )
    retried = [each for each in events_of(done) if each["event"] == "story.retried"]
    # Not those that a busy machine held up for too long.
    anew = [each for each in retried if each["role"] == "merge"]
    assert all("merged meanwhile" in each["complaints"][0] for each in anew), anew
    text = project.git("show", f"{project.branch}:pieces/__init__.py")
    assert ("def east" in text, "def west" in text) == (True, True)
    ends = [each["story"] for each in events_of(done) if each["event"] == "story.passed"]
    assert sorted(ends) == ["east", "left", "right", "west"]
    assert project.git("status", "--porcelain") == ""


def test_stories_that_share_files_are_never_at_work_at_once(tmp_path: Path):
    """The second is begun when the first has ended, though there is room."""
    stories = [story_of(name, files=["pieces/shared.py"]) for name in ("one", "two")]
    project = Project.make(tmp_path, stories, [*parts_of("one"), *parts_of("two")])
    done = project.start("--parallel", "2", "--json")
    assert done.returncode == 0, done
    order = [(each["event"], each.get("story")) for each in events_of(done)]
    assert order.index(("story.passed", "one")) < order.index(("story.dispatched", "two"))

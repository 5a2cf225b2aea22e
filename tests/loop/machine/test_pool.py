"""Sandboxes of the pool that a loop's steps take."""

import json
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_steps_take_sandboxes_that_wait_and_none_is_left_after_the_last(tmp_path: Path):
    """Each one that is used is replaced while the loop goes on, and those that still wait end with it."""
    project = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    settings = project.root / "config" / "ringfence" / "ringfence.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("pool: {size: 1}\n")
    ended = project.start()
    pool = json.loads(project.run("sandbox", "pool", "status", "--json").stdout)
    assert (ended.returncode, pool["waiting"], pool["failed"]) == (0, [], 0), ended
    assert pool["hits"] > 0

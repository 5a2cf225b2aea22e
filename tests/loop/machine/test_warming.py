"""Sandboxes started ahead for a loop, whose process is killed before its first step."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.loop.machine.project import Project, parts_of, story_of
from tests.loop.machine.test_dying import dying

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
_KILLED = -9


def _pool(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.run("pool", "status", "--json").stdout)
    return found


def test_sandboxes_wait_for_the_first_step_and_not_after_the_last(tmp_path: Path):
    """They are there before anything was run, serve who goes on with the loop, and end with it."""
    project = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    settings = project.root / "config" / "ringfence" / "ringfence.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("pool: {size: 1}\n")
    killed = project.start(command=dying("step", 0))
    ahead = _pool(project)
    assert (killed.returncode, ahead["hits"] + ahead["misses"], len(ahead["waiting"])) == (_KILLED, 0, 2)
    resumed = project.run("loop", "resume")
    after = _pool(project)
    assert (resumed.returncode, after["waiting"], after["failed"]) == (0, [], 0), resumed
    assert after["hits"] > 0

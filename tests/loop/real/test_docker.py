"""A whole loop in containers: warm ones are there before they are wanted, and none is there after any ending."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.leftovers import engines_below, instances_below, things_of
from tests.loop.machine.project import COMMAND, Project, parts_of, story_of
from tests.loop.machine.test_dying import dying
from tests.sandbox.conftest import image_for

from ringfence.events import JobCreated, SandboxCreated
from ringfence.journal import read

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(400)]
_KILLED = -9


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """One story, and a pool."""
    made = Project.make(tmp_path / "project", [story_of("one")], parts_of("one"))
    settings = tmp_path / "project" / "config" / "ringfence" / "ringfence.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text("pool: {size: 1}\n")
    return made


def start(
    project: Project, *more: str, command: Sequence[str] = COMMAND
) -> "subprocess.CompletedProcess[str]":
    """Start its loop in containers."""
    image = image_for("docker")
    assert image is not None
    return project.start("--sandbox", "docker", "--image", image, *more, command=command)


def pool_of(project: Project) -> dict[str, Any]:
    """What waits, and how often it was there."""
    found: dict[str, Any] = json.loads(project.run("sandbox", "pool", "status", "--json").stdout)
    return found


def left_of(project: Project) -> list[str]:
    """Its containers and volumes."""
    return anyio.run(things_of, instances_below(project.root), engines_below(project.root))


def test_a_loop_in_containers_leaves_nothing(project: Project):
    """It passes, with sandboxes of the pool; none is left, whether used or not."""
    ended = start(project)
    assert ended.returncode == 0, ended
    assert project.subjects() == ["base", "The piece one: tests", "The piece one"]
    pool = pool_of(project)
    assert pool["waiting"] == []
    assert pool["hits"] > 0
    assert left_of(project) == []


def test_a_loop_that_reached_a_limit_leaves_nothing(project: Project):
    """And can be gone on with."""
    ended = start(project, "--max-agent-calls", "2")
    assert (ended.returncode, left_of(project)) == (5, []), ended
    resumed = project.run("loop", "resume", "--max-agent-calls", "9")
    assert (resumed.returncode, left_of(project)) == (0, []), resumed


def test_a_loop_that_was_killed_leaves_nothing_once_it_is_gone_on_with(project: Project):
    """What the process that died had is swept, what waits serves the next one."""
    killed = start(project, command=dying("step", 4))
    assert killed.returncode == _KILLED, killed
    resumed = project.run("loop", "resume")
    assert (resumed.returncode, left_of(project)) == (0, []), resumed
    assert project.subjects() == ["base", "The piece one: tests", "The piece one"]


def test_a_loop_that_was_cancelled_leaves_nothing(project: Project):
    """Told to in the middle of a turn; what passed until then is not there, as nothing did."""
    with project.started("--sandbox", "docker", "--image", str(image_for("docker")), "--json") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if '"tests.written"' in line:
                project.run("loop", "cancel")
        code = process.wait()
    assert (code, left_of(project)) == (130, [])


def test_a_role_has_a_fence_of_its_own(project: Project):
    """The judge in a container, all else in the loop's own kind."""
    settings = project.root / "config" / "ringfence" / "ringfence.yaml"
    judge = {"sandbox": "docker", "image": image_for("docker")}
    settings.write_text(json.dumps({"loop": {"roles": {"judge": judge}}}))
    ended = project.start("--sandbox", "bubblewrap")
    assert ended.returncode == 0, ended
    used = dict[str, set[str]]()
    for path in (project.root / "state" / "runs").iterdir():
        events = [record.event for record in read(path)] if path.is_dir() else []
        fences = {event.backend for event in events if isinstance(event, SandboxCreated)}
        prompts = [event.prompt for event in events if isinstance(event, JobCreated)]
        is_judge = any(prompt.startswith("role: judge") for prompt in prompts)
        used.setdefault("judge" if is_judge else "others", set()).update(fences)
    assert used == {"judge": {"docker"}, "others": {"bubblewrap"}}

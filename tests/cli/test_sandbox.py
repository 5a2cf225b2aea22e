"""`ringfence sandbox`: made once, used by many commands, removed."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.sandbox.supervisor.directory import list_directories, standing_root

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def box(start: Cli, workspace: Path) -> Iterator[Cli]:
    """Runs `ringfence sandbox ...`: its exit code, stdout and stderr. A sandbox `box` stands already."""

    def run(*words: str | Path, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        process = start("sandbox", *words, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=60)
        return process.returncode, out, err

    assert run("create", "box", "-C", workspace)[:2] == (0, b"box\n")
    yield run
    for place in list_directories(standing_root()):
        run("rm", place.name)
    assert list_directories(standing_root()) == []


@pytest.fixture
def image() -> str:
    """An image that Docker has; skips without an engine."""
    from tests.sandbox.conftest import image_for

    found = image_for("docker")
    assert found is not None
    return found


def test_one_of_another_version_can_be_removed(box: Cli):
    """What it says of itself cannot be read; that it stands, and that it can be ended, still holds."""
    state = standing_root() / "box" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "format": 0}))
    assert [row["state"] for row in json.loads(box("ls", "--json")[1])] == ["unknown"]
    code, _, err = box("exec", "box", "--", "true")
    assert (code, b"another version" in err) == (1, True)
    assert box("rm", "box")[:2] == (0, b"box\n")
    assert box("ls")[1] == b""


def test_its_run_names_what_ends_it(box: Cli, ringfence: Cli):
    """Before that, its changes are not complete and its record is not removed; `runs stop` leaves it alone."""
    for words in (("diff",), ("runs", "rm", "last", "--yes"), ("runs", "stop")):
        ended = ringfence(*words)
        assert (ended.code != 0, "`ringfence sandbox rm box`" in ended.err) == (True, True)
    assert b"box" in box("ls")[1]


@pytest.mark.docker
def test_a_command_that_the_memory_limit_killed_is_told(box: Cli, workspace: Path, image: str):
    """A line says which limit it was, and where it is raised."""
    program = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
    options = ("--image", image, "--memory", "128m", "--mode", "clone")
    assert box("create", "small", "-C", workspace, *options)[0] == 0
    code, _, err = box("exec", "small", "--", "python3", "-c", program)
    assert code == 137
    assert b"limit on memory; raise it with --memory of `ringfence sandbox create`" in err


def test_a_set_up_that_fails_leaves_no_sandbox(start: Cli, workspace: Path):
    """And says which."""
    process = start("sandbox", "create", "s", "-C", workspace, "--setup", "echo why >&2; exit 3")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"why" in err) == (125, True)
    assert list_directories(standing_root()) == []


def test_work_of_roots_goes_to_a_clone(start: Cli, roots: Path):
    """Nobody but root's own files: applied only when asked."""
    if os.getuid() != 0:
        pytest.skip("only root's workspaces are cloned unasked")
    assert start("sandbox", "create", "c", "-C", roots).wait(60) == 0
    assert start("sandbox", "exec", "c", "sh", "-c", "echo new > new").wait(60) == 0
    assert start("sandbox", "rm", "c").wait(60) == 0
    assert not (roots / "new").exists()
    assert start("apply", "last").wait(60) == 0
    assert (roots / "new").read_text() == "new\n"

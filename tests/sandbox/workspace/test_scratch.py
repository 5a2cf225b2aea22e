"""Temporary directories do not outlive whoever made them for long."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.run_as import Actor, scratch_directory

# ruff: noqa: ASYNC221 - tests prepare their files with plain blocking calls
pytestmark = pytest.mark.anyio

KILLED = """
import anyio, os, signal
from pathlib import Path
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.run_as import Actor, scratch_directory
async def main():
    async with scratch_directory(Actor.current()) as path:
        os.chdir(path)
        for _ in range(1100):
            os.mkdir("deep")
            os.chdir("deep")
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""


@pytest.fixture(autouse=True)
def own_tmp(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files of this test alone."""
    place = ground / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def own_place(own_tmp: Path) -> Path:
    """Where the caller's scratch directories lie."""
    return own_tmp / f"ringfence-{os.geteuid()}"


async def test_what_a_killed_process_left_goes(own_tmp: Path):
    """The next temporary directory removes what a killed process left, however deep it is nested."""
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = own_place(own_tmp).iterdir()
    async with scratch_directory(Actor.current()) as path:
        assert list(own_place(own_tmp).iterdir()) == [path]
    assert list(own_place(own_tmp).iterdir()) == []
    assert left != path


async def test_gc_removes_what_is_left(own_tmp: Path):
    """`ringfence gc` removes what killed processes left, also where nothing is run again."""
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    outcome = subprocess.run([sys.executable, "-m", "ringfence", "gc"], check=False, capture_output=True)
    assert (outcome.returncode, list(own_place(own_tmp).iterdir())) == (0, [])


async def test_one_in_use_stays(own_tmp: Path):
    """A directory that a living process uses is not removed, however old it is."""
    async with scratch_directory(Actor.current()) as first:
        os.utime(first, (1, 1))
        async with scratch_directory(Actor.current()):
            assert first.is_dir()


async def test_links_are_left_alone(own_tmp: Path, ground: Path):
    """Nothing is removed through a link that has such a name."""
    (ground / "other").mkdir(mode=0o700)
    (ground / "other" / "x").touch()
    own_place(own_tmp).mkdir(mode=0o700)
    (own_place(own_tmp) / "ringfence-work-link").symlink_to(ground / "other")
    async with scratch_directory(Actor.current()):
        assert (ground / "other" / "x").exists()


def deep(top: Path, depth: int) -> None:
    """Nest directories in `top`, as another user may."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@pytest.mark.parametrize("name", ["ringfence-work-evil", f"ringfence-{os.geteuid()}"])
async def test_what_another_user_put_there_is_left_alone(own_tmp: Path, ground: Path, name: str):
    """A tree of another user in the shared directory is neither removed nor used, however it is called."""
    place = own_tmp / name
    place.mkdir()
    deep(place, 1100)
    if os.geteuid() == 0:
        os.chown(place, 54321, 54321)
    place.chmod(0o755 if os.geteuid() else 0o700)
    os.utime(place, (1, 1))
    async with scratch_directory(Actor.current()) as path:
        assert path.stat().st_uid == os.geteuid()
        assert not path.is_relative_to(place)
    assert (place / "deep" / "deep").is_dir()
    remove_tree(place)

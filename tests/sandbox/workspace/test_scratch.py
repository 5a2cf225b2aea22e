"""Temporary directories do not outlive whoever made them for long."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.scratch import scratch_directory

# ruff: noqa: ASYNC221, ASYNC240 - tests prepare their files with plain blocking calls
pytestmark = pytest.mark.anyio

KILLED = """
import anyio, os, signal
from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.scratch import scratch_directory
async def main():
    async with scratch_directory(Actor.current()) as path:
        (path / "x").touch()
        os.utime(path, (1, 1))
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


async def test_what_a_killed_process_left_goes(own_tmp: Path):
    """The next one removes it."""
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    (left,) = own_tmp.iterdir()
    async with scratch_directory(Actor.current()) as path:
        assert list(own_tmp.iterdir()) == [path]
    assert list(own_tmp.iterdir()) == []
    assert left != path


async def test_one_in_use_stays(own_tmp: Path):
    """However old it is."""
    async with scratch_directory(Actor.current()) as first:
        os.utime(first, (1, 1))
        async with scratch_directory(Actor.current()):
            assert first.is_dir()


async def test_links_are_left_alone(own_tmp: Path, ground: Path):
    """Nothing is removed through a link that has such a name."""
    (ground / "other").mkdir(mode=0o700)
    (ground / "other" / "x").touch()
    os.utime(ground / "other", (1, 1))
    (own_tmp / "ringfence-work-link").symlink_to(ground / "other")
    async with scratch_directory(Actor.current()):
        assert (ground / "other" / "x").exists()

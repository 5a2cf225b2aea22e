"""The directory on the way to an image from packages: gone after it, even if a build was killed."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.sandbox.docker.image.recipe import read_file

PLACES = (Path("/dev/shm"), Path(tempfile.gettempdir()))


def bootstrap(tmp_path: Path, program: str, **others: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a program in the place of mmdebstrap, whose work is another matter."""
    for name, text in {"mmdebstrap": program, **others}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    return subprocess.run(
        ["sh", "-c", read_file("bootstrap").decode(), "bootstrap", "suite", "a,b", "settings"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def left() -> Iterator[list[Path]]:
    """Directories as a killed build leaves them, wherever the next one works."""
    folders = [
        Path(tempfile.mkdtemp(prefix="ringfence-image-", dir=place)) for place in PLACES if place.is_dir()
    ]
    yield folders
    for folder in folders:
        if folder.exists():
            folder.rmdir()


def test_nothing_is_left(tmp_path):
    """The directory, in which settings and layer were, is gone afterwards."""
    ended = bootstrap(tmp_path, 'cp "$TMPDIR/dpkg.cfg" "$TMPDIR/layer.tar"; echo "$TMPDIR" >&2')
    assert (ended.returncode, ended.stdout) == (0, "settings\n")
    assert not Path(ended.stderr.strip()).exists()


def test_a_part_is_not_written(tmp_path):
    """Of packages that could not all be installed nothing is written; the code is mmdebstrap's own."""
    ended = bootstrap(tmp_path, 'echo part | tee "$TMPDIR/layer.tar"; exit 7')
    assert (ended.returncode, ended.stdout) == (7, "")


def test_what_a_killed_build_left_is_removed(tmp_path, left):
    """The next build removes what one that was killed could not."""
    bootstrap(tmp_path, "true")
    assert any(not folder.exists() for folder in left)


def test_what_another_build_uses_stays(tmp_path, left):
    """A directory whose maker lives is not touched."""
    locks = [os.open(folder, os.O_RDONLY) for folder in left]
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX)
        bootstrap(tmp_path, "true")
        assert all(folder.exists() for folder in left)
    finally:
        for lock in locks:
            os.close(lock)


def test_a_directory_that_was_removed_is_not_used(tmp_path):
    """A build whose directory another one removed before it could be locked ends, and writes nothing."""
    ended = bootstrap(tmp_path, "echo begun", mktemp=f"echo {tmp_path}/removed")
    assert ended.returncode != 0
    assert ended.stdout == ""


def test_a_lack_of_room_is_told_before(tmp_path):
    """What cannot fit anywhere is not begun."""
    ended = bootstrap(tmp_path, "echo begun", df="echo 1 2 3 1000 5")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no space left on device: 1024 MiB are needed" in ended.stderr

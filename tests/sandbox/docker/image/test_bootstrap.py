"""The working directory of a build from packages is removed, even after a build that was killed."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from ringfence.sandbox.docker.image.recipe import read_file

PLACES = (Path("/dev/shm"), Path(tempfile.gettempdir()))


def bootstrap(tmp_path: Path, program: str, **others: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a stand-in for mmdebstrap."""
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
    """Directories as killed builds leave them, in each place where the next one works."""
    folders = [
        Path(tempfile.mkdtemp(prefix="ringfence-image-", dir=place)) for place in PLACES if place.is_dir()
    ]
    yield folders
    for folder in folders:
        if folder.exists():
            folder.rmdir()


def test_directory_is_removed(tmp_path):
    """The working directory, with settings and layer, is removed at the end."""
    ended = bootstrap(tmp_path, 'cp "$TMPDIR/dpkg.cfg" "$TMPDIR/layer.tar"; echo "$TMPDIR" >&2')
    assert (ended.returncode, ended.stdout) == (0, "settings\n")
    assert not Path(ended.stderr.strip()).exists()


def test_failed_installation_writes_no_layer(tmp_path):
    """If packages cannot be installed no layer is written; the exit code is mmdebstrap's."""
    ended = bootstrap(tmp_path, 'echo part | tee "$TMPDIR/layer.tar"; exit 7')
    assert (ended.returncode, ended.stdout) == (7, "")


def test_what_a_killed_build_left_is_removed(tmp_path, left):
    """The next build removes the directory of a killed one."""
    bootstrap(tmp_path, "true")
    assert any(not folder.exists() for folder in left)


@contextmanager
def locked_directory(place: Path) -> Iterator[Path]:
    """A directory of a living build. It gets its name once it is locked: a build of another test may look meanwhile."""
    made = Path(tempfile.mkdtemp(prefix="ringfence-unlocked-", dir=place))
    named = made.with_name(made.name.replace("-unlocked-", "-image-"))
    lock = os.open(made, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(named)
        yield named
        named.rmdir()
    finally:
        os.close(lock)


def test_what_another_build_uses_stays(tmp_path):
    """The directory of a living build is not touched."""
    with ExitStack() as stack:
        used = [stack.enter_context(locked_directory(place)) for place in PLACES if place.is_dir()]
        bootstrap(tmp_path, "true")
        assert all(folder.exists() for folder in used)


def test_another_directory_is_made_for_one_that_was_removed(tmp_path):
    """A build whose directory another one removed before it was locked goes on in a new one."""
    first = f"touch {tmp_path}/once; echo {tmp_path}/removed"
    mktemp = f'if [ -e {tmp_path}/once ]; then exec /usr/bin/mktemp "$@"; fi; {first}'
    ended = bootstrap(tmp_path, 'echo part > "$TMPDIR/layer.tar"', mktemp=mktemp)
    assert (ended.returncode, ended.stdout) == (0, "part\n")


def test_a_link_in_place_of_a_removed_directory_is_not_used(tmp_path):
    """A build writes nothing where another user's link leads that took the name of its removed directory."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    ended = bootstrap(tmp_path, "echo begun", mktemp=f"echo {tmp_path}/link")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert not any((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_another_users_directory_is_not_used(tmp_path):
    """A build writes nothing into a directory of another user that took the name of its removed one."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    ended = bootstrap(tmp_path, "echo begun", mktemp=f"echo {tmp_path}/theirs")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert not any((tmp_path / "theirs").iterdir())


def test_a_directory_that_was_removed_is_not_used(tmp_path):
    """A build whose directories other ones remove again and again ends, and writes nothing."""
    ended = bootstrap(tmp_path, "echo begun", mktemp=f"echo {tmp_path}/removed")
    assert ended.returncode != 0
    assert ended.stdout == ""


def test_too_little_disk_space_is_reported_first(tmp_path):
    """Without enough disk space anywhere the build does not begin."""
    ended = bootstrap(tmp_path, "echo begun", df="echo 1 2 3 1000 5")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no space left on device: 1024 MiB are needed" in ended.stderr

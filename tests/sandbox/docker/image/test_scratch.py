"""Directories on the way to an image: gone after it, even if a build was killed."""

import fcntl
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from ringfence.sandbox.docker.image.scratch import scratch_directory

KILLED = """
import anyio, os, signal, sys
from ringfence.sandbox.docker.image.scratch import scratch_directory

async def main():
    async with scratch_directory(1) as folder:
        (folder / "deep").mkdir()
        print(folder, flush=True)
        {then}

anyio.run(main)
"""


def use(least_bytes: int = 1, *, meanwhile: Callable[[Path], None] = lambda _: None) -> Path:
    """Have a directory for a moment."""

    async def have() -> Path:
        async with scratch_directory(least_bytes) as folder:
            meanwhile(folder)
            return folder

    return anyio.run(have)


def test_nothing_is_left():
    """The directory is gone when it is not needed any more."""
    used = use(meanwhile=lambda folder: (folder / "file").touch())
    assert not used.exists()


@pytest.mark.slow
def test_what_a_killed_build_left_is_removed():
    """The next build removes what one that was killed could not."""
    program = KILLED.format(then="os.kill(os.getpid(), signal.SIGKILL)")
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    use()
    end = time.monotonic() + 30
    while left.exists():  # another build on this machine may have been first, and be at it still
        assert time.monotonic() < end
        time.sleep(0.01)


def test_one_that_is_taken_for_dead_while_it_is_made_is_made_anew(monkeypatch: pytest.MonkeyPatch):
    """Another build may lock and remove it in the moment before its maker locks it."""
    removed = list[Path]()
    lock = fcntl.flock

    def lose_once(descriptor: int, how: int) -> None:
        if not removed:
            removed.append(Path(f"/proc/self/fd/{descriptor}").readlink().parent)
            shutil.rmtree(removed[0])
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lose_once)
    used = use(meanwhile=lambda folder: (folder / "file").touch())
    assert [used] != removed
    assert not used.exists()


@pytest.mark.slow
def test_what_another_build_uses_stays():
    """A directory whose maker lives is not touched."""
    program = KILLED.format(then="sys.stdin.read()")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        use()
        assert (theirs / "deep").is_dir()
        other.communicate()
    assert not theirs.exists()


def test_a_lack_of_room_is_told_before():
    """What cannot fit anywhere is not begun."""
    with pytest.raises(OSError, match="are free of"):
        use(2**62)

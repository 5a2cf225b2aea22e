"""A directory for what is made on the way to an image; one that a killed build left is removed by the next."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from ringfence.removal import remove_tree

_PREFIX = "ringfence-image-"
_MEMORY = Path("/dev/shm")  # noqa: S108 -- a place for a private directory, not a file's name
_ROOMY_BYTES = 4 * 1024**3
_LOCK = "lock"


@asynccontextmanager
async def scratch_directory(least_bytes: int) -> AsyncIterator[Path]:
    """A private directory, in memory where there is plenty: unpacking there takes half the time.

    Args:
        least_bytes: What will be needed at least.

    Raises:
        OSError: There is less room than that (`ENOSPC`), or no place to write.
    """
    for place in _places():
        for left in _left_behind(place):
            with suppress(OSError):
                await anyio.to_thread.run_sync(remove_tree, left)
    folder, lock = _make(_choose(least_bytes))
    try:
        os.chmod(folder, 0o711)  # noqa: PTH101, S103 -- mmdebstrap passes through it as another uid
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_tree, folder)
        os.close(lock)


def _make(place: Path) -> tuple[Path, int]:
    """A new directory with its lock held, by which others see that its maker lives."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(
            lock
        )  # Another build took the lock first, and removed the directory as one that a dead build left.


def _choose(least_bytes: int) -> Path:
    with suppress(OSError):
        if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= max(_ROOMY_BYTES, least_bytes):
            return _MEMORY
    place = Path(tempfile.gettempdir())
    free = shutil.disk_usage(place).free
    if free < least_bytes:
        raise OSError(
            28, f"only {free // 1024**2} MiB are free of {least_bytes // 1024**2} needed", str(place)
        )
    return place


def _places() -> Iterator[Path]:
    yield Path(tempfile.gettempdir())
    if _MEMORY.is_dir():
        yield _MEMORY


def _left_behind(place: Path) -> Iterator[Path]:
    """Directories of ours whose maker is dead: the kernel released their lock."""
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another's, or just being made
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        except BlockingIOError:
            continue
        finally:
            os.close(lock)

"""A temporary directory that a git run as the workspace's owner can use."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from ringfence.sandbox.workspace.actor import Actor

_PREFIX = "ringfence-work-"
_YOUNG_S = 60.0
"""One that is younger may not have been locked yet by the process that made it."""


@asynccontextmanager
async def scratch_directory(actor: Actor) -> AsyncIterator[Path]:
    """A directory of the actor's own, which goes at the end; those that killed processes left go now.

    Not in the state directory: that is the caller's, where an owner to whom a root caller lends a git
    cannot walk to. Each is locked as long as its process lives.
    """
    # A cancelled making would leave what nobody has the name of.
    with anyio.CancelScope(shield=True):
        path, lock = await actor.call(_make)
    try:
        yield path
    finally:
        os.close(lock)
        await actor.clean_up(lambda: shutil.rmtree(path, ignore_errors=True))


def _make() -> tuple[Path, int]:
    for name in os.listdir(tempfile.gettempdir()):  # noqa: PTH208 - names only, as fast as can be
        if name.startswith(_PREFIX):
            _sweep(Path(tempfile.gettempdir(), name))
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return path, lock


def _sweep(path: Path) -> None:
    """Remove a directory that we may remove and nobody holds any more."""
    with suppress(OSError):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(lock)
            is_young = time.time() - status.st_mtime < _YOUNG_S
            if is_young or stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)

"""Temporary directories that a git run as the workspace's owner can use.

They lie in one directory per user, `ringfence-UID` in the system's directory for temporary files, which nobody else may
write to or walk through: what is removed there was made by that user.
"""

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio

from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.run_as import Actor

_PREFIX = "ringfence-work-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@asynccontextmanager
async def scratch_directory(actor: Actor) -> AsyncIterator[Path]:
    """A directory of the actor's own, which goes at the end; those that killed processes left go now.

    Not in the state directory: that is the caller's, where an owner to whom a root caller lends a git
    cannot walk to. Each is locked as long as its process lives.
    """
    # If this were cancelled, a directory would be left whose name is lost.
    with anyio.CancelScope(shield=True):
        path, lock = await actor.call(lambda: _make(actor.uid))
    try:
        yield path
    finally:
        os.close(lock)
        await actor.clean_up(lambda: _remove(path))


async def clear_scratch_directories() -> None:
    """Remove what killed processes left: the caller's, for root those of every user."""
    for uid, gid in await anyio.to_thread.run_sync(_users):
        await Actor(uid, gid).call(lambda uid=uid: _sweep(_parent_of(uid)))  # type: ignore[misc]


def _users() -> list[tuple[int, int]]:
    """User and group of each directory of scratch directories that the caller may look into."""
    found: list[tuple[int, int]] = []
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            name = re.fullmatch(r"ringfence-([0-9]{1,10})", entry.name)
            if name is None or os.geteuid() not in (0, int(name[1])):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == int(name[1]):
                    found.append((status.st_uid, status.st_gid))
    return found


def _parent_of(uid: int) -> Path | None:
    """The user's directory of scratch directories, made if it is not there; None if something else has its name."""
    parent = Path(tempfile.gettempdir(), f"ringfence-{uid}")
    try:
        with suppress(FileExistsError):
            parent.mkdir(mode=0o700)
        status = parent.lstat()
    except OSError:
        return None
    is_private = (
        stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not stat.S_IMODE(status.st_mode) & 0o077
    )
    return parent if is_private else None


def _make(uid: int) -> tuple[Path, int]:
    parent = _parent_of(uid)
    if parent is None:
        return _locked(Path(tempfile.mkdtemp(prefix=_PREFIX)))
    _sweep(parent)
    with _only_one(parent):
        return _locked(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)))


def _locked(path: Path) -> tuple[Path, int]:
    lock = os.open(path, _DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return path, lock


@contextmanager
def _only_one(parent: Path) -> Iterator[None]:
    """Nobody makes a scratch directory, or looks for those that are left, at the same time."""
    lock = os.open(parent, _DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _sweep(parent: Path | None) -> None:
    """Remove the scratch directories whose processes are dead: the kernel has released their locks."""
    if parent is None:
        return
    dead: list[tuple[Path, int]] = []
    try:
        with suppress(OSError), _only_one(parent):
            for path in parent.iterdir():
                if path.name.startswith(_PREFIX):
                    dead += _claim(path)
        for path, _ in dead:
            _remove(path)
    finally:
        for _, lock in dead:
            os.close(lock)


def _claim(path: Path) -> list[tuple[Path, int]]:
    """A scratch directory and its lock, if nobody holds that."""
    try:
        lock = os.open(path, _DIRECTORY)
    except OSError:
        return []
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return []
    return [(path, lock)]


def _remove(path: Path) -> None:
    with suppress(OSError):  # what stays is tried again by the next one
        remove_tree(path)

"""Runs host code on the user's files as the user that they belong to.

A root caller works on files of a user who is not root. Every path in such a workspace may be a trap (a link
to `/etc/shadow`, a hard link, a directory that is swapped meanwhile), so root's privileges are dropped first: git
gets the owner's uid, and our own file work is done in threads that have the owner's file-system identity.
Such a thread can read only files that the owner can read, and files that it creates belong to the owner.

An identity belongs to one thread, and a thread must never be left with a wrong one: each of these threads takes its
identity first, never changes it again, and works for no other user.

Temporary directories for a git that runs as the owner are in one directory per user, `ringfence-UID` in the system's
directory for temporary files. No other user may write to it or walk through it, so everything that is removed there was
made by that user. The caller's own are in the state directory. Each is locked as long as its process lives.
"""

import asyncio
import ctypes
import fcntl
import functools
import os
import platform
import pwd
import re
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.flock import try_lock
from ringfence.frozen import frozen
from ringfence.removal import remove_tree

_Result = TypeVar("_Result")

# setgroups as a raw system call acts on the calling thread alone; libc's wrapper would change all threads.
_SETGROUPS = {
    "x86_64": 116,
    "aarch64": 159,
    "riscv64": 159,
    "loongarch64": 159,
    "ppc64le": 81,
    "s390x": 81,
    "armv7l": 206,
    "i686": 206,
}
_MOST_THREADS = 40
"""Threads per user, as many as work for the caller."""
_NOBODY = 0xFFFFFFFF
"""An id that is never valid: setfsuid and setfsgid then change nothing and return the current one."""
_SCRATCH_PREFIX = "ringfence-work-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class Actor:
    """A host user on whose behalf the workspace is read and written."""

    uid: int
    gid: int

    @classmethod
    def current(cls) -> "Actor":
        """The user that this process runs as."""
        return cls(os.geteuid(), os.getegid())

    @classmethod
    def for_files(cls, workspace: Path) -> "Actor":
        """The user that reads and writes the files of a workspace: its owner for a root caller, else the caller."""
        return owner_of(workspace) if os.geteuid() == 0 else cls.current()

    @property
    def switches(self) -> bool:
        """Whether acting as this user means changing identity; only root can."""
        return os.geteuid() == 0 and self.uid != 0

    @property
    def process_user(self) -> int | None:
        """The `user` argument of `run_process`."""
        return self.uid if self.switches else None

    @property
    def process_group(self) -> int | None:
        """The `group` argument of `run_process`."""
        return self.gid if self.switches else None

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Run blocking file work in a thread, as this user.

        Waits for a thread that took the identity even if the caller is cancelled meanwhile.

        Raises:
            InfrastructureFault: This machine offers no way to take the identity.
        """
        if not self.switches:
            return await anyio.to_thread.run_sync(function)
        await anyio.lowlevel.checkpoint_if_cancelled()
        with anyio.CancelScope(shield=True):
            answer = await asyncio.wrap_future(self._submit(function))
        return answer  # noqa: RET504 -- for mypy a scope may swallow what is raised, and return nothing

    async def clean_up(self, function: Callable[[], object]) -> None:
        """Run blocking clean-up as this user, even while the caller is being cancelled."""
        with anyio.CancelScope(shield=True):
            await self.call(function)

    def call_sync(self, function: Callable[[], _Result]) -> _Result:
        """Run file work as this user and wait for it.

        Raises:
            InfrastructureFault: As `call`.
        """
        # A thread of this user that waited for another one could wait forever.
        if not self.switches or _acts_as(self):
            return function()
        return self._submit(function).result()

    def _submit(self, function: Callable[[], _Result]) -> Future[_Result]:
        def work() -> _Result:
            # A change of the process's identity affects its threads, too, so it is checked each time, which is quick.
            if not _acts_as(self):
                _take_identity(self)
            return function()

        return _threads_of(self).submit(work)


@functools.cache
def _threads_of(actor: Actor) -> ThreadPoolExecutor:
    """The threads that act as one user, and never as another."""
    return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix=f"ringfence-uid-{actor.uid}")


def _acts_as(actor: Actor) -> bool:
    """Whether the calling thread acts on files as a user; `setfsuid` of an invalid id only returns the current one."""
    libc = _libc()
    return bool(libc.setfsuid(_NOBODY) == actor.uid and libc.setfsgid(_NOBODY) == actor.gid)


def _take_identity(actor: Actor) -> None:
    libc = _libc()
    number = _SETGROUPS.get(platform.machine())
    if number is None or libc.syscall(number, 0, None) != 0:
        raise InfrastructureFault(
            f"cannot act as uid {actor.uid} on {platform.machine()!r}; run ringfence as that user"
        )
    libc.setfsgid(actor.gid)
    libc.setfsuid(actor.uid)
    if not _acts_as(actor):  # neither call reports whether it had an effect
        raise InfrastructureFault(
            f"could not act as uid {actor.uid}; run ringfence as that user instead of root"
        )


@functools.cache
def _libc() -> ctypes.PyDLL:
    # The calls take less than a microsecond, while releasing the interpreter lock for one may cost milliseconds.
    libc = ctypes.PyDLL(None, use_errno=True)
    for name in ("setfsuid", "setfsgid"):
        call = getattr(libc, name)
        call.argtypes, call.restype = [ctypes.c_uint32], ctypes.c_uint32
    return libc


def owner_of(workspace: Path) -> Actor:
    """The owner of a workspace, with the owner's primary group: the workspace's group may have powers, as docker's."""
    status = workspace.stat()
    try:
        return Actor(status.st_uid, pwd.getpwuid(status.st_uid).pw_gid)
    except KeyError:
        return Actor(status.st_uid, status.st_gid)


def give(directory: Path, owner: Actor) -> None:
    """Give a directory that ringfence made, with its contents, to another user; do nothing if that is the caller."""
    if not owner.switches:
        return
    for folder, folders, names in os.walk(directory, topdown=False):
        for name in (*folders, *names):
            os.chown(Path(folder, name), owner.uid, owner.gid, follow_symlinks=False)
    os.chown(directory, owner.uid, owner.gid)


@asynccontextmanager
async def temporary_directory(state: Path, prefix: str) -> AsyncIterator[Path]:
    """Make a directory of the caller in the state directory; it is locked while this process lives, and then removed.

    Raises:
        InfrastructureFault: It cannot be created.
    """
    folder = make_private_dir(state / "tmp")
    try:
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    except OSError as exc:
        raise InfrastructureFault(
            f"could not make a directory in {str(folder)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    lock = os.open(directory, _DIRECTORY)
    try:
        try_lock(lock, fcntl.LOCK_EX, what=repr(str(directory)))
        yield directory
    finally:
        os.close(lock)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, directory)


@asynccontextmanager
async def scratch_directory(actor: Actor) -> AsyncIterator[Path]:
    """Make a directory of the actor and remove it at the end; first remove those that killed processes left.

    It is outside the state directory, which a git that root runs as another user cannot reach.
    """
    # If this was cancelled, a directory with an unknown name would be left.
    with anyio.CancelScope(shield=True):
        path, lock = await actor.call(lambda: _make_scratch(actor.uid))
    try:
        yield path
    finally:
        os.close(lock)
        await actor.clean_up(lambda: _remove(path))


async def clear_scratch_directories() -> None:
    """Remove scratch directories that killed processes left: the caller's, or for root those of every user."""
    for actor in await anyio.to_thread.run_sync(_users_with_scratch):
        await actor.call(functools.partial(_sweep, actor.uid))


def _users_with_scratch() -> list[Actor]:
    """The users with a directory of scratch directories as which the caller can act."""
    found: list[Actor] = []
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            name = re.fullmatch(r"ringfence-([0-9]{1,10})", entry.name)
            if name is None or os.geteuid() not in (0, int(name[1])):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == int(name[1]):
                    found.append(Actor(status.st_uid, status.st_gid))
    return found


def _make_scratch(uid: int) -> tuple[Path, int]:
    parent = _sweep(uid)
    with _only_one(parent) if parent else nullcontext():
        path = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent))
        lock = os.open(path, _DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return path, lock


def _sweep(uid: int) -> Path | None:
    """Remove a user's scratch directories whose processes are dead, so that the kernel has released their locks.

    Returns:
        The directory that they are in.
    """
    parent = _parent_of(uid)
    if parent is not None:
        with ExitStack() as locks, suppress(OSError):
            with _only_one(parent):
                dead = [path for path in parent.glob(f"{_SCRATCH_PREFIX}*") if _claim(path, locks)]
            for path in dead:
                _remove(path)
    return parent


def _parent_of(uid: int) -> Path | None:
    """The user's directory of scratch directories, created if absent; None if something else has its name."""
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


@contextmanager
def _only_one(parent: Path) -> Iterator[None]:
    """Hold the lock for making scratch directories and for finding abandoned ones."""
    lock = os.open(parent, _DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _claim(path: Path, locks: ExitStack) -> bool:
    """Lock a scratch directory until `locks` are released; return whether it was free."""
    with suppress(OSError):
        lock = os.open(path, _DIRECTORY)
        locks.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _remove(path: Path) -> None:
    with suppress(OSError):  # the next call, or gc, tries again to remove the rest
        remove_tree(path)

"""Runs host code on the user's files as the user they belong to.

A root caller works on files of somebody who is not root. Every path in such a workspace may be a trap (a link
to `/etc/shadow`, a hard link, a directory swapped in the middle), so root's powers are put down first: git
gets the owner's uid, and our own file work is done in threads whose file-system identity is the owner's.
What such a thread creates belongs to the owner; what the owner may not read, it may not read.

To take an identity is a matter of one thread, and so is to be left with the wrong one: a thread of these takes one
before it does anything, never gives it back, and works for nobody else.
"""

import asyncio
import ctypes
import functools
import os
import platform
import pwd
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen

_Result = TypeVar("_Result")
_Other = TypeVar("_Other")

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
_MOST = 40
"""Threads of one user: as many as work for ourselves."""
_NOBODY = 0xFFFFFFFF
"""An id that is never valid: setfsuid and setfsgid then change nothing and return the current one."""


@frozen
class Actor:
    """A host user on whose behalf the workspace is read and written."""

    uid: int
    gid: int

    @classmethod
    def current(cls) -> "Actor":
        """Whoever runs this process."""
        return cls(os.geteuid(), os.getegid())

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

        Raises:
            InfrastructureFault: As `call_sync`.
        """
        if not self.switches:
            return await anyio.to_thread.run_sync(function)
        return await identity(self.uid, self.gid).call(function)

    async def clean_up(self, function: Callable[[], object]) -> None:
        """Run blocking clean-up as this user, also where the caller is being cancelled."""
        with anyio.CancelScope(shield=True):
            await self.call(function)

    def call_sync(self, function: Callable[[], _Result]) -> _Result:
        """Run file work as this user and wait for it.

        Raises:
            InfrastructureFault: This machine offers no way to take the identity.
        """
        return identity(self.uid, self.gid).call_sync(function) if self.switches else function()


def owner_of(workspace: Path) -> Actor:
    """On whose behalf a root caller reads and writes a workspace."""
    status = workspace.stat()
    return Actor(status.st_uid, primary_group(status.st_uid, status.st_gid))


def primary_group(uid: int, group: int) -> int:
    """The group to act with: the owner's own. A workspace's group may have powers, such as docker's."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return group


async def both(
    first: Callable[[], Awaitable[_Result]], second: Callable[[], Awaitable[_Other]]
) -> tuple[_Result, _Other]:
    """Do two things at once; the first error ends both and is raised as it is."""
    results: dict[int, Any] = {}

    async def run(number: int, work: Callable[[], Awaitable[Any]]) -> None:
        results[number] = await work()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, 0, first)
            tasks.start_soon(run, 1, second)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return results[0], results[1]


def give(directory: Path, owner: "Actor") -> None:
    """Give a directory that ringfence made, with all in it, to another user; does nothing if it is the caller."""
    if not owner.switches:
        return
    for folder, folders, names in os.walk(directory, topdown=False):
        for name in (*folders, *names):
            os.chown(Path(folder, name), owner.uid, owner.gid, follow_symlinks=False)
    os.chown(directory, owner.uid, owner.gid)


class Identity:
    """A user as whom threads act on files. Only root can have them do so.

    Args:
        uid: Of the user.
        gid: Of its group; it has no other.
    """

    def __init__(self, uid: int, gid: int) -> None:
        self._uid = uid
        self._gid = gid
        self._threads = ThreadPoolExecutor(_MOST, thread_name_prefix="ringfence-actor")
        self._taken = threading.local()

    async def call(self, function: Callable[[], _Result]) -> _Result:
        """Run blocking file work; where the caller is cancelled meanwhile it is waited for all the same.

        Raises:
            InfrastructureFault: As `call_sync`.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        with anyio.CancelScope(shield=True):
            answer = await asyncio.wrap_future(self._threads.submit(self._as_user, function))
        return answer  # noqa: RET504 -- for mypy a scope may swallow what is raised, and return nothing

    def call_sync(self, function: Callable[[], _Result]) -> _Result:
        """Run file work and wait for it.

        Raises:
            InfrastructureFault: This machine offers no way to take the identity.
        """
        if self._is_taken():  # a thread of this user's that waited for another could wait for ever
            return function()
        return self._threads.submit(self._as_user, function).result()

    def _as_user(self, function: Callable[[], _Result]) -> _Result:
        # A change of the whole process's identity reaches its threads, too: asked each time, which is quick.
        if not self._is_taken() or not self._is_in_force():
            self._take()
            self._taken.is_done = True
        return function()

    def _is_taken(self) -> bool:
        return getattr(self._taken, "is_done", False)

    def _take(self) -> None:
        libc = _libc()
        number = _SETGROUPS.get(platform.machine())
        if number is None or libc.syscall(number, 0, None) != 0:
            raise InfrastructureFault(
                f"cannot act as uid {self._uid} on {platform.machine()!r}; run ringfence as that user"
            )
        libc.setfsgid(self._gid)
        libc.setfsuid(self._uid)
        if not self._is_in_force():
            raise InfrastructureFault(
                f"could not act as uid {self._uid}; run ringfence as that user instead of root"
            )

    def _is_in_force(self) -> bool:
        """Neither call reports whether it did anything: a second call shows it."""
        libc = _libc()
        return bool(libc.setfsuid(_NOBODY) == self._uid and libc.setfsgid(_NOBODY) == self._gid)


@functools.cache
def identity(uid: int, gid: int) -> Identity:
    """The one of a user: its threads serve all that act as it."""
    return Identity(uid, gid)


@functools.cache
def _libc() -> ctypes.PyDLL:
    # Calls that take less than a microsecond: letting go of the interpreter for one may cost milliseconds.
    libc = ctypes.PyDLL(None, use_errno=True)
    for name in ("setfsuid", "setfsgid"):
        call = getattr(libc, name)
        call.argtypes, call.restype = [ctypes.c_uint32], ctypes.c_uint32
    return libc

"""Threads that act on files as one user, for good.

To take an identity is a matter of one thread, and so is to be left with the wrong one: a thread of these takes one
before it does anything, never gives it back, and works for nobody else.
"""

import asyncio
import ctypes
import functools
import platform
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import anyio
import anyio.lowlevel

from ringfence.errors import InfrastructureFault

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
_MOST = 40
"""Threads of one user: as many as work for ourselves."""
_NOBODY = 0xFFFFFFFF
"""Is taken by nobody: setfsuid and setfsgid answer with who is meant now, and change nothing."""


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
        """Neither call reports whether it did anything: a second one tells."""
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

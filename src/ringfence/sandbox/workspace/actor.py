"""Acting on the workspace as the user it belongs to.

A root caller works on files of somebody who is not root. Every path in such a workspace may be a trap (a link
to `/etc/shadow`, a hard link, a directory swapped in the middle), so root's powers are put down first: git
gets the owner's uid, and our own file work is done in threads whose file-system identity is the owner's.
What such a thread creates belongs to the owner; what the owner may not read, it may not read.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.identity import identity

_Result = TypeVar("_Result")
_Other = TypeVar("_Other")


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
    """Make a directory of ours, and all in it, somebody else's; nothing happens where it is the caller's."""
    if not owner.switches:
        return
    for folder, folders, names in os.walk(directory, topdown=False):
        for name in (*folders, *names):
            os.chown(Path(folder, name), owner.uid, owner.gid, follow_symlinks=False)
    os.chown(directory, owner.uid, owner.gid)


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

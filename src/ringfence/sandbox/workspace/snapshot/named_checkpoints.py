"""Manages named checkpoints that the user takes, of the same kind and in the same store as those of runs."""

import re
from contextlib import AbstractContextManager
from pathlib import Path

from ringfence.errors import RecordError, UsageError
from ringfence.sandbox.base import Traits
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.open import open_workspace
from ringfence.sandbox.workspace.restore import Restored, restore
from ringfence.sandbox.workspace.snapshot.diff import Diff, with_unkept
from ringfence.sandbox.workspace.snapshot.store import NAMED, Kept, Snapshot, SnapshotStore

BEFORE_RESTORE = "before-restore"
"""Name of the state before the last restore: restoring it undoes that restore."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_NOW = "now/diff"


class NamedCheckpoints:
    """The named checkpoints of one workspace. Methods that read its files lock it, so that no run works there meanwhile.

    Args:
        store: The workspace's store.
        state: The state directory.
    """

    def __init__(self, store: SnapshotStore, state: Path) -> None:
        self._store = store
        self._state = state

    async def create(self, name: str, *, force: bool = False) -> Snapshot:
        """Keep the state of the workspace under a name.

        Args:
            name: Letters, digits, `_` and `-`.
            force: Take the name from an existing checkpoint.

        Raises:
            UsageError: The name is invalid, or taken; or the files exceed the limit.
            PolicyRefused: A run, undo or apply is writing to the workspace.
            InfrastructureFault: Git failed or the disk is full.
        """
        label = _label(name)
        with self._held(f"checkpoint {name} (create)"):
            if not force and await self._store.has(label):
                raise UsageError(
                    f"there is a checkpoint {name!r}; use another name, or --force to replace it"
                )
            return await self._store.take(label)

    async def all(self) -> list[Kept]:
        """All named checkpoints, the newest first."""
        named = [kept for kept in await self._store.kept() if kept.name]
        return sorted(named, key=lambda one: (-one.taken_s, one.name))

    async def diff(
        self, name: str, other: str | None = None, *, with_patch: bool = True
    ) -> tuple[Diff, bytes]:
        """Return the changes from a checkpoint to another one or to now, file by file and as a patch.

        Args:
            name: The checkpoint.
            other: The other one; None: now.
            with_patch: Whether to make the patch; otherwise it is empty.

        Raises:
            RecordError: There is no such checkpoint.
            PolicyRefused: A run, undo or apply is writing to the workspace.
            PatchTooLarge: The patch is larger than what is kept.
        """
        earlier = (await self._find(name)).id
        later = (await self._find(other)).id if other else await self._take_now(earlier)
        before, after = await self._store.memo(earlier), await self._store.memo(later)
        diff = with_unkept(await self._store.diff(earlier, later), before, after)
        return diff, await self._store.patch(earlier, later) if with_patch else b""

    async def _take_now(self, earlier: str) -> str:
        with self._held("checkpoint (diff)"):
            return (await self._store.take(_NOW, base=earlier)).id

    async def restore(self, name: str) -> Restored:
        """Restore the workspace to a checkpoint; the state before is kept as `before-restore`.

        Files ignored when it was taken are left alone.

        Raises:
            RecordError: There is no such checkpoint.
            PolicyRefused: A run, undo or apply is writing to the workspace.
            WorkspaceConflict: A file that no checkpoint holds is in the way; nothing was written.
            InfrastructureFault: The disk is full, or a file cannot be written.
        """
        wanted = await self._find(name)
        with self._held(f"checkpoint {name} (restore)"):
            return await restore(self._store, wanted=wanted.id, expected=None, label=_label(BEFORE_RESTORE))

    async def remove(self, name: str) -> None:
        """Drop a checkpoint, and the objects that only it held.

        Raises:
            RecordError: There is no such checkpoint.
        """
        await self._find(name)
        await self._store.drop(_label(name))

    async def _find(self, name: str) -> Kept:
        _label(name)
        everything = await self.all()
        for one in everything:
            if one.name == name:
                return one
        names = (
            ", ".join(repr(one.name) for one in everything[:20])
            or "none; `ringfence checkpoint create` takes one"
        )
        raise RecordError(f"{str(self._store.workspace)!r} has no checkpoint {name!r}; there are: {names}")

    def _held(self, by: str) -> AbstractContextManager[None]:
        return held(self._store.workspace, by=by, state=self._state)


async def open_named_checkpoints(workspace: Path, state: Path) -> NamedCheckpoints:
    """The named checkpoints of a workspace, read and written as its owner.

    Raises:
        UsageError: The workspace is absent, not a directory, or cannot be read.
        PolicyRefused: It may not be a workspace.
    """
    # As on the bare host: the workspace itself, without a lock. Methods that read or write its files lock it.
    opened = open_workspace(workspace, None, state=state, holder=None, traits=Traits(is_fence=False))
    async with opened as found:
        return NamedCheckpoints(found.store, state)


def _label(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a checkpoint; use up to 100 letters, digits, '_' and '-', the first no '_' or '-'"
        )
    return f"{NAMED}{name}/kept"

"""The git side of a loop: its own repository, the clones that stories are worked on in, and the way back to the user.

Every call may be repeated after a crash and comes to the same; what a call returned is on disk.
"""

import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault
from ringfence.loop.repository.candidate import Change, check_changes, differences, make_candidate
from ringfence.loop.repository.delivery import Delivered, deliver, merge_delivered
from ringfence.loop.repository.looking import Look
from ringfence.loop.repository.making import make_repository
from ringfence.loop.repository.merging import Conflict, Merged, Replayed, merge_into, tip_of
from ringfence.loop.repository.message import Trailers, compose
from ringfence.loop.repository.place import Place, Record, decoded, git_on, write_whole
from ringfence.loop.repository.refusal import RepositoryRefused
from ringfence.loop.repository.rejected import patch_of, rejected_patch
from ringfence.loop.repository.slot import Slot, check_id
from ringfence.loop.repository.slots import Slots
from ringfence.loop.repository.source import find_source
from ringfence.loop.repository.tree import Tree, load_tree
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import Git


class LoopRepository:
    """A loop's repository. Calls on one slot wait for each other, and so do calls on the loop's branch.

    Everything lies in one directory of the caller's own, which no sandbox is ever shown; so git may be run on it.
    It must not lie in the state directory: what lies there is nobody's workspace.
    """

    def __init__(self, place: Place, record: Record) -> None:
        self.place = place
        self.record = record
        self._slots = Slots(place, record)

    @classmethod
    async def make(cls, found: Look, place: Path, *, loop: str) -> "LoopRepository":
        """Make the repository of a loop, or open the one that is there.

        Args:
            found: The user's repository and the commit to start from; an earlier call's hold.
            place: An empty or absent directory, or the one of an earlier call.
            loop: The loop's id.

        Raises:
            RepositoryRefused: The commit is incomplete, or another loop's repository is there.
            InfrastructureFault: Git failed, or the disk is full.
        """
        where = Place(make_private_dir(Path(os.path.realpath(place))))  # noqa: ASYNC240 - ours, at hand
        async with where.locked("loop") as lock:
            if not where.git_dir.exists():
                await make_repository(found, where, loop=loop, lock=lock)
            record = where.load()
        if record.loop != loop:
            raise RepositoryRefused(
                f"{str(place)!r} holds the repository of loop {record.loop!r}; name another directory"
            )
        return cls(where, record)

    @classmethod
    def open(cls, place: Path) -> "LoopRepository":
        """The repository that `make` made in a directory.

        Raises:
            RecordError: There is none.
        """
        where = Place(Path(os.path.realpath(place)))
        return cls(where, where.load())

    @property
    def base(self) -> str:
        """The commit that the loop starts from."""
        return self.record.base

    @property
    def inside(self) -> Path:
        """The directory that the loop works in, relative to the top; empty (`.`) for the top."""
        return decoded(self.record.inside)

    async def tip(self) -> str:
        """The commit that the loop's branch is at: the base and what was merged."""
        async with self.place.locked("loop") as lock:
            return await tip_of(git_on(self.place.git_dir, lock))

    async def slot(self, number: int) -> Slot:
        """A clone of its own, made where there is none; it is at no commit until `reset`.

        Args:
            number: From 0 to 255; who works on a story has it alone.

        Raises:
            InfrastructureFault: The disk is full.
        """
        return await self._slots.make(number)

    async def reset(self, slot: Slot, commit: str, *, is_anew: bool = True) -> None:
        """Put a slot at a commit: files and index are exactly that, and nothing else is there.

        Args:
            slot: Which.
            commit: Where it is put.
            is_anew: Whether it is done though this process put it there the last time. No sandbox writes to a slot.

        Raises:
            UsageError: The loop has no such commit.
            InfrastructureFault: The disk is full.
        """
        await self._slots.reset(slot, commit, is_anew=is_anew)

    async def candidate(
        self,
        slot: Slot,
        base: str,
        changes: Sequence[Change],
        *,
        message: str,
        trailers: Trailers,
        at_s: int,
        control: Collection[bytes] = (),
    ) -> str:
        """Commit exactly these changes on `base`, and return the commit's id. The slot's files stay as they are.

        Args:
            slot: Where the commit is made.
            base: Its parent.
            changes: Each path once, relative to the top of the repository.
            message: Subject in the first line, then any text.
            trailers: Whose it is.
            at_s: The time it bears, in seconds since the epoch. All being the same, the commit is the same.
            control: Paths that no story may change.

        Raises:
            WorkRefused: Changes that no commit may hold, each with the reason.
            NothingChanged: There are none.
            InfrastructureFault: Git failed.
        """
        check_changes(changes, control=control)
        record = self.record
        user = (record.name, record.email) if record.name and record.email else None
        text = compose(message, trailers, signed_off_by=user)
        async with self._slots.locked(slot) as lock:
            await self._slots.reach(slot, base, lock)
            git = git_on(slot.git_dir, lock)
            made = await make_candidate(git, base, changes, message=text, at_s=at_s)
            self._slots.note(slot, made)
            return made

    async def reject(self, slot: Slot, commit: str, *, base: str, story: str, attempt: int) -> Path | None:
        """Keep turned-down work as a patch, and put the slot back at `base`.

        Returns:
            The patch's file; None where the patch would be larger than 256 MiB.

        Raises:
            InfrastructureFault: The disk is full.
        """
        check_id(commit)
        file = rejected_patch(self.place, story, attempt)
        async with self._slots.locked(slot) as lock:
            await self._slots.reach(slot, base, lock)
            patch = await patch_of(git_on(slot.git_dir, lock), base, commit)
            if patch is not None:
                await anyio.to_thread.run_sync(write_whole, file, patch)
            await self._slots.put_at(slot, base, lock)
        return file if patch is not None else None

    async def merge(self, slot: Slot, tip: str) -> Merged | Replayed | Conflict:
        """Have the loop's branch contain a story's commits.

        Where the branch has moved since the story began, they are replayed on its new tip and the branch stays: pass
        the gates again on what `Replayed` names, and merge that.

        Args:
            slot: Where they were made.
            tip: The last of them.

        Raises:
            UsageError: They are no line of commits on the loop's.
            InfrastructureFault: Git failed.
        """
        check_id(tip)
        async with self._slots.locked(slot) as lock:
            await self._slots.carry_home(slot, tip, lock)
            async with self.place.locked("loop") as loop:
                return await merge_into(git_on(self.place.git_dir, loop), tip)

    async def changed(self, base: str, commit: str, *, slot: Slot | None = None) -> tuple[bytes, ...]:
        """Paths in which two commits of the loop, or of a slot, differ."""
        async with self._reading(slot) as git:
            return tuple(sorted(await differences(git, check_id(base), check_id(commit))))

    async def files(self, commit: str, *, slot: Slot | None = None) -> Tree:
        """The files of a commit of the loop, or of a slot: those that the loop works on, by their paths there.

        Raises:
            UsageError: They hold more than 512 MiB.
        """
        inside = os.fsdecode(self.record.inside_path)
        if (
            slot is not None
        ):  # what was replayed, and what other slots made, is in the loop's repository alone
            async with self._slots.locked(slot) as lock:
                await self._slots.reach(slot, commit, lock)
        async with self._reading(slot) as git:
            return await load_tree(git, check_id(commit), inside=inside)

    async def patch(self, base: str, commit: str, *, slot: Slot | None = None) -> bytes | None:
        """What one commit changed since another; None where that is more than 256 MiB."""
        async with self._reading(slot) as git:
            return await patch_of(git, check_id(base), check_id(commit))

    @asynccontextmanager
    async def _reading(self, slot: Slot | None) -> AsyncIterator[Git]:
        async with self._slots.locked(slot) if slot else self.place.locked("loop") as lock:
            yield git_on(slot.git_dir if slot else self.place.git_dir, lock)

    async def deliver(self) -> Delivered:
        """Bring the loop's work to the user's repository as branch `ringfence/loop-<id>`.

        Nothing is checked out there, and no file, HEAD, index or stash is touched.

        Raises:
            RepositoryRefused: The user's repository is gone.
            DeliveryRefused: A branch of that name with other commits is there, or nothing can be written.
            InfrastructureFault: Git failed.
        """
        found = await anyio.to_thread.run_sync(find_source, self.record.source_path)
        async with self.place.locked("loop") as lock:
            return await deliver(self.place, self.record, found, lock=lock)

    async def merge_to_user(self) -> Delivered:
        """Deliver, and fast-forward the branch that was checked out when the loop began, with its files and index.

        Git decides as in `git merge --ff-only`: changes that are not committed stay, and where the work would overwrite
        some, or a file that is not tracked, ignored or not, nothing is merged. Returns that branch.

        Raises:
            RepositoryRefused: The user's repository is gone.
            DeliveryRefused: Something could be lost by it; the work is delivered, and the text says what to type.
            InfrastructureFault: Git failed.
        """
        found = await anyio.to_thread.run_sync(find_source, self.record.source_path)
        async with self.place.locked("loop") as lock:
            done = await deliver(self.place, self.record, found, lock=lock)
            return await merge_delivered(self.record, found, done, lock=lock)

    async def clean(self) -> None:
        """Remove everything of the loop's, but nothing from the user's repository. Again is the same as once.

        Raises:
            InfrastructureFault: Something cannot be removed.
        """
        try:
            await anyio.to_thread.run_sync(_remove, self.place.root)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not remove {str(self.place.root)!r}: {exc.strerror}; remove it by hand"
            ) from exc


def _remove(root: Path) -> None:
    if root.is_dir():
        remove_tree(root)

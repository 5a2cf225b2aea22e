"""The clones that stories are worked on in: where each is, and which commits it has."""

from contextlib import AbstractAsyncContextManager

from ringfence.config.paths import make_private_dir
from ringfence.errors import UsageError
from ringfence.loop.repository.place import Place, Record, decoded, git_on
from ringfence.loop.repository.slot import (
    MAX_SLOTS,
    Slot,
    bring,
    carry,
    check_id,
    has_commit,
    make_slot,
    put_at,
)


class Slots:
    """Those of a loop. What is done to one is done by who holds its lock.

    Args:
        place: Where they lie.
        record: Of the loop's repository.
    """

    def __init__(self, place: Place, record: Record) -> None:
        self._place = place
        self._record = record
        self._at: dict[int, str] = {}
        """Where this process put slots last; nobody else does while it works on the loop."""
        self._has: set[tuple[int, str]] = set()
        """Slots, and commits that they were seen to have: no git of ours removes objects."""

    async def make(self, number: int) -> Slot:
        """A clone of its own, made where there is none; it is at no commit until `reset`."""
        slot = self._named(number)
        async with self.locked(slot), self._place.locked("loop"):
            await make_slot(self._place, self._record, slot)
        return slot

    def _named(self, number: int) -> Slot:
        if not 0 <= number < MAX_SLOTS:
            raise UsageError(f"{number!r} is no slot; there are {MAX_SLOTS}, from 0")
        path = self._place.slot(number)
        make_private_dir(path.parent)
        return Slot(number, path, path / decoded(self._record.inside))

    def locked(self, slot: Slot) -> AbstractAsyncContextManager[int]:
        """Have a slot alone."""
        return self._place.locked(f"slot-{slot.number}")

    async def reset(self, slot: Slot, commit: str, *, is_anew: bool) -> None:
        """Put a slot at a commit, if it `is_anew` though this process put it there the last time."""
        if not is_anew and self._at.get(slot.number) == commit:
            return
        async with self.locked(slot) as lock:
            await self.reach(slot, commit, lock)
            await self.put_at(slot, commit, lock)

    async def put_at(self, slot: Slot, commit: str, lock: int) -> None:
        """Put a slot at a commit that it has."""
        self._at.pop(slot.number, None)
        await put_at(slot, commit, lock=lock)
        self._at[slot.number] = commit

    async def reach(self, slot: Slot, commit: str, lock: int) -> None:
        """See that a slot is there and has a commit."""
        check_id(commit)
        if not slot.git_dir.is_dir():
            self._has = {known for known in self._has if known[0] != slot.number}
        elif (slot.number, commit) in self._has:
            return
        elif await has_commit(git_on(slot.git_dir, lock), commit):
            self.note(slot, commit)
            return
        async with self._place.locked("loop") as loop:
            await make_slot(self._place, self._record, slot)
            await bring(self._place, self._record, slot, commit, locks=(lock, loop))

    def note(self, slot: Slot, commit: str) -> None:
        """Remember that a slot has a commit."""
        self._has.add((slot.number, commit))

    async def carry_home(self, slot: Slot, commit: str, lock: int) -> None:
        """Bring a slot's commit into the loop's repository."""
        async with self._place.locked("loop") as loop:
            git = git_on(self._place.git_dir, loop)
            if not await has_commit(git, commit):
                await carry(git_on(slot.git_dir, lock), self._place.git_dir, commit, known=self._record.base)

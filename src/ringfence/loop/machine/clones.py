"""The clones that stories are worked on in, and what runs left there."""

import os
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread

from ringfence.check.freeze import freeze, is_leftover, only_tests, tampering, with_scripts
from ringfence.config.paths import state_dir
from ringfence.frozen import frozen
from ringfence.journal import run_dir
from ringfence.loop.machine.instructions import as_before
from ringfence.loop.machine.loop import Loop
from ringfence.loop.repository import Change, Slot, Trailers, Tree, changes_between, check_links, check_size
from ringfence.loop.settings import RoleName
from ringfence.loop.store.rows import StoryRow
from ringfence.loop.story import names_path
from ringfence.sandbox.workspace.record import has_record, load_record, open_store


@frozen
class _Named:
    path: str


class Clones:
    """Puts stories' clones at commits, and makes commits of what runs changed.

    Args:
        loop: Whose.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._trees: dict[str, Tree] = {}

    async def put_at(self, row: StoryRow, commit: str, *, is_anew: bool = True) -> Slot:
        """The story's clone, at a commit; where it is, it need not be put `is_anew`."""
        slot = await self._loop.repository.slot(row.slot or 0)
        await self._loop.repository.reset(slot, commit, is_anew=is_anew)
        return slot

    async def tree(self, row: StoryRow, commit: str) -> Tree:
        """A commit's files, those that the loop works on."""
        if commit not in self._trees:
            if len(self._trees) > 3 * self._loop.settings.parallel:
                self._trees.clear()
            slot = await self._loop.repository.slot(row.slot or 0)
            self._trees[commit] = await self._loop.repository.files(commit, slot=slot)
        return self._trees[commit]

    async def test_files(self, row: StoryRow, commit: str) -> list[str]:
        """Paths of files with tests."""
        tree = await self.tree(row, commit)
        return [path for path in tree.files if self._loop.guard.is_test(path)]

    async def changes(self, run_id: str) -> list[Change]:
        """What a run changed, relative to the directory that the loop works in, caches aside.

        Raises:
            WorkRefused: It is more than is taken over.
        """
        directory = run_dir(run_id)
        if not has_record(directory):
            return []
        record = load_record(directory)
        if record.after is None:
            return []
        store = open_store(record, state_dir())
        changes = await changes_between(store, record.start or record.before, record.after)
        return [change for change in changes if not is_leftover(os.fsdecode(change.path))]

    async def frozen_touched(self, row: StoryRow, commit: str, run_id: str) -> list[str]:
        """Files of a commit that decide about it, and that a run of its checks changed or removed."""
        directory = run_dir(run_id)
        record = load_record(directory) if has_record(directory) else None
        if record is None or record.after is None:
            return []
        store = open_store(record, state_dir())
        paths = await store.changed_paths(record.start or record.before, record.after)
        files = (await self.tree(row, commit)).files
        touched = {path: files[path] for path in map(os.fsdecode, paths) if path in files}
        guard = await anyio.to_thread.run_sync(with_scripts, files, self._loop.guard)
        return sorted(freeze(touched, guard).tests)

    async def only_tests(
        self, row: StoryRow, commit: str, changes: Sequence[Change]
    ) -> tuple[list[Change], list[str]]:
        """Of a test writer's changes those that are taken, and why others are not."""
        before = await self.tree(row, commit)
        named = {os.fsdecode(change.path): change for change in changes}
        after = before.changed(changes)
        kept, dropped = only_tests([_Named(path) for path in named], after=after.read, guard=self._loop.guard)
        return [named[each.path] for each in kept], [str(each) for each in dropped]

    async def tampering(self, row: StoryRow, tests: str, changes: Sequence[Change]) -> list[str]:
        """What an implementor's changes do that they must not."""
        before = await self.tree(row, tests)
        after = before.changed(changes)

        def look() -> list[str]:
            named = [_Named(os.fsdecode(change.path)) for change in changes]
            guard = with_scripts(before.files, self._loop.guard_of(self._loop.story(row.id)))
            frozen_now = freeze(before.files, guard)
            found = tampering(named, before=before.read, after=after.read, frozen=frozen_now, guard=guard)
            return [str(each) for each in found]

        return await anyio.to_thread.run_sync(look)

    async def commit(
        self,
        row: StoryRow,
        base: str,
        changes: Sequence[Change],
        *,
        role: RoleName,
        attempt: int,
        model: str,
        at_s: int,
    ) -> str:
        """Commit changes on a base: the same commit each time it is done.

        Raises:
            WorkRefused: Some of them cannot be.
            NothingChanged: The base has them.
        """
        repository, title = self._loop.repository, self._loop.story(row.id).title
        slot = await repository.slot(row.slot or 0)
        placed = [Change(self._prefix + change.path, change.git_mode, change.data) for change in changes]
        check_size(placed)
        check_links(placed)
        trailers = Trailers(loop=self._loop.id, story=row.id, attempt=attempt, role=role, model=model)
        message = f"{title}: tests" if role == "test_writer" else title
        return await repository.candidate(
            slot, base, placed, message=message, trailers=trailers, at_s=at_s, control=self._control()
        )

    async def outside(self, row: StoryRow) -> list[str]:
        """Files that a merged story changed outside of those that it names, its tests aside; empty if it names none."""
        assert row.base is not None
        assert row.tip is not None
        named = self._loop.story(row.id).files
        if not named:
            return []
        paths = await self._loop.repository.changed(row.base, row.tip)
        changed = [os.fsdecode(path.removeprefix(self._prefix)) for path in paths]
        found = [
            path for path in changed if not self._loop.guard.is_test(path) and not names_path(named, path)
        ]
        return [path.encode("utf-8", "backslashreplace").decode() for path in found]

    async def for_judges(self, row: StoryRow, commit: str, *, role: RoleName, attempt: int) -> str:
        """A candidate as those who judge it are shown it: nothing that the attempt wrote instructs them."""
        assert row.base is not None
        repository, base = self._loop.repository, row.base
        slot = await repository.slot(row.slot or 0)
        prefix = self._prefix
        paths = [
            path for path in await repository.changed(base, commit, slot=slot) if path.startswith(prefix)
        ]
        changed = {os.fsdecode(path.removeprefix(prefix)) for path in paths}
        changes = as_before(await self.tree(row, base), await self.tree(row, commit), changed)
        if not changes:
            return commit
        trailers = Trailers(loop=self._loop.id, story=row.id, attempt=attempt, role=role)
        placed = [Change(prefix + each.path, each.git_mode, each.data) for each in changes]
        message = "What instructs agents, as it was before the story"
        return await repository.candidate(slot, commit, placed, message=message, trailers=trailers, at_s=0)

    @property
    def _prefix(self) -> bytes:
        """Of paths in the repository: where the directory lies that the loop works in."""
        inside = os.fsencode(self._loop.repository.inside)
        return b"" if inside in (b"", b".") else inside + b"/"

    def _control(self) -> list[bytes]:
        """What says what is to be done, where it lies in the repository: no attempt changes that."""
        source, top = self._loop.plan.source, self._loop.repository.record.source_path
        if source is None or not source.resolve().is_relative_to(top.resolve()):
            return []
        return [os.fsencode(source.resolve().relative_to(top.resolve()))]

    async def reject(
        self, row: StoryRow, base: str, commit: str, *, role: RoleName, attempt: int
    ) -> Path | None:
        """Keep rejected work as a patch, and put the clone back; where the patch is."""
        repository = self._loop.repository
        slot = await repository.slot(row.slot or 0)
        name = row.id if role == "implementor" else f"{row.id}/tests"
        number = (row.generation - 1) * self._loop.settings.attempts + attempt
        return await repository.reject(slot, commit, base=base, story=name, attempt=number)

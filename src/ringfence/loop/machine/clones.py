"""The clones that stories are worked on in, and what runs left there."""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import anyio.to_thread

from ringfence.check.protected_files import Conventions, ProtectedFiles
from ringfence.check.protected_names import COMPANIONS, matches_any
from ringfence.check.source_code import imported_modules, inline_tests, reaches_tests
from ringfence.check.tree import TreeEntry, is_cache, is_plain_path
from ringfence.config.paths import state_dir
from ringfence.frozen import frozen
from ringfence.journal import run_dir
from ringfence.loop.agent_instructions import restore_agent_instructions
from ringfence.loop.machine.loop import Loop
from ringfence.loop.repository import (
    Change,
    Trailers,
    Tree,
    Worktree,
    changes_between,
    check_links,
    check_size,
)
from ringfence.loop.rows import StoryRow
from ringfence.loop.settings import RoleName
from ringfence.loop.story import names_path
from ringfence.sandbox.workspace.record import has_record, load_record, open_store

_FILES = (0o100644, 0o100755)
_DATA = frozenset({"fixtures", "__fixtures__", "data", "testdata", "resources"})
"""Directories of tests whose files configure nothing, whatever they are called."""


@frozen
class Assembled:
    """What is taken of an implementor's changes, so that nothing that decides about them is theirs."""

    changes: tuple[Change, ...]
    """Those that are taken."""
    left_out: tuple[str, ...]
    """Changes of protected files, each with the reason: these files are as they were."""
    configuration: frozenset[bytes]
    """Paths of protected files among those that are taken, as the story's `files` name them and they are no tests."""
    complaints: tuple[str, ...]
    """What cannot be left out: changes of tests that stand in files of product code."""


class Clones:
    """Puts stories' clones at commits, and makes commits of what runs changed.

    Args:
        loop: Whose.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def put_at(self, row: StoryRow, commit: str) -> Worktree:
        """The story's worktree, at a commit."""
        return await self._loop.repository.checkout(row.slot or 0, commit)

    async def tree(self, _row: StoryRow, commit: str) -> Tree:
        """A commit's files, those that the loop works on."""
        return await self._loop.repository.files(commit)

    async def test_files(self, row: StoryRow, commit: str) -> list[str]:
        """Paths of files with tests."""
        tree = await self.tree(row, commit)
        return [path for path in tree.files if self._loop.conventions.is_test(path)]

    async def protected(
        self, row: StoryRow, commit: str, *, reported: Collection[str] = ()
    ) -> ProtectedFiles:
        """The protected files of a commit; `reported` names files that a runner said it ran tests of."""
        tree, conventions = await self.tree(row, commit), self._loop.conventions
        before = tree if row.base is None else await self.tree(row, row.base)

        def read() -> ProtectedFiles:
            tests = (
                entry.data
                for path, entry in before.files.items()
                if path.endswith(".py") and conventions.is_test(path)
            )
            return ProtectedFiles(
                tree.files, conventions, reported=reported, imported=imported_modules(tests)
            )

        return await anyio.to_thread.run_sync(read)

    async def changed_by_writer(self, row: StoryRow) -> frozenset[str]:
        """Files in which the commit with the story's tests differs from the one that the story began at."""
        assert row.base is not None
        assert row.tests is not None
        before, after = (await self.tree(row, row.base)).files, (await self.tree(row, row.tests)).files
        return frozenset(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))

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
        return [change for change in changes if not is_cache(os.fsdecode(change.path))]

    async def protected_written(self, row: StoryRow, commit: str, run_id: str) -> list[str]:
        """Protected files of a commit that a run of its checks changed or removed."""
        directory = run_dir(run_id)
        record = load_record(directory) if has_record(directory) else None
        if record is None or record.after is None:
            return []
        store = open_store(record, state_dir())
        paths = await store.changed_paths(record.start or record.before, record.after)
        protected = (await self.protected(row, commit)).paths
        return sorted(path for path in map(os.fsdecode, paths) if path in protected)

    def only_tests(self, changes: Sequence[Change]) -> tuple[list[Change], list[str]]:
        """Of a test writer's changes those that are taken, and why others are not."""
        kept, dropped = list[Change](), list[str]()
        for change in changes:
            path = os.fsdecode(change.path)
            why = _why_not_test(path, change, self._loop.conventions)
            dropped += [f"{path!r} {why}"] if why else []
            kept += [] if why else [change]
        return kept, dropped

    async def assemble(
        self, row: StoryRow, tests: str, changes: Sequence[Change], *, reported: Collection[str]
    ) -> Assembled:
        """Leave out what an implementor changed of protected files.

        Args:
            row: The story.
            tests: The commit with its tests.
            changes: All that the implementor's run changed of it.
            reported: Files that a runner said it ran tests of.
        """
        before, named = await self.tree(row, tests), self._loop.story(row.id).files
        protected, after = await self.protected(row, tests, reported=reported), before.changed(changes)

        def sort_out() -> Assembled:
            kept, left_out, configuration, complaints = list[Change](), list[str](), set[bytes](), list[str]()
            for change in changes:
                path = os.fsdecode(change.path)
                why = protected.why(path, after.read)
                is_lifted = why is not None and protected.may_be_lifted(path) and _is_named(named, path)
                if is_lifted and not protected.is_of_story(path):
                    configuration.add(change.path)
                if why is None or is_lifted:
                    kept.append(change)
                    complaints += _inline_complaints(path, before, after)
                else:
                    left_out.append(f"{path!r} {why}")
            return Assembled(tuple(kept), tuple(left_out), frozenset(configuration), tuple(complaints))

        return await anyio.to_thread.run_sync(sort_out)

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
        placed = [Change(self._prefix + change.path, change.git_mode, change.data) for change in changes]
        check_size(placed)
        check_links(placed)
        trailers = Trailers(loop=self._loop.id, story=row.id, attempt=attempt, role=role, model=model)
        message = f"{title}: tests" if role == "test_writer" else title
        return await repository.commit(
            base, placed, message=message, trailers=trailers, at_s=at_s, control=self._control()
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
            path
            for path in changed
            if not self._loop.conventions.is_test(path) and not names_path(named, path)
        ]
        return [path.encode("utf-8", "backslashreplace").decode() for path in found]

    async def with_old(self, row: StoryRow, commit: str, paths: Sequence[str], *, attempt: int) -> str:
        """A candidate in which some files are as they were at the commit with the story's tests."""
        assert row.tests is not None
        trailers = Trailers(loop=self._loop.id, story=row.id, attempt=attempt, role="implementor")
        placed = [self._prefix + os.fsencode(path) for path in paths]
        message = "Configuration as before the story"
        return await self._loop.repository.restore(
            commit, placed, row.tests, message=message, trailers=trailers, at_s=0
        )

    async def for_judges(self, row: StoryRow, commit: str, *, role: RoleName, attempt: int) -> str:
        """A candidate as those who judge it are shown it: nothing that the attempt wrote instructs them."""
        assert row.base is not None
        repository, base = self._loop.repository, row.base
        prefix = self._prefix
        paths = [path for path in await repository.changed(base, commit) if path.startswith(prefix)]
        changed = {os.fsdecode(path.removeprefix(prefix)) for path in paths}
        changes = restore_agent_instructions(
            await self.tree(row, base), await self.tree(row, commit), changed
        )
        if not changes:
            return commit
        trailers = Trailers(loop=self._loop.id, story=row.id, attempt=attempt, role=role)
        placed = [Change(prefix + each.path, each.git_mode, each.data) for each in changes]
        message = "What instructs agents, as it was before the story"
        return await repository.commit(commit, placed, message=message, trailers=trailers, at_s=0)

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
        """Keep rejected work as a patch; where the patch is."""
        name = row.id if role == "implementor" else f"{row.id}/tests"
        number = (row.generation - 1) * self._loop.settings.attempts + attempt
        return await self._loop.repository.keep_rejected(base, commit, story=name, attempt=number)


def _why_not_test(path: str, change: Change, conventions: Conventions) -> str | None:
    """Why a test writer's change is not taken; None: it is a test, or what tests need."""
    if not is_plain_path(path):
        return "is not a path that a project can have"
    is_data = not _DATA.isdisjoint(path.split("/")[:-1])
    if matches_any(path, conventions.configuration) and not is_data and not path.endswith("conftest.py"):
        return "says how checks run"
    if not conventions.is_test(path):
        return "is no test and no data of one"
    if change.git_mode not in (None, *_FILES):
        return "is no regular file"
    if path.endswith("conftest.py") and not conventions.is_test(f"{path.rpartition('/')[0]}/data"):
        return "would change tests outside of the directories of tests"
    return None


def _is_named(named: Collection[str], path: str) -> bool:
    """Whether a story may change protected configuration: its `files` name it, or a file that it goes with."""
    directory, _, name = path.rpartition("/")
    others = [
        f"{directory}/{main}".lstrip("/") for main, files in COMPANIONS.items() if matches_any(name, files)
    ]
    return any(names_path(named, each) for each in (path, *others))


def _inline_complaints(path: str, before: Tree, after: Tree) -> list[str]:
    """Tests of Rust stand in files of product code, so that they cannot be put back: what is in them is compared."""
    if not path.endswith(".rs"):
        return []
    was, now = (_source(tree.read(path)) for tree in (before, after))
    tests = inline_tests(was)
    gone = Counter(tests) - Counter(inline_tests(now))
    changed = [f"{path!r}: tests in it were changed"] if gone else []
    return [*changed, *(f"{path!r} {what}" for what in sorted(reaches_tests(now) - reaches_tests(was)))]


def _source(entry: TreeEntry | None) -> str:
    return "" if entry is None else entry.data.decode("utf-8", "surrogateescape")

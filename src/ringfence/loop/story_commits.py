"""Reads and writes the commits of a story, and checks them out in the worktree of its runs."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import anyio.to_thread

from ringfence.check.protected_files import ProtectedFiles
from ringfence.check.source_code import imported_modules
from ringfence.loop.loop import Loop
from ringfence.loop.repository import Change, Trailers, Tree, check_links, check_size
from ringfence.loop.rows import StoryRow
from ringfence.loop.settings import RoleName
from ringfence.loop.story import names_path

_TOO_LARGE = "(larger than 256 MiB)"


class StoryCommits:
    """Reads and writes commits of the loop's repository, and checks them out in one worktree.

    Args:
        loop: The loop.
        worktree: The number of the worktree, which no other story uses at the same time.
    """

    def __init__(self, loop: Loop, worktree: int) -> None:
        self._loop = loop
        self._worktree = worktree

    async def checkout(self, commit: str) -> Path:
        """Check a commit out. Return the directory in the worktree that the loop works in."""
        return (await self._loop.repository.checkout(self._worktree, commit)).inside

    async def tree(self, commit: str) -> Tree:
        """Return the files of a commit in the directory that the loop works in."""
        return await self._loop.repository.files(commit)

    async def test_files(self, commit: str) -> list[str]:
        """Return the paths of a commit's test files."""
        return [path for path in (await self.tree(commit)).files if self._loop.conventions.is_test(path)]

    async def protected(self, commit: str, *, base: str, reported: Collection[str] = ()) -> ProtectedFiles:
        """Return the protected files of a commit.

        Args:
            commit: The commit.
            base: The commit at which the story was started: modules that its tests import are protected.
            reported: Files whose tests a runner reported.
        """
        tree, before, conventions = await self.tree(commit), await self.tree(base), self._loop.conventions

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

    async def commit(
        self,
        base: str,
        changes: Sequence[Change],
        *,
        story: str,
        message: str,
        role: RoleName,
        attempt: int,
        model: str = "",
        at_s: int = 0,
        is_work: bool = True,
    ) -> str:
        """Commit changes on a base. The same arguments give the same commit.

        Args:
            base: The parent commit.
            changes: The changes, with paths relative to the directory that the loop works in.
            story: The story's id, for the trailers, like `role`, `attempt` and `model`.
            message: The commit's message.
            role: The role that made the changes.
            attempt: The attempt's number.
            model: The model that made the changes; empty: none.
            at_s: The commit's time, in seconds since the epoch.
            is_work: Whether an agent made the changes, so that limits and protected paths apply.

        Raises:
            WorkRefused: Some changes cannot be committed.
            NothingChanged: The base already contains the changes.
        """
        from_top = [Change(self._prefix + each.path, each.git_mode, each.data) for each in changes]
        if is_work:
            check_size(from_top)
            check_links(from_top)
        trailers = Trailers(loop=self._loop.id, story=story, attempt=attempt, role=role, model=model)
        control = self._control() if is_work else ()
        return await self._loop.repository.commit(
            base, from_top, message=message, trailers=trailers, at_s=at_s, control=control
        )

    async def restore(self, row: StoryRow, commit: str, paths: Sequence[str], *, attempt: int) -> str:
        """Commit, on a candidate, some files as they are in the commit with the story's tests."""
        assert row.tests_commit is not None
        trailers = Trailers(loop=self._loop.id, story=row.id, attempt=attempt, role="implementor")
        from_top = [self._prefix + os.fsencode(path) for path in paths]
        message = "Configuration as before the story"
        return await self._loop.repository.restore(
            commit, from_top, row.tests_commit, message=message, trailers=trailers, at_s=0
        )

    async def changed(self, base: str, commit: str) -> list[str]:
        """Return the files that differ between two commits, in the directory that the loop works in."""
        paths = await self._loop.repository.changed(base, commit)
        return [
            os.fsdecode(path.removeprefix(self._prefix)) for path in paths if path.startswith(self._prefix)
        ]

    async def patch(self, base: str, commit: str) -> str:
        """Return the difference between two commits as a patch, for a prompt."""
        found = await self._loop.repository.patch(base, commit)
        return _TOO_LARGE if found is None else found.decode("utf-8", "replace")

    async def outside(self, row: StoryRow) -> list[str]:
        """Return the files, except tests, that a merged story changed beyond its `files`; empty if it has none."""
        assert row.base is not None
        assert row.code_commit is not None
        named = self._loop.story(row.id).files
        if not named:
            return []
        changed = await self.changed(row.base, row.code_commit)
        is_test = self._loop.conventions.is_test
        found = [path for path in changed if not is_test(path) and not names_path(named, path)]
        return [storable(path) for path in found]

    async def keep_rejected(
        self, row: StoryRow, base: str, commit: str, *, role: RoleName, attempt: int
    ) -> Path | None:
        """Keep rejected work as a patch. Return the patch's file."""
        name = row.id if role == "implementor" else f"{row.id}/tests"
        number = (row.generation - 1) * self._loop.settings.attempts + attempt
        return await self._loop.repository.keep_rejected(base, commit, story=name, attempt=number)

    @property
    def _prefix(self) -> bytes:
        """Path, in the repository, of the directory that the loop works in, with a slash at its end."""
        inside = os.fsencode(self._loop.repository.inside)
        return b"" if inside in (b"", b".") else inside + b"/"

    def _control(self) -> list[bytes]:
        """Return the path of the stories' file, if it is in the repository: no attempt may change it."""
        source, top = self._loop.plan.source, self._loop.repository.origin.source_path
        if source is None or not source.resolve().is_relative_to(top.resolve()):
            return []
        return [os.fsencode(source.resolve().relative_to(top.resolve()))]


def storable(path: str) -> str:
    """Return a path as text that a database can hold, with bytes that are not UTF-8 escaped."""
    return path.encode("utf-8", "backslashreplace").decode()

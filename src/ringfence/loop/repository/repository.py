"""The repository of a loop: creates and merges commits, checks out worktrees, and delivers the work to the user.

Every call can be repeated after a crash and has the same result. The result is on disk when a call returns.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, UsageError, next_step
from ringfence.loop.repository.branch import (
    Candidate,
    Conflict,
    Merged,
    fast_forward_or_rebase,
    read_tip,
    revert_on,
)
from ringfence.loop.repository.change import Change, check_changes
from ringfence.loop.repository.commit import (
    Trailers,
    Tree,
    changes_to_restore,
    check_id,
    compose,
    list_files,
    make_commit,
    read_tree,
)
from ringfence.loop.repository.creation import create_git_dir
from ringfence.loop.repository.delivery import BranchToDeliver, Delivered, deliver, merge_delivered
from ringfence.loop.repository.inspection import Inspection
from ringfence.loop.repository.refusal import RepositoryRefused
from ringfence.loop.repository.repository_directory import (
    RepositoryDirectory,
    RepositoryOrigin,
    ref_part,
    write_atomically,
)
from ringfence.loop.repository.source import Source, find_source, open_source
from ringfence.loop.repository.worktree import Worktree, check_out, link_objects
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached
from ringfence.sandbox.workspace.snapshot.diff import Diff, compare_trees, parse_diff, parse_diff_and_patch
from ringfence.sandbox.workspace.snapshot.objects import Blob

_LISTING_BYTES = 512 * 1024**2
_PATCH_BYTES = 256 * 1024**2
_PATCH = (
    *("-r", "--no-renames", "--raw", "--numstat", "--no-abbrev", "-p", "--binary", "--full-index"),
    *("--no-color", "--no-ext-diff", "--no-textconv"),
)
_MAX_WORKTREES = 256
_MAX_CACHED = 16
"""Number of commits' files, and of comparisons, that are cached: a story reads those of three or four repeatedly."""
_CACHED_BYTES = 4 * 1024**2
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LoopRepository:
    """A loop's repository: a bare repository, in which its commits are created and merged, and its worktrees.

    All of it is in one directory that is never mounted into a sandbox, so that it is safe to run git on it. The
    directory must be outside of the state directory, in which no workspace may be.
    """

    def __init__(self, directory: RepositoryDirectory, origin: RepositoryOrigin) -> None:
        self.directory = directory
        self.origin = origin
        self._checked_out: dict[int, str] = {}
        """The commit that this process checked out in each worktree; no other process uses them at the same time."""
        self._base_files: Sequence[Blob] | None = None
        self._trees: dict[str, Tree] = {}
        self._patches: dict[tuple[str, str], bytes] = {}
        self._diffs: dict[tuple[str, str], Diff] = {}

    @classmethod
    async def make(cls, found: Inspection, path: Path, *, loop: str) -> "LoopRepository":
        """Create the repository of a loop, or open the repository that an earlier call created.

        Args:
            found: The user's repository and the commit to start from; ignored if the repository exists.
            path: A directory that is empty or does not exist, or the directory of an earlier call.
            loop: The loop's id.

        Raises:
            RepositoryRefused: The directory contains another loop's repository.
            InfrastructureFault: Git failed, or the disk is full.
        """
        directory = RepositoryDirectory(make_private_dir(Path(os.path.realpath(path))))  # noqa: ASYNC240 - local disk
        async with directory.locked("loop"):
            if not directory.git_dir.exists():
                await create_git_dir(found, directory, loop=loop)
        made = cls.open(directory.root)
        if made.origin.loop != loop:
            raise RepositoryRefused(
                f"{str(path)!r} contains the repository of loop {made.origin.loop!r}; name another directory"
            )
        if made.base == found.base:
            _cache(made._trees, found.base, found.tree)
            made._base_files = found.files
        return made

    @classmethod
    def open(cls, path: Path) -> "LoopRepository":
        """Open the repository that `make` created in a directory.

        Raises:
            RepositoryRemoved: The directory contains no repository.
            RecordError: The file with the repository's origin is damaged.
            InfrastructureFault: Version 0.1 created it, and its commits cannot be imported.
        """
        directory = RepositoryDirectory(Path(os.path.realpath(path)))
        origin = directory.read_origin()
        _import_clones(directory)
        return cls(directory, origin)

    @property
    def base(self) -> str:
        """The commit that the loop starts from."""
        return self.origin.base

    @property
    def inside(self) -> Path:
        """The directory that the loop works in, relative to the top; `Path()` for the top."""
        return Path(os.fsdecode(self.origin.inside_path))

    @property
    def git(self) -> Git:
        """Git on the repository, for commands that only read."""
        return self.directory.git

    async def tip(self) -> str:
        """Return the commit at the tip of the loop's branch; the base while nothing was merged."""
        return read_tip(self.directory.git_dir, self.base)

    async def checkout(self, number: int, commit: str) -> Worktree:
        """Check a commit out in a worktree, unless it is checked out there already.

        Args:
            number: The worktree's number, from 0 to 255. Only one story may use a worktree at a time.
            commit: A commit of the loop.

        Raises:
            UsageError: There is no such worktree, or the commit is not a full id.
            InfrastructureFault: The disk is full, or the loop has no such commit.
        """
        if not 0 <= number < _MAX_WORKTREES:
            raise UsageError(f"{number!r} is no worktree; there are {_MAX_WORKTREES}, from 0")
        path = self.directory.root / "worktrees" / str(number)
        found = Worktree(number, path, path / self.inside)
        if self._checked_out.get(number) == check_id(commit):
            return found
        make_private_dir(path.parent)
        async with self.directory.locked(f"worktree-{number}", work_tree=path) as git:
            is_known = self._checked_out.pop(number, None) is not None
            await check_out(git, found, commit, object_format=self.origin.object_format, is_known=is_known)
            self._checked_out[number] = commit
        return found

    async def commit(
        self,
        base: str,
        changes: Sequence[Change],
        *,
        message: str,
        trailers: Trailers,
        at_s: int,
        control: Collection[bytes] = (),
    ) -> str:
        """Commit changes on `base`, and return the commit's id. Branches and worktrees do not change.

        The same arguments give the same commit.

        Args:
            base: The parent commit.
            changes: The changes, each path once, relative to the top of the repository.
            message: The subject in the first line, then any text.
            trailers: The story, attempt and role of the commit.
            at_s: The commit's time, in seconds since the epoch.
            control: Paths that no story may change.

        Raises:
            WorkRefused: Some changes must not be committed; the error names each with the reason.
            NothingChanged: There are no changes.
            InfrastructureFault: Git failed.
        """
        check_changes(changes, control=control)
        text = compose(message, trailers)
        async with self.directory.locked("loop") as git:
            made = await make_commit(git, base, changes, message=text, at_s=at_s)
        if base in self._trees:
            _cache(self._trees, made, self._trees[base].changed(changes, inside=self.origin.inside_path))
        return made

    async def restore(
        self,
        commit: str,
        paths: Collection[bytes],
        source: str,
        *,
        message: str,
        trailers: Trailers,
        at_s: int,
    ) -> str:
        """Commit, on `commit`, some files as they are in `source`, and return the new commit's id.

        Args:
            commit: The parent commit.
            paths: The files, relative to the top of the repository; files that `source` does not contain are removed.
            source: An earlier commit of the loop.
            message: As for `commit`, like the other arguments.
            trailers: The story, attempt and role of the commit.
            at_s: The commit's time, in seconds since the epoch.

        Raises:
            WorkRefused: The files conflict with other files of `commit`.
            NothingChanged: The files are the same in both commits.
            InfrastructureFault: Git failed.
        """
        changes = await changes_to_restore(self.git, source, paths)
        async with self.directory.locked("loop") as git:
            text = compose(message, trailers)
            return await make_commit(git, commit, changes, message=text, at_s=at_s)

    async def keep_rejected(self, base: str, commit: str, *, story: str, attempt: int) -> Path | None:
        """Keep rejected work as a patch.

        Returns:
            The patch's file; None if the patch would be larger than 256 MiB.

        Raises:
            InfrastructureFault: The disk is full.
        """
        file = self.directory.root / "patches" / "rejected" / ref_part(story) / f"{attempt:d}.patch"
        patch = await self.patch(base, commit)
        if patch is None:
            return None
        await anyio.to_thread.run_sync(write_atomically, file, patch)
        return file

    async def fast_forward_or_rebase(self, tip: str) -> Merged | Candidate | Conflict:
        """Fast-forward the loop's branch to a story's commits, or rebase the commits if the branch has moved.

        A rebase replays the commits on the branch's tip and does not move the branch. Run the checks on the `Candidate`
        that is returned, then call this method with its tip.

        Args:
            tip: The last of the story's commits.

        Raises:
            UsageError: They are not a linear series of commits that starts on the loop's branch.
            InfrastructureFault: Git failed.
        """
        async with self.directory.locked("loop") as git:
            return await fast_forward_or_rebase(git, await self.tip(), tip)

    async def revert(
        self, base: str, commit: str, *, message: str, trailers: Trailers, at_s: int
    ) -> Merged | Conflict:
        """Revert a merged story by one commit on the loop's branch; a second call changes nothing.

        Args:
            base: The commit of the branch before the story's first commit.
            commit: The story's last commit on the branch.
            message: The subject in the first line, then any text.
            trailers: The story, attempt and role of the commit.
            at_s: The commit's time, in seconds since the epoch.

        Returns:
            The branch's new tip; or the files that later stories changed as well, in which case nothing was changed.

        Raises:
            UsageError: The commits are not on the branch.
            InfrastructureFault: Git failed.
        """
        text = compose(message, trailers)
        async with self.directory.locked("loop") as git:
            return await revert_on(git, await self.tip(), base, commit, message=text, at_s=at_s)

    async def before_story(self, merged: str, base: str, tip: str) -> str:
        """Return the commit of the loop's branch before a story's first commit.

        Args:
            merged: The story's last commit on the branch.
            base: The commit at which the story was started.
            tip: The last commit of its accepted code; a merge replays as many commits as are between the two.
        """
        if merged == tip:  # it was not replayed
            return base
        counted = await self.git.run("rev-list", "--count", f"{check_id(base)}..{check_id(tip)}")
        name = f"{check_id(merged)}~{int(counted.stdout)}"
        parsed = await self.git.run("rev-parse", "--verify", "--quiet", name)
        return parsed.stdout.decode().strip()

    async def branches_with(self, commit: str) -> list[str]:
        """Return the user's branches that contain a commit of the loop, including the delivered branch.

        Raises:
            RepositoryRefused: The user's repository was removed.
            InfrastructureFault: Git failed.
        """
        options = ("--contains", check_id(commit), "--format=%(refname:lstrip=2)", "refs/heads/")
        async with open_source(await self._find_source()) as view:
            if not (await view.git.run("cat-file", "-e", commit, accept=(0, 1, 128))).ok:
                return []  # it was never delivered
            listed = await view.git.run("for-each-ref", *options)
        return [os.fsdecode(name) for name in listed.stdout.splitlines()]

    async def changed(self, base: str, commit: str) -> tuple[bytes, ...]:
        """Return the paths that differ between two commits of the loop, sorted."""
        return tuple(sorted(change.raw_path for change in (await self.diff(base, commit)).files))

    async def diff(self, base: str, commit: str) -> Diff:
        """Return the files that differ between two commits."""
        commits = (check_id(base), check_id(commit))
        if commits not in self._diffs:
            output = await compare_trees(self.git, *commits, output_limit_bytes=_LISTING_BYTES)
            _cache(self._diffs, commits, parse_diff(output))
        return self._diffs[commits]

    async def patch(self, base: str, commit: str) -> bytes | None:
        """Return the changes from one commit to another as a patch for `git apply`; None if it exceeds 256 MiB.

        Short patches are cached, since reviewer and judge read the same one.
        """
        commits = (check_id(base), check_id(commit))
        if commits in self._patches:
            return self._patches[commits]
        try:
            result = await self.git.run("diff-tree", *_PATCH, *commits, output_limit_bytes=_PATCH_BYTES)
        except GitBoundReached:
            return None
        diff, patch = parse_diff_and_patch(result.stdout)
        _cache(self._diffs, commits, diff)
        if len(patch) <= _CACHED_BYTES:
            _cache(self._patches, commits, patch)
        return patch

    async def files(self, commit: str) -> Tree:
        """Return the files of a commit, with paths relative to the directory that the loop works in.

        Raises:
            UsageError: The files contain more than 512 MiB.
        """
        if commit not in self._trees:
            files = await self._list_files(commit)
            _cache(self._trees, commit, await read_tree(self.git, files, inside=self.origin.inside_path))
        return self._trees[commit]

    async def _list_files(self, commit: str) -> Sequence[Blob]:
        """List every file of a commit; those of the base are listed once."""
        if commit != self.base:
            return await list_files(self.git, check_id(commit))
        if self._base_files is None:
            self._base_files = await list_files(self.git, commit)
        return self._base_files

    async def _to_deliver(self, git: Git) -> BranchToDeliver:
        return BranchToDeliver(git, self.origin, await self.tip(), await self._list_files(self.base))

    async def deliver(self) -> Delivered:
        """Deliver the loop's branch to the user's repository as `ringfence/loop-<id>`.

        Nothing is checked out there; the user's files, HEAD, index and stash do not change.

        Raises:
            RepositoryRefused: The user's repository was removed.
            DeliveryRefused: A branch of that name has other commits, or the repository cannot be written.
            InfrastructureFault: Git failed.
        """
        source = await self._find_source()
        async with self.directory.locked("loop") as git:
            return await deliver(await self._to_deliver(git), source)

    async def is_delivered(self) -> bool:
        """Whether the loop's branch in the user's repository contains all of the loop's commits.

        After a refused delivery it can be absent, or have only the commits of an earlier one.

        Raises:
            RepositoryRefused: The user's repository was removed.
            InfrastructureFault: Git failed.
        """
        source = await self._find_source()
        to_deliver = BranchToDeliver(self.git, self.origin, await self.tip())
        async with open_source(source) as view:
            found = view.refs.direct.get(to_deliver.ref)
            if found is None or found == to_deliver.tip:
                return found is not None
            command = ("merge-base", "--is-ancestor", to_deliver.tip, found)
            return (await view.git.run(*command, accept=(0, 1, 128))).ok

    async def merge_to_user(self) -> Delivered:
        """Deliver, and fast-forward the branch on which the loop was started, with files and index.

        Git decides as in `git merge --ff-only`: uncommitted changes stay. If the merge would overwrite uncommitted
        changes or an untracked file, even an ignored one, nothing is merged. Returns the fast-forwarded branch.

        Raises:
            RepositoryRefused: The user's repository was removed.
            DeliveryRefused: The merge could lose something. The work is delivered, and the message says what to type.
            InfrastructureFault: Git failed.
        """
        source = await self._find_source()
        async with self.directory.locked("loop") as git:
            to_deliver = await self._to_deliver(git)
            return await merge_delivered(to_deliver, source, await deliver(to_deliver, source))

    async def _find_source(self) -> Source:
        return await anyio.to_thread.run_sync(find_source, self.origin.source_path)

    async def clean(self) -> None:
        """Remove the directory with the loop's repository; a second call has no effect.

        The user's repository is not changed.

        Raises:
            InfrastructureFault: Something cannot be removed.
        """
        root = self.directory.root
        try:
            await anyio.to_thread.run_sync(lambda: remove_tree(root) if root.is_dir() else None)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not remove {str(root)!r}: {exc.strerror}; remove it by hand"
            ) from exc


def _cache(cached: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add a value to a cache, and drop the oldest values beyond the limit."""
    while len(cached) >= _MAX_CACHED:
        cached.pop(next(iter(cached)))
    cached[key] = value


def _import_clones(directory: RepositoryDirectory) -> None:
    """Import the commits of version 0.1, which had a clone for each running story, and remove the clones."""
    slots = directory.root / "slots"
    if not slots.is_dir():
        return
    try:
        for slot in slots.iterdir():
            link_objects(slot / ".git" / "objects", directory.git_dir / "objects")
        remove_tree(slots)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not import the commits in {str(slots)!r}: {exc.strerror}; {next_step(exc)}"
        ) from exc

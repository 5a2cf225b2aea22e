"""The git side of a loop: its own repository, worktrees for its stories, and the way back to the user.

Every call may be repeated after a crash and comes to the same; what a call returned is on disk.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, UsageError, next_step
from ringfence.loop.repository.branch import Candidate, Conflict, Merged, merge_into, read_tip, revert_on
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
from ringfence.loop.repository.delivery import Delivered, Work, deliver, merge_delivered
from ringfence.loop.repository.look import Look
from ringfence.loop.repository.place import (
    BRANCH,
    Place,
    Record,
    encode_path,
    ref_part,
    write_record,
    write_whole,
)
from ringfence.loop.repository.refusal import RepositoryRefused
from ringfence.loop.repository.source import Opened, Source, find_source, opened
from ringfence.loop.repository.worktree import Worktree, check_out, link_objects
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached, write_clean_git_dir, write_git_dir
from ringfence.sandbox.workspace.git.packs import copy_history
from ringfence.sandbox.workspace.git.refs import Refs

_LISTING_BYTES = 512 * 1024**2
_PATCH_BYTES = 256 * 1024**2
_MOST_TAGS = 10_000
_MOST_WORKTREES = 256
_MOST_KEPT = 16
"""Commits whose files are kept in memory, and comparisons: a story reads those of three or four again and again."""
_KEPT_BYTES = 4 * 1024**2
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LoopRepository:
    """A loop's repository: one bare repository, in which its commits are made and merged, and worktrees of it.

    Everything lies in one directory of the caller's own, which no sandbox is ever shown; so git may be run on it.
    It must not lie in the state directory: what lies there is nobody's workspace.
    """

    def __init__(self, place: Place, record: Record) -> None:
        self.place = place
        self.record = record
        self._checked_out: dict[int, str] = {}
        """Where this process put worktrees; nobody else does while it works on the loop."""
        self._trees: dict[str, Tree] = {}
        self._comparisons: dict[tuple[str, ...], bytes] = {}

    @classmethod
    async def make(cls, found: Look, place: Path, *, loop: str) -> "LoopRepository":
        """Make the repository of a loop, or open the one that is there.

        Args:
            found: The user's repository and the commit to start from; an earlier call's hold.
            place: An empty or absent directory, or the one of an earlier call.
            loop: The loop's id.

        Raises:
            RepositoryRefused: Another loop's repository is there.
            InfrastructureFault: Git failed, or the disk is full.
        """
        where = Place(make_private_dir(Path(os.path.realpath(place))))  # noqa: ASYNC240 - ours, at hand
        async with where.locked("loop"):
            if not where.git_dir.exists():
                await _make(found, where, loop=loop)
        made = cls.open(where.root)
        if made.record.loop != loop:
            raise RepositoryRefused(
                f"{str(place)!r} holds the repository of loop {made.record.loop!r}; name another directory"
            )
        if made.base == found.base:
            _keep(made._trees, found.base, found.tree)
        return made

    @classmethod
    def open(cls, place: Path) -> "LoopRepository":
        """The repository that `make` made in a directory.

        Raises:
            RepositoryRemoved: There is none.
            RecordError: Its record is damaged.
            InfrastructureFault: It was made by version 0.1, and its commits cannot be taken over.
        """
        where = Place(Path(os.path.realpath(place)))
        record = where.load()
        _adopt_slots(where)
        return cls(where, record)

    @property
    def base(self) -> str:
        """The commit that the loop starts from."""
        return self.record.base

    @property
    def inside(self) -> Path:
        """The directory that the loop works in, relative to the top; empty (`.`) for the top."""
        return Path(os.fsdecode(self.record.inside_path))

    @property
    def git(self) -> Git:
        """Git on the repository, for commands that only read."""
        return self.place.git

    async def tip(self) -> str:
        """The commit that the loop's branch is at: the base and what was merged."""
        return read_tip(self.place.git_dir, self.base)

    async def checkout(self, number: int, commit: str) -> Worktree:
        """Put a worktree at a commit: files and index are exactly that. Nothing is done where it is there already.

        Args:
            number: From 0 to 255; who works on a story has the worktree alone.
            commit: A commit of the loop.

        Raises:
            UsageError: There is no such number, or the commit is no whole id.
            InfrastructureFault: The disk is full, or the loop has no such commit.
        """
        if not 0 <= number < _MOST_WORKTREES:
            raise UsageError(f"{number!r} is no worktree; there are {_MOST_WORKTREES}, from 0")
        path = self.place.root / "worktrees" / str(number)
        found = Worktree(number, path, path / self.inside)
        if self._checked_out.get(number) == check_id(commit):
            return found
        make_private_dir(path.parent)
        async with self.place.locked(f"worktree-{number}", work_tree=path) as git:
            is_known = self._checked_out.pop(number, None) is not None
            await check_out(git, found, commit, object_format=self.record.object_format, is_known=is_known)
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
        """Commit exactly these changes on `base`, and return the commit's id; no branch and no worktree follows it.

        Args:
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
        text = compose(message, trailers)
        async with self.place.locked("loop") as git:
            made = await make_commit(git, base, changes, message=text, at_s=at_s)
        if base in self._trees:
            _keep(self._trees, made, self._trees[base].changed(changes, inside=self.record.inside_path))
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
        """Commit on `commit` that files are as in `source`, an earlier commit of the loop; return the commit's id.

        Args:
            commit: The parent.
            paths: Relative to the top of the repository; those that `source` has not are removed.
            source: Whose files they are.
            message: As for `commit`, like the others.
            trailers: Whose it is.
            at_s: The time it bears.

        Raises:
            WorkRefused: The files do not fit the other files of `commit`.
            NothingChanged: They are so already.
            InfrastructureFault: Git failed.
        """
        changes = await changes_to_restore(self.git, source, paths)
        async with self.place.locked("loop") as git:
            text = compose(message, trailers)
            return await make_commit(git, commit, changes, message=text, at_s=at_s)

    async def keep_rejected(self, base: str, commit: str, *, story: str, attempt: int) -> Path | None:
        """Keep rejected work as a patch.

        Returns:
            The patch's file; None where the patch would be larger than 256 MiB.

        Raises:
            InfrastructureFault: The disk is full.
        """
        file = self.place.root / "patches" / "rejected" / ref_part(story) / f"{attempt:d}.patch"
        patch = await self.patch(base, commit)
        if patch is None:
            return None
        await anyio.to_thread.run_sync(write_whole, file, patch)
        return file

    async def merge(self, tip: str) -> Merged | Candidate | Conflict:
        """Have the loop's branch contain a story's commits.

        Where the branch has moved since the story began, they are replayed on its new tip and the branch stays: pass
        the gates again on what `Candidate` names, and merge that.

        Args:
            tip: The last of them.

        Raises:
            UsageError: They are no line of commits on the loop's.
            InfrastructureFault: Git failed.
        """
        async with self.place.locked("loop") as git:
            return await merge_into(git, await self.tip(), tip)

    async def revert(
        self, base: str, commit: str, *, message: str, trailers: Trailers, at_s: int
    ) -> Merged | Conflict:
        """Take a merged story's changes back, by a commit on the loop's branch; again changes nothing.

        Args:
            base: The commit before the story's first, as they are on the branch.
            commit: The story's last.
            message: Subject in the first line, then any text.
            trailers: Whose it is.
            at_s: The time it bears, in seconds since the epoch.

        Returns:
            Where the branch is then; or the files that later stories changed, too, so that nothing was done.

        Raises:
            UsageError: They are not on the branch.
            InfrastructureFault: Git failed.
        """
        text = compose(message, trailers)
        async with self.place.locked("loop") as git:
            return await revert_on(git, await self.tip(), base, commit, message=text, at_s=at_s)

    async def before_story(self, merged: str, base: str, tip: str) -> str:
        """The commit of the loop's branch before a story.

        Args:
            merged: The story's last commit on the branch.
            base: The commit that the story was begun at.
            tip: The last commit of its accepted code; a merge replays as many commits as are between the two.
        """
        counted = await self.git.run("rev-list", "--count", f"{check_id(base)}..{check_id(tip)}")
        name = f"{check_id(merged)}~{int(counted.stdout)}"
        told = await self.git.run("rev-parse", "--verify", "--quiet", name)
        return told.stdout.decode().strip()

    async def branches_with(self, commit: str) -> list[str]:
        """The user's branches that contain a commit of the loop, the branch that it was delivered on included.

        Raises:
            RepositoryRefused: The user's repository is gone.
            InfrastructureFault: Git failed.
        """
        options = ("--contains", check_id(commit), "--format=%(refname:lstrip=2)", "refs/heads/")
        async with opened(await self._find_source()) as seen:
            if not (await seen.git.run("cat-file", "-e", commit, accept=(0, 1, 128))).ok:
                return []  # it was never delivered
            told = await seen.git.run("for-each-ref", *options)
        return [os.fsdecode(name) for name in told.stdout.splitlines()]

    async def changed(self, base: str, commit: str) -> tuple[bytes, ...]:
        """Paths in which two commits of the loop differ, sorted."""
        told = await self._compare(base, commit, "-z", "--name-only", limit_bytes=_LISTING_BYTES)
        return tuple(sorted(path for path in told.split(b"\0") if path))

    async def patch(self, base: str, commit: str) -> bytes | None:
        """What one commit changed since another, as `git apply` takes it; None where that is more than 256 MiB."""
        options = ("-p", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv")
        try:
            return await self._compare(base, commit, *options, limit_bytes=_PATCH_BYTES)
        except GitBoundReached:
            return None

    async def _compare(self, base: str, commit: str, *options: str, limit_bytes: int) -> bytes:
        """What `git diff-tree` prints; short answers are kept, for reviewer and judge are told the same of a commit."""
        question = ("-r", "--no-renames", *options, check_id(base), check_id(commit))
        if question not in self._comparisons:
            told = (await self.git.run("diff-tree", *question, output_limit_bytes=limit_bytes)).stdout
            if len(told) > _KEPT_BYTES:
                return told
            _keep(self._comparisons, question, told)
        return self._comparisons[question]

    async def files(self, commit: str) -> Tree:
        """The files of a commit: those that the loop works on, by their paths there.

        Raises:
            UsageError: They hold more than 512 MiB.
        """
        if commit not in self._trees:
            files = await list_files(self.git, check_id(commit))
            _keep(self._trees, commit, await read_tree(self.git, files, inside=self.record.inside_path))
        return self._trees[commit]

    async def deliver(self) -> Delivered:
        """Bring the loop's work to the user's repository as branch `ringfence/loop-<id>`.

        Nothing is checked out there, and no file, HEAD, index or stash is touched.

        Raises:
            RepositoryRefused: The user's repository is gone.
            DeliveryRefused: A branch of that name with other commits is there, or nothing can be written.
            InfrastructureFault: Git failed.
        """
        source = await self._find_source()
        async with self.place.locked("loop") as git:
            return await deliver(Work(git, self.record, await self.tip()), source)

    async def is_delivered(self) -> bool:
        """Whether the user's repository has the loop's branch, as of this or an earlier delivery.

        Raises:
            RepositoryRefused: The user's repository is gone.
            InfrastructureFault: Git failed.
        """
        source = await self._find_source()
        work = Work(self.git, self.record, await self.tip())
        async with opened(source) as seen:
            return work.branch in seen.refs.direct

    async def merge_to_user(self) -> Delivered:
        """Deliver, and fast-forward the branch that was checked out when the loop began, with its files and index.

        Git decides as in `git merge --ff-only`: changes that are not committed stay, and where the work would overwrite
        some, or a file that is not tracked, ignored or not, nothing is merged. Returns that branch.

        Raises:
            RepositoryRefused: The user's repository is gone.
            DeliveryRefused: Something could be lost by it; the work is delivered, and the text says what to type.
            InfrastructureFault: Git failed.
        """
        source = await self._find_source()
        async with self.place.locked("loop") as git:
            work = Work(git, self.record, await self.tip())
            return await merge_delivered(work, source, await deliver(work, source))

    async def _find_source(self) -> Source:
        return await anyio.to_thread.run_sync(find_source, self.record.source_path)

    async def clean(self) -> None:
        """Remove everything of the loop's, but nothing from the user's repository. Again is the same as once.

        Raises:
            InfrastructureFault: Something cannot be removed.
        """
        root = self.place.root
        try:
            await anyio.to_thread.run_sync(lambda: remove_tree(root) if root.is_dir() else None)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not remove {str(root)!r}: {exc.strerror}; remove it by hand"
            ) from exc


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Keep what was read last, and no more of it than there is room for."""
    while len(kept) >= _MOST_KEPT:
        kept.pop(next(iter(kept)))
    kept[key] = value


def _adopt_slots(place: Place) -> None:
    """Take over the commits of version 0.1, which had a clone for each story at work, and remove the clones."""
    slots = place.root / "slots"
    if not slots.is_dir():
        return
    try:
        for slot in slots.iterdir():
            link_objects(slot / ".git" / "objects", place.git_dir / "objects")
        remove_tree(slots)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not take over the commits in {str(slots)!r}: {exc.strerror}; {next_step(exc)}"
        ) from exc


async def _make(found: Look, place: Place, *, loop: str) -> None:
    """Make the bare repository beside its place: the commit it starts from with all history, and nothing else.

    It is put in its place when it is whole.

    Raises:
        InfrastructureFault: Git failed, or the disk is full.
    """
    new = place.git_dir.with_name("loop.git.new")
    source = found.source
    record = Record(
        loop=loop,
        source=encode_path(source.root),
        inside=encode_path(source.inside),
        base=found.base,
        branch=found.branch,
        object_format=source.object_format,
    )
    try:
        await anyio.to_thread.run_sync(_begin, new, source.object_format)
        async with opened(source) as seen:
            tags = await _tags(seen, found.base)
            await copy_history(seen.git, [found.base, *tags.values()], new)
            shallow = seen.git.directory / "shallow"
            if seen.is_shallow:
                (new / "shallow").write_bytes(await source.actor.call(shallow.read_bytes))
        refs = Refs(f"ref: {BRANCH}\n".encode(), {BRANCH: found.base, **tags}, {})
        write_git_dir(new, refs.files())
        write_record(new, record)
        new.rename(place.git_dir)
    except OSError as exc:
        raise InfrastructureFault(f"could not write {str(new)!r}: {exc.strerror}; {next_step(exc)}") from exc


def _begin(new: Path, object_format: str) -> None:
    if os.path.lexists(new):
        remove_tree(new)
    make_private_dir(new)
    write_clean_git_dir(new, object_format=object_format)


async def _tags(seen: Opened, base: str) -> dict[str, str]:
    """Tags in the history of the base: tools that make a version out of them work in the loop, too."""
    if not any(name.startswith("refs/tags/") for name in seen.refs.direct):
        return {}
    form = "--format=%(objectname) %(refname)"
    told = await seen.git.run(
        "for-each-ref", f"--merged={base}", f"--count={_MOST_TAGS}", form, "refs/tags", accept=(0, 1, 128)
    )
    lines = os.fsdecode(told.stdout).splitlines() if told.ok else []
    return {name: target for target, _, name in (line.partition(" ") for line in lines)}

"""The loop's branch: stories' commits come onto it as they are, or replayed on what came there meanwhile.

Nothing is checked out: files are merged by `git merge-tree` on objects alone. Whoever moves the branch holds the loop's
lock.
"""

import os
from itertools import pairwise
from pathlib import Path

import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.loop.repository.commit import check_id, commit_tree
from ringfence.loop.repository.place import BRANCH, write_whole
from ringfence.sandbox.workspace.git.command import Git

_MOST_COMMITS = 10_000
_REPLAYED = "refs/ringfence/replayed"
"""Below it, by the id of a story's commit, what that became on the branch's tip."""
_REVERTED = "refs/ringfence/reverted"
"""Below it, by the id of the last commit that was taken back, the commit that did it."""
_MERGE_S = 600.0


@frozen
class Merged:
    """The loop's branch has the story's commits."""

    tip: str
    """The last of them, as it is on the branch."""


@frozen
class Candidate:
    """The branch had moved: the commits are there again on its tip, and the branch is where it was.

    What they are together nobody has tried yet: pass the gates on `tip`, then merge that.
    """

    tip: str
    base: str
    """The branch's tip, which they are on."""


@frozen
class Conflict:
    """The branch had moved, and the commits do not fit there; nothing was changed."""

    base: str
    """The branch's tip."""
    paths: tuple[str, ...]
    """Files that both changed."""


def read_tip(git_dir: Path, base: str) -> str:
    """The commit that the loop's branch is at; `base` while nothing was merged."""
    return _read_ref(git_dir / BRANCH) or base


def _read_ref(file: Path) -> str | None:
    try:
        return file.read_text("ascii").strip()
    except FileNotFoundError:
        return None


async def _write_ref(git: Git, name: str, commit: str) -> None:
    await anyio.to_thread.run_sync(write_whole, git.directory / name, f"{commit}\n".encode())


async def merge_into(git: Git, there: str, tip: str) -> Merged | Candidate | Conflict:
    """Have the loop's branch contain a story's commits.

    Args:
        git: The loop's repository, under its lock.
        there: The commit that the branch is at.
        tip: The last of the story's commits.

    Raises:
        UsageError: They are no line of commits that grew on the branch.
        InfrastructureFault: Git failed.
    """
    line = await _line(git, check_id(tip), there)
    at, beyond = tip, line
    while beyond:  # perhaps it was replayed before, and that was merged
        following = _read_ref(git.directory / _REPLAYED / at)
        if following is None:
            break
        at, beyond = following, await _line(git, following, there)
    if not beyond:
        return Merged(at)
    if line[0].parents == there:
        await _write_ref(git, BRANCH, tip)
        return Merged(tip)
    return await _replay(git, line, there)


@frozen
class _Commit:
    id: str
    parents: str
    at_s: int
    message: bytes


async def _line(git: Git, tip: str, there: str) -> list[_Commit]:
    """The commits of a story that the branch does not have, the oldest first."""
    form = "--format=%H%n%P%n%at%n%B%x00"
    command = ("rev-list", "--reverse", "--topo-order", "--no-commit-header", form, tip, f"^{there}")
    told = await git.run(*command)
    found = []
    for text in told.stdout.split(b"\0")[:-1]:
        name, parents, at_s, message = text.lstrip(b"\n").split(b"\n", 3)
        found.append(_Commit(name.decode(), parents.decode(), int(at_s), message.rstrip(b"\n") + b"\n"))
    grew = all(commit.parents == before.id for before, commit in pairwise(found))
    if len(found) > _MOST_COMMITS or not grew or (found and " " in (found[0].parents or " ")):
        raise UsageError(f"{tip!r} is no line of commits that belongs to this loop")
    return found


async def _replay(git: Git, line: list[_Commit], onto: str) -> Candidate | Conflict:
    """The commits again on `onto`, the same in all but parent and tree; or the files that conflict.

    Each is merged as a whole, with all before it: what it shares with the branch is where the story left it.
    """
    at = onto
    for commit in line:
        merged = await _merge_trees(git, onto, commit.id)
        if isinstance(merged, tuple):
            return Conflict(onto, merged)
        at = await commit_tree(git, merged, at, message=commit.message, at_s=commit.at_s)
    await _write_ref(git, f"{_REPLAYED}/{line[-1].id}", at)
    return Candidate(at, onto)


async def _merge_trees(git: Git, ours: str, theirs: str) -> str | tuple[str, ...]:
    """The tree in which two commits are merged; or the files that conflict."""
    options = ("--write-tree", "--name-only", "--no-messages", "-z")
    merged = await git.run(
        *("-c", "merge.renames=false", "-c", "merge.directoryRenames=false"),
        *("merge-tree", *options, ours, theirs),
        accept=(0, 1),
        timeout_s=_MERGE_S,
    )
    tree, *paths = merged.stdout.split(b"\0")
    if merged.exit_code == 1:
        return tuple(sorted({os.fsdecode(path) for path in paths if path}))
    return tree.decode()


async def revert_on(
    git: Git, there: str, base: str, commit: str, *, message: bytes, at_s: int
) -> Merged | Conflict:
    """Take back on the branch what changed from one of its commits to a later one; again changes nothing.

    Args:
        git: The loop's repository, under its lock.
        there: The commit that the branch is at.
        base: The commit before the first that is taken back.
        commit: The last that is taken back.
        message: Of the commit that does it, whole.
        at_s: Its time, in seconds since the epoch.

    Raises:
        UsageError: The branch does not have them.
        InfrastructureFault: Git failed.
    """
    if await _line(git, check_id(commit), there) or await _line(git, check_id(base), commit):
        raise UsageError(f"{commit!r} is not on the loop's branch, so that nothing of it can be taken back")
    before = _read_ref(git.directory / _REVERTED / commit)
    if before is not None and not await _line(git, before, there):
        return Merged(there)
    # `merge-tree --merge-base` is of git 2.40: a commit with the tree from before, whose parent is the last that is
    # taken back, makes that one the merge base.
    without = await commit_tree(git, f"{base}^{{tree}}", commit, message=message, at_s=at_s)
    merged = await _merge_trees(git, there, without)
    if isinstance(merged, tuple):
        return Conflict(there, merged)
    reverted = await commit_tree(git, merged, there, message=message, at_s=at_s)
    for name in (f"{_REVERTED}/{commit}", BRANCH):
        await _write_ref(git, name, reverted)
    return Merged(reverted)

"""Merges stories' commits into the loop's branch: by a fast-forward, or replayed on the branch's new tip.

Nothing is checked out: `git merge-tree` merges files on objects alone. The caller holds the loop's lock.
"""

import os
from itertools import pairwise
from pathlib import Path

import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.loop.repository.commit import check_id, commit_tree
from ringfence.loop.repository.repository_directory import BRANCH, write_atomically
from ringfence.sandbox.workspace.git.command import Git

_MAX_COMMITS = 10_000
_REPLAYED = "refs/ringfence/replayed"
"""Refs below it map the id of a story's last commit to its replayed commit."""
_REVERTED = "refs/ringfence/reverted"
"""Refs below it map the id of the last reverted commit to the commit that reverts it."""
_MERGE_S = 600.0


@frozen
class Merged:
    """The loop's branch contains the story's commits."""

    tip: str
    """The last of the story's commits, as it is on the branch."""


@frozen
class Candidate:
    """The branch had moved: the commits were replayed on its tip, and the branch was not changed.

    The combination has not been checked yet: run the checks on `tip`, then fast-forward to it.
    """

    tip: str
    """The last of the replayed commits."""
    base: str
    """The branch's tip, on which they were replayed."""


@frozen
class Conflict:
    """The branch had moved, and the commits conflict with it; nothing was changed."""

    base: str
    """The branch's tip."""
    paths: tuple[str, ...]
    """Files that conflict."""


def read_tip(git_dir: Path, base: str) -> str:
    """Return the commit at the tip of the loop's branch; `base` while nothing was merged."""
    return _read_ref(git_dir / BRANCH) or base


def _read_ref(file: Path) -> str | None:
    try:
        return file.read_text("ascii").strip()
    except FileNotFoundError:
        return None


async def _write_ref(git: Git, name: str, commit: str) -> None:
    await anyio.to_thread.run_sync(write_atomically, git.directory / name, f"{commit}\n".encode())


async def fast_forward_or_rebase(git: Git, branch_tip: str, tip: str) -> Merged | Candidate | Conflict:
    """Fast-forward the loop's branch to a story's commits, or replay them on its tip if the branch has moved.

    Args:
        git: Git on the loop's repository, under its lock.
        branch_tip: The commit at the tip of the branch.
        tip: The last of the story's commits.

    Raises:
        UsageError: They are not a linear series of commits that starts on the branch.
        InfrastructureFault: Git failed.
    """
    commits = await _list_commits(git, check_id(tip), branch_tip)
    latest, missing = tip, commits
    while missing:  # they may have been replayed and then merged
        replayed = _read_ref(git.directory / _REPLAYED / latest)
        if replayed is None:
            break
        latest, missing = replayed, await _list_commits(git, replayed, branch_tip)
    if not missing:
        return Merged(latest)
    if commits[0].parents == branch_tip:
        await _write_ref(git, BRANCH, tip)
        return Merged(tip)
    return await _replay(git, commits, branch_tip)


@frozen
class _Commit:
    id: str
    parents: str
    at_s: int
    message: bytes


async def _list_commits(git: Git, tip: str, branch_tip: str) -> list[_Commit]:
    """Return the commits of a story that the branch does not contain, the oldest first."""
    form = "--format=%H%n%P%n%at%n%B%x00"
    command = ("rev-list", "--reverse", "--topo-order", "--no-commit-header", form, tip, f"^{branch_tip}")
    listed = await git.run(*command)
    found = []
    for text in listed.stdout.split(b"\0")[:-1]:
        name, parents, at_s, message = text.lstrip(b"\n").split(b"\n", 3)
        found.append(_Commit(name.decode(), parents.decode(), int(at_s), message.rstrip(b"\n") + b"\n"))
    is_linear = all(commit.parents == before.id for before, commit in pairwise(found))
    if len(found) > _MAX_COMMITS or not is_linear or (found and " " in (found[0].parents or " ")):
        raise UsageError(f"{tip!r} is no line of commits that belongs to this loop")
    return found


async def _replay(git: Git, commits: list[_Commit], onto: str) -> Candidate | Conflict:
    """Create the commits again on `onto`, with new parents and trees; or return the files that conflict.

    Each commit's tree is a three-way merge of `onto` with that commit, which includes all earlier ones. The merge base
    is the commit at which the story was started.
    """
    tip = onto
    for commit in commits:
        merged = await _merge_trees(git, onto, commit.id)
        if isinstance(merged, tuple):
            return Conflict(onto, merged)
        tip = await commit_tree(git, merged, tip, message=commit.message, at_s=commit.at_s)
    await _write_ref(git, f"{_REPLAYED}/{commits[-1].id}", tip)
    return Candidate(tip, onto)


async def _merge_trees(git: Git, ours: str, theirs: str) -> str | tuple[str, ...]:
    """Merge two commits, and return the merged tree; or the files that conflict."""
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
    git: Git, branch_tip: str, base: str, commit: str, *, message: bytes, at_s: int
) -> Merged | Conflict:
    """Revert a range of the branch's commits by one commit; a second call changes nothing.

    Args:
        git: Git on the loop's repository, under its lock.
        branch_tip: The commit at the tip of the branch.
        base: The commit before the first to revert.
        commit: The last commit to revert.
        message: The complete message of the new commit.
        at_s: The new commit's time, in seconds since the epoch.

    Raises:
        UsageError: The branch does not contain the commits.
        InfrastructureFault: Git failed.
    """
    if await _list_commits(git, check_id(commit), branch_tip) or await _list_commits(
        git, check_id(base), commit
    ):
        raise UsageError(f"{commit!r} is not on the loop's branch and cannot be reverted")
    before = _read_ref(git.directory / _REVERTED / commit)
    if before is not None and not await _list_commits(git, before, branch_tip):
        return Merged(branch_tip)
    # `merge-tree --merge-base` needs git 2.40. A commit with the earlier tree, whose parent is the last commit to
    # revert, makes that commit the merge base.
    without = await commit_tree(git, f"{base}^{{tree}}", commit, message=message, at_s=at_s)
    merged = await _merge_trees(git, branch_tip, without)
    if isinstance(merged, tuple):
        return Conflict(branch_tip, merged)
    reverted = await commit_tree(git, merged, branch_tip, message=message, at_s=at_s)
    for name in (f"{_REVERTED}/{commit}", BRANCH):
        await _write_ref(git, name, reverted)
    return Merged(reverted)

"""A story's commits onto the loop's branch: as they are, or replayed on what came there meanwhile.

Nothing is checked out: files are merged by `git merge-tree` on objects alone. The branch moves by compare-and-set.
"""

import os

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.loop.repository.place import BRANCH
from ringfence.sandbox.workspace.git.command import Git

_MOST_COMMITS = 10_000
_MOST_REPLAYS = 1000
_REPLAYED = "refs/ringfence/replayed"
"""Below it, by the id of a story's commit, what that became on the branch's tip."""
_MERGE_S = 600.0
_STAMP = {
    "GIT_AUTHOR_NAME": "ringfence",
    "GIT_AUTHOR_EMAIL": "ringfence@localhost",
    "GIT_AUTHOR_DATE": "1000000000 +0000",
    "GIT_COMMITTER_NAME": "ringfence",
    "GIT_COMMITTER_EMAIL": "ringfence@localhost",
    "GIT_COMMITTER_DATE": "1000000000 +0000",
}


@frozen
class Merged:
    """The loop's branch has the story's commits."""

    tip: str
    """The last of them, as it is on the branch."""


@frozen
class Replayed:
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


async def tip_of(git: Git) -> str:
    """The commit that the loop's branch is at."""
    return (await git.run("rev-parse", "--verify", "--quiet", BRANCH)).stdout.decode().strip()


async def merge_into(git: Git, tip: str) -> Merged | Replayed | Conflict:
    """Have the loop's branch contain a commit, whose objects are there.

    Raises:
        UsageError: It has nothing to do with the loop.
    """
    there = await tip_of(git)
    if await _is_ancestor(git, tip, there):
        return Merged(tip)
    if await _is_ancestor(git, there, tip):
        # Under the loop's lock; the old value guards against whoever has none.
        await git.run("update-ref", "--no-deref", BRANCH, tip, there)
        return Merged(tip)
    before = await _replayed_before(git, tip, there)
    return Merged(before) if before is not None else await _replay(git, tip, there)


async def _is_ancestor(git: Git, one: str, other: str) -> bool:
    return (await git.run("merge-base", "--is-ancestor", one, other, accept=(0, 1))).exit_code == 0


async def _replayed_before(git: Git, tip: str, there: str) -> str | None:
    """What a commit became that was replayed, and merged, before; None if it never was."""
    at = tip
    for _ in range(_MOST_REPLAYS):
        told = await git.run("rev-parse", "--verify", "--quiet", f"{_REPLAYED}/{at}", accept=(0, 1))
        if not told.ok:
            return None
        at = told.stdout.decode().strip()
        if await _is_ancestor(git, at, there):
            return at
    return None


async def _replay(git: Git, tip: str, onto: str) -> Replayed | Conflict:
    listed = await git.run("rev-list", "--reverse", "--topo-order", "--parents", tip, f"^{onto}")
    rows = [line.split() for line in listed.stdout.decode().splitlines()]
    if len(rows) > _MOST_COMMITS or any(len(row) != 2 for row in rows):
        raise UsageError(f"{tip!r} is no line of commits that belongs to this loop")
    at = onto
    for commit, parent in rows:
        made = await _replay_one(git, commit, parent, at)
        if isinstance(made, tuple):
            return Conflict(onto, made)
        at = made
    await git.run("update-ref", "--no-deref", f"{_REPLAYED}/{tip}", at)
    return Replayed(at, onto)


async def _replay_one(git: Git, commit: str, parent: str, onto: str) -> str | tuple[str, ...]:
    """The commit again on `onto`, the same in all but parent and tree; or the files that conflict."""
    # `merge-tree --merge-base` is of git 2.40: a commit that has the tip's tree and the story's parent makes that
    # parent the merge base.
    stamped = Git(
        git.directory,
        options=git.options,
        inherited=git.inherited,
        environment={**git.environment, **_STAMP},
    )
    told = await stamped.run("commit-tree", f"{onto}^{{tree}}", "-p", parent, "-m", "the loop's tip")
    ours = told.stdout.decode().strip()
    merged = await git.run(
        "-c",
        "merge.renames=false",
        "-c",
        "merge.directoryRenames=false",
        "merge-tree",
        "--write-tree",
        "--name-only",
        "--no-messages",
        "-z",
        ours,
        commit,
        accept=(0, 1),
        timeout_s=_MERGE_S,
    )
    tree, *paths = merged.stdout.split(b"\0")
    if merged.exit_code == 1:
        return tuple(sorted({os.fsdecode(path) for path in paths if path}))
    raw = (await git.run("cat-file", "commit", commit)).stdout
    again = _with(raw, tree=tree, parent=onto.encode())
    written = await git.run("hash-object", "-t", "commit", "-w", "--stdin", stdin=again)
    return written.stdout.decode().strip()


def _with(raw: bytes, *, tree: bytes, parent: bytes) -> bytes:
    head, separator, message = raw.partition(b"\n\n")
    lines = head.split(b"\n")
    if len(lines) < 4 or not lines[0].startswith(b"tree ") or not lines[1].startswith(b"parent "):
        raise InfrastructureFault(f"a commit of the loop is not as ringfence makes them: {head[:200]!r}")
    lines[:2] = [b"tree " + tree, b"parent " + parent]
    return b"\n".join(lines) + separator + message

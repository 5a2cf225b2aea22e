"""How many lines of which files a loop's commits change."""

import os
from collections import Counter
from contextlib import suppress

from ringfence.errors import RingfenceError
from ringfence.loop.report.model import FileStat, FlaggedFile, Stat
from ringfence.loop.repository import LoopRepository
from ringfence.loop.repository.candidate import differences
from ringfence.loop.repository.place import git_on
from ringfence.sandbox.workspace.protect.flags import flag, reason
from ringfence.sandbox.workspace.snapshot.diff import parse_diff

MOST_FILES = 200
MOST_FLAGGED = 50
_LISTING_BYTES = 64 * 1024**2
_DIFF_S = 120.0


async def stat_of(repository: LoopRepository | None, base: str | None, commit: str | None) -> Stat | None:
    """What changed from one commit to another; None where the loop's repository does not have them any more."""
    if repository is None or base is None or commit is None:
        return None
    options = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
    with suppress(RingfenceError):
        async with repository.place.locked("loop") as lock:
            git = git_on(repository.place.git_dir, lock)
            told = await git.run(
                "diff-tree", *options, base, commit, timeout_s=_DIFF_S, output_limit_bytes=_LISTING_BYTES
            )
        diff = parse_diff(told.stdout)
        files = tuple(
            FileStat(change.path, change.insertions, change.deletions, change.binary)
            for change in diff.files[:MOST_FILES]
        )
        return Stat(files, len(diff.files), diff.insertions, diff.deletions)
    return None


async def flagged_of(repository: LoopRepository | None, base: str, tip: str | None) -> list[FlaggedFile]:
    """Which changed files run, or are trusted, on the user's machine: none is hidden behind many of another reason."""
    paths = list[str]()
    if repository is not None and tip is not None:
        with suppress(RingfenceError):
            async with repository.place.locked("loop") as lock:
                rows = await differences(git_on(repository.place.git_dir, lock), base, tip)
            paths = flag(os.fsdecode(path) for path in rows)
    seen, ranked = Counter[str](), list[tuple[int, str, str]]()
    for path in paths:
        why = reason(path)
        ranked.append((seen[why], path, why))
        seen[why] += 1
    return [FlaggedFile(path, why) for _, path, why in sorted(ranked)]


async def span_of(repository: LoopRepository, base: str, tip: str, merged: str) -> tuple[str, str] | None:
    """A story's own part of the loop's branch: the commit before it, and its last.

    Args:
        repository: The loop's.
        base: The commit that the story was begun at.
        tip: The last of its commits as they were made.
        merged: The same as it is on the branch: replayed there, if other stories came in between.
    """
    if merged == tip:
        return base, tip
    with suppress(RingfenceError):
        async with repository.place.locked("loop") as lock:
            git = git_on(repository.place.git_dir, lock)
            told = await git.run("rev-list", "--count", f"{base}..{tip}")
            before = await git.run("rev-parse", "--verify", "--quiet", f"{merged}~{int(told.stdout)}")
        return before.stdout.decode().strip(), merged
    return None

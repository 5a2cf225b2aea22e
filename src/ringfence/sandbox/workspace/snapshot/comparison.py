"""Compares two trees with git; compares files as binary where counting their lines exceeds git's limits."""

from dataclasses import replace

from ringfence.sandbox.workspace.git.command import Git, GitBoundReached

_OPTIONS = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv")
_COARSER = ("64k", "1")
"""Values of core.bigFileThreshold for retries; the last one makes git treat every file as binary."""
_COMPARE_S = (20.0, 20.0, 120.0)
"""Seconds for each attempt, the coarsest last: many files of many lines, each below the threshold, take git minutes."""


async def compare_trees(git: Git, earlier: str, later: str, *, output_limit_bytes: int) -> bytes:
    """Return what `parse_diff` reads; without numbers of lines where counting them exceeds git's memory or time.

    Raises:
        GitBoundReached: There is more than may be printed, or git took too long even without counting lines.
    """
    attempts = [
        git,
        *(replace(git, options=(*git.options, f"core.bigFileThreshold={size}")) for size in _COARSER),
    ]
    *finer, last = zip(attempts, _COMPARE_S, strict=True)
    for attempt, limit_s in finer:
        try:
            return await _compare(attempt, earlier, later, limit_s, output_limit_bytes)
        except GitBoundReached as exc:
            if exc.bound == "output":
                raise
    return await _compare(last[0], earlier, later, last[1], output_limit_bytes)


async def _compare(git: Git, earlier: str, later: str, limit_s: float, output_limit_bytes: int) -> bytes:
    told = await git.run(
        "diff-tree", *_OPTIONS, earlier, later, timeout_s=limit_s, output_limit_bytes=output_limit_bytes
    )
    return told.stdout

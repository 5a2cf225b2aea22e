"""What differs between two trees, as git says it, with a coarser answer where lines would cost too much to count."""

from dataclasses import replace

from ringfence.sandbox.workspace.git import Git, GitBoundReached

_OPTIONS = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv")
_COARSER = ("64k", "1")
"""Sizes from which git compares files as binary: from the last one on all of them, which takes next to nothing."""
_COMPARE_S = 120.0


async def compare_trees(git: Git, earlier: str, later: str, *, output_limit_bytes: int) -> bytes:
    """What `parse_diff` reads; without numbers of lines where they cost more than git may use.

    Raises:
        GitBoundReached: There is more than may be printed, or git took too long.
    """
    attempts = [
        git,
        *(replace(git, options=(*git.options, f"core.bigFileThreshold={size}")) for size in _COARSER),
    ]
    for attempt in attempts[:-1]:
        try:
            return await _compare(attempt, earlier, later, output_limit_bytes)
        except GitBoundReached as exc:
            if exc.bound == "output":
                raise
    return await _compare(attempts[-1], earlier, later, output_limit_bytes)


async def _compare(git: Git, earlier: str, later: str, output_limit_bytes: int) -> bytes:
    told = await git.run(
        "diff-tree", *_OPTIONS, earlier, later, timeout_s=_COMPARE_S, output_limit_bytes=output_limit_bytes
    )
    return told.stdout

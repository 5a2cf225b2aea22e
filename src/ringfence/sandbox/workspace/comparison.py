"""What differs between two trees, as git says it, with a coarser answer where lines would cost too much to count."""

from dataclasses import replace

from ringfence.sandbox.workspace.git import Git, GitBoundReached

_OPTIONS = ("-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv")
_WITHOUT_LINES = ("core.bigFileThreshold=1",)
"""Git compares every file as binary then, which takes next to no memory and time."""
_COMPARE_S = 120.0


async def compare_trees(git: Git, earlier: str, later: str, *, output_limit_bytes: int) -> bytes:
    """What `parse_diff` reads; without numbers of lines where they cost more than git may use.

    Raises:
        GitBoundReached: There is more than may be printed, or git took too long.
    """
    try:
        return await _compare(git, earlier, later, output_limit_bytes)
    except GitBoundReached as exc:
        if exc.bound == "output":
            raise
        coarse = replace(git, options=(*git.options, *_WITHOUT_LINES))
        return await _compare(coarse, earlier, later, output_limit_bytes)


async def _compare(git: Git, earlier: str, later: str, output_limit_bytes: int) -> bytes:
    told = await git.run(
        "diff-tree", *_OPTIONS, earlier, later, timeout_s=_COMPARE_S, output_limit_bytes=output_limit_bytes
    )
    return told.stdout

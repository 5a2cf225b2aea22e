"""Whether an agent left the refs of its private git directory as they were: then there are no commits to bring out.

Git is not run on it, and no link in it is followed. Whoever hides a commit from this look loses it, and nothing else.
"""

import os
import stat
from pathlib import Path

from ringfence.sandbox.workspace.git_layout import read_small
from ringfence.sandbox.workspace.refs import Refs
from ringfence.sandbox.workspace.tree import Tree

_MOST_ENTRIES = 10_000
_ELSEWHERE = (b"commondir", b"reftable")
"""Where they are, git keeps refs in other places."""


def are_refs_untouched(directory: Path, refs: Refs) -> bool:
    """Whether a private git directory has exactly the refs that it was made with; False if that cannot be told.

    Args:
        directory: The git directory; what is inside is dead by now.
        refs: What it was made with.
    """
    wanted = {b"HEAD": refs.head, b"packed-refs": refs.packed()}
    wanted |= {os.fsencode(name): os.fsencode(f"ref: {to}\n") for name, to in refs.symbolic.items()}
    try:
        with Tree(directory) as tree:
            if any(tree.lstat(name) is not None for name in _ELSEWHERE):
                return False
            if not _loose(tree) <= wanted.keys():
                return False
    except (OSError, _TooMany):
        return False
    return all(read_small(directory, name, len(data)) == data for name, data in wanted.items())


class _TooMany(Exception):
    """There is more than is looked at."""


def _loose(tree: Tree) -> set[bytes]:
    """Everything below `refs` that is no directory."""
    found, pending, seen = set[bytes](), [b"refs"], 0
    while pending:
        folder = pending.pop()
        with os.scandir(tree.directory(folder)) as entries:
            for entry in entries:
                seen += 1
                if seen > _MOST_ENTRIES:
                    raise _TooMany
                path = folder + b"/" + os.fsencode(entry.name)
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                else:
                    found.add(path)
    return found

"""Files with names elsewhere: what is written to one in place is written to the other, too."""

import os
from collections.abc import Collection, Mapping
from itertools import islice

from ringfence.sandbox.workspace.snapshot.memo import lies_in, named
from ringfence.sandbox.workspace.tree import Tree

_SHOWN = 5
_LOOKED_AT = 2000
"""Files in ignored directories (venvs, node_modules): enough to see whether links are made there."""


def links_note(
    tree: Tree,
    linked: Mapping[bytes, tuple[int, int]],
    ignored: Collection[bytes],
    *,
    read_only: Collection[bytes],
) -> tuple[str, ...]:
    """Note which files have names elsewhere.

    Args:
        tree: The workspace.
        linked: Files with more than one name: inode, and how many names it has.
        ignored: Directories, ending in a slash, where a bounded number of files is looked at.
        read_only: What cannot be written inside, such as a virtual environment whose files are links to a cache.
    """
    found = dict(linked)
    closed = {*read_only, *(path + b"/" for path in read_only)}
    folders = sorted(path[:-1] for path in ignored if path.endswith(b"/") and not lies_in(path, closed))
    for folder in folders[:_LOOKED_AT]:
        found |= _linked_in(tree, folder, max(1, _LOOKED_AT // len(folders)))
    seen: dict[int, int] = {}
    for inode, _ in found.values():
        seen[inode] = seen.get(inode, 0) + 1
    out = sorted(
        path for path, (inode, names) in found.items() if seen[inode] < names and not lies_in(path, closed)
    )
    if not out:
        return ()
    count = f"at least {len(out)}" if folders else str(len(out))
    note = (
        f"{count} files have another name elsewhere (hard links), and what is written to them in place is written"
        f" there, too; mode 'clone' has none: {named(out, most=_SHOWN)}"
    )
    return (note,)


def _linked_in(tree: Tree, folder: bytes, limit: int) -> dict[bytes, tuple[int, int]]:
    """Files with more than one name, among the first that are met."""
    found: dict[bytes, tuple[int, int]] = {}
    pending = [folder]
    while pending and limit > 0:
        here = pending.pop()
        try:
            with os.scandir(tree.directory(here)) as entries:
                for entry in islice(entries, limit):
                    limit -= 1
                    path = here + b"/" + os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_nlink > 1:
                            found[path] = (status.st_ino, status.st_nlink)
        except OSError:
            continue
    return found
